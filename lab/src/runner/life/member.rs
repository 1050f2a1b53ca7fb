//! One container of a Pod over all its restarts.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Container;

use crate::runner::container::Process;
use crate::runner::probes::{self, Asked};
use crate::runner::status::{Look, State};

/// The longest pause before a container that keeps ending is started again. A kubelet would wait for minutes.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long the processes of a killed container may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Member {
    container: Container,
    /// `Always`, `OnFailure` or `Never`.
    policy: String,
    process: Option<Process>,
    state: State,
    restarts: u32,
    starts: u32,
    last_exit: Option<i32>,
    not_before: Instant,
    startup: Option<Asked>,
    readiness: Option<Asked>,
    liveness: Option<Asked>,
    asked_to_stop: bool,
}

impl Member {
    pub(super) fn new(container: &Container, policy: Option<&str>) -> Self {
        Self {
            container: container.clone(),
            policy: policy.unwrap_or("Always").to_owned(),
            process: None,
            state: State::Waiting("ContainerCreating", String::new()),
            restarts: 0,
            starts: 0,
            last_exit: None,
            not_before: Instant::now(),
            startup: None,
            readiness: None,
            liveness: None,
            asked_to_stop: false,
        }
    }

    /// Why it does not start.
    pub(super) fn hold_back(&mut self, reason: &'static str, sentence: String) {
        self.state = State::Waiting(reason, sentence);
    }

    /// Whether it has ended well and is not coming back, which is what an init container is for.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Ended(0)
    }

    /// Starts it, asks its probes, or notices its end.
    pub(super) async fn step(
        &mut self,
        address: IpAddr,
        start: impl Fn(&Container, u32) -> Result<Process, (&'static str, String)>,
    ) {
        match self.process.as_ref().map(Process::exit_code) {
            None if matches!(self.state, State::Ended(_)) || Instant::now() < self.not_before => {}
            None => self.begin(start),
            Some(Some(code)) => self.note_end(code),
            Some(None) => self.ask(address).await,
        }
    }

    fn begin(&mut self, start: impl Fn(&Container, u32) -> Result<Process, (&'static str, String)>) {
        if let Some(sentence) = probes::refused(&self.container) {
            self.not_before = Instant::now() + LONGEST_PAUSE;
            return self.hold_back("CreateContainerConfigError", sentence);
        }
        match start(&self.container, self.starts) {
            Err((reason, sentence)) => {
                self.not_before = Instant::now() + Duration::from_secs(1);
                self.hold_back(reason, sentence);
            }
            Ok(process) => {
                let probe = |probe: &Option<_>, holds| probe.as_ref().map(|one| Asked::new(one, process.since, holds));
                self.startup = probe(&self.container.startup_probe, false);
                self.readiness = probe(&self.container.readiness_probe, false);
                self.liveness = probe(&self.container.liveness_probe, true);
                self.state = State::Running(process.started);
                self.starts += 1;
                self.process = Some(process);
            }
        }
    }

    async fn ask(&mut self, address: IpAddr) {
        if let Some(startup) = &mut self.startup
            && !startup.holds
        {
            startup.ask(&self.container, address).await;
            if startup.has_failed() {
                self.ask_to_stop();
            }
            return;
        }
        if let Some(readiness) = &mut self.readiness {
            readiness.ask(&self.container, address).await;
        }
        if let Some(liveness) = &mut self.liveness {
            liveness.ask(&self.container, address).await;
            if liveness.has_failed() {
                self.ask_to_stop();
            }
        }
    }

    fn note_end(&mut self, code: i32) {
        self.process = None;
        self.asked_to_stop = false;
        if self.policy == "Never" || (self.policy == "OnFailure" && code == 0) {
            self.state = State::Ended(code);
            return;
        }
        let pause = Duration::from_secs(1 << self.restarts.min(4)).min(LONGEST_PAUSE);
        (self.not_before, self.last_exit) = (Instant::now() + pause, Some(code));
        self.restarts += 1;
        self.state = State::Waiting("CrashLoopBackOff", format!("it ended with {code} and starts again in {pause:?}"));
    }

    fn ask_to_stop(&mut self) {
        if let Some(process) = &self.process
            && !self.asked_to_stop
        {
            // It may be too young to be asked; then the next look asks again.
            self.asked_to_stop = process.terminate().is_ok();
        }
    }

    /// How long the Pod wants its container to go on after it was asked to end.
    pub(super) fn pause_before_stop(&self) -> Duration {
        let hook = self.container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        let seconds = hook.and_then(|hook| hook.sleep.as_ref()).map(|sleep| sleep.seconds).unwrap_or_default();
        Duration::from_secs(seconds.try_into().unwrap_or_default())
    }

    /// Asks only whether it is ready, which is asked to the end: one that stays for a while can say that nobody new
    /// should come.
    pub(super) async fn ask_readiness(&mut self, address: IpAddr) {
        let runs = self.process.as_ref().is_some_and(|process| process.exit_code().is_none());
        if let Some(readiness) = self.readiness.as_mut().filter(|_| runs) {
            readiness.ask(&self.container, address).await;
        }
    }

    /// Asks it to end, once, and says whether it has.
    pub(super) fn has_stopped(&mut self) -> bool {
        self.ask_to_stop();
        let code = match &self.process {
            Some(process) => process.exit_code(),
            None => return true,
        };
        if let Some(code) = code {
            self.process = None;
            self.state = State::Ended(code);
        }
        code.is_some()
    }

    /// Ends it now, and waits until its processes are gone.
    pub(super) async fn kill(&mut self) {
        let Some(process) = self.process.take() else { return };
        self.state = State::Ended(137);
        let first = process.first_process();
        drop(process);
        let deadline = Instant::now() + GONE_WITHIN;
        while first.as_ref().is_some_and(|path| path.exists()) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How it is.
    pub(super) fn look(&self) -> Look<'_> {
        let started = self.startup.as_ref().is_none_or(|probe| probe.holds);
        let ready = started && self.readiness.as_ref().is_none_or(|probe| probe.holds);
        Look {
            name: &self.container.name,
            image: self.container.image.as_deref().unwrap_or_default(),
            ready: ready && matches!(self.state, State::Running(_)),
            state: self.state.clone(),
            restarts: self.restarts,
            last_exit: self.last_exit,
        }
    }
}

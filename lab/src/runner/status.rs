//! What a Pod's status says, from how its containers are.

use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};

/// How one container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It does not run: a reason in one word, and a sentence.
    Waiting(&'static str, String),
    /// Since when it runs.
    Running(Timestamp),
    /// With which code it ended, and will not come back.
    Ended(i32),
}

/// One container as the status tells of it.
#[derive(Clone, Debug)]
pub(super) struct Look<'a> {
    pub(super) name: &'a str,
    pub(super) image: &'a str,
    pub(super) state: State,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    /// With which code it ended before the last restart.
    pub(super) last_exit: Option<i32>,
}

/// One Pod.
#[derive(Clone, Debug)]
pub(super) struct Portrait<'a> {
    pub(super) uid: &'a str,
    pub(super) initialized: bool,
    pub(super) started: Timestamp,
    pub(super) nodes: [IpAddr; 2],
    pub(super) addresses: &'a [IpAddr],
    pub(super) init: Vec<Look<'a>>,
    pub(super) containers: Vec<Look<'a>>,
}

impl Portrait<'_> {
    /// One word for all.
    pub(super) fn phase(&self) -> &'static str {
        let codes = || self.containers.iter().map(|look| &look.state);
        if codes().all(|state| *state == State::Ended(0)) {
            "Succeeded"
        } else if codes().all(|state| matches!(state, State::Ended(_))) {
            "Failed"
        } else if self.initialized && self.containers.iter().all(was_started) {
            "Running"
        } else {
            "Pending"
        }
    }

    /// A patch of the status of just this Pod: the uid makes it fail on a namesake.
    pub(super) fn patch(&self) -> Value {
        let ready = self.initialized && self.containers.iter().all(|look| look.ready);
        let condition = |kind: &str, holds: bool| json!({"type": kind, "status": if holds { "True" } else { "False" }});
        let list = |addresses: &[IpAddr]| -> Vec<Value> { addresses.iter().map(|ip| json!({"ip": ip})).collect() };
        json!({"metadata": {"uid": self.uid}, "status": {
            "phase": self.phase(),
            "startTime": format!("{:.0}", self.started),
            "hostIP": self.nodes[0],
            "hostIPs": list(&self.nodes),
            "podIP": self.addresses.first(),
            "podIPs": list(self.addresses),
            "conditions": [
                condition("PodScheduled", true),
                condition("Initialized", self.initialized),
                condition("ContainersReady", ready),
                condition("Ready", ready),
            ],
            "initContainerStatuses": self.init.iter().map(Look::report).collect::<Vec<_>>(),
            "containerStatuses": self.containers.iter().map(Look::report).collect::<Vec<_>>(),
        }})
    }
}

fn was_started(look: &Look<'_>) -> bool {
    look.restarts > 0 || !matches!(look.state, State::Waiting(..))
}

impl Look<'_> {
    fn report(&self) -> Value {
        let state = match &self.state {
            State::Waiting(reason, message) => json!({"waiting": {"reason": reason, "message": message}}),
            State::Running(since) => json!({"running": {"startedAt": format!("{since:.0}")}}),
            State::Ended(code) => terminated(*code),
        };
        json!({
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "ready": self.ready,
            "started": matches!(self.state, State::Running(_)),
            "restartCount": self.restarts,
            "state": state,
            "lastState": self.last_exit.map(terminated).unwrap_or_else(|| json!({})),
        })
    }
}

fn terminated(code: i32) -> Value {
    json!({"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(states: &[State]) -> &'static str {
        let look = |state: &State| Look {
            name: "one",
            image: "one",
            state: state.clone(),
            ready: false,
            restarts: 0,
            last_exit: None,
        };
        let nodes = [IpAddr::from([192, 168, 7, 11]); 2];
        let containers = states.iter().map(look).collect();
        let started = Timestamp::UNIX_EPOCH;
        Portrait { uid: "u", initialized: true, started, nodes, addresses: &[], init: Vec::new(), containers }.phase()
    }

    #[test]
    fn a_pod_runs_once_all_its_containers_do() {
        let (waits, runs) = (State::Waiting("ContainerCreating", String::new()), State::Running(Timestamp::UNIX_EPOCH));
        assert_eq!(phase(&[runs.clone(), waits]), "Pending");
        assert_eq!(phase(&[runs.clone(), State::Ended(1)]), "Running");
        assert_eq!(phase(&[runs]), "Running");
    }

    #[test]
    fn a_pod_whose_containers_have_ended_says_how() {
        assert_eq!(phase(&[State::Ended(0), State::Ended(0)]), "Succeeded");
        assert_eq!(phase(&[State::Ended(0), State::Ended(2)]), "Failed");
    }
}

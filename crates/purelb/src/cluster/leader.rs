//! One allocator of many leads, by a Lease, and it stops writing before another may start.
//!
//! Two rules make this hold, and neither compares the clocks of two machines:
//!
//! - A leader may write until the *sending time* of its last successful renewal plus the lease's duration, less a margin.
//! - A lease is another's until it has stood unchanged for its whole duration *before the eyes of this process*, and it
//!   is then taken with the resourceVersion that was seen, so that a renewal seen late means a conflict, not two leaders.
//!
//! What no lease can prevent is a write that is already on its way when its sender loses the lease. Against it, a new leader
//! fences its predecessor before it decides anything; the term, which no two leaderships share, is what it writes for that.
//! A machine that sleeps together with its clock does not see that its time is over: see [`Standing`].

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::pin;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::again::until_answered;

mod bell;
mod record;
mod standing;

pub use standing::{Answer, Standing};

/// The Lease, in the namespace PureLB is installed in.
pub const LEASE_NAME: &str = "purelb-allocator";

/// The start of 2026 in Unix seconds, see [`Candidate::next_term`].
const FIRST_SECOND: i64 = 1_767_225_600;

/// How long the last deed of a candidate may take: a daemon has a second to go.
const RELEASE_TIME: Duration = Duration::from_millis(500);

/// How long a leadership lasts without renewal, and how eagerly it is renewed.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long others must see the lease unchanged before they take it.
    pub lease: Duration,
    /// How long after a renewal the leader sends the next one.
    pub renew: Duration,
    /// How long before the end of its lease a leader stops writing.
    pub margin: Duration,
}

impl Default for Timing {
    /// Fifteen seconds without new addresses after a leader was killed are bearable, and they leave the leader ten
    /// seconds, or five renewals, to sit out a slow or restarting API server. The margin is what a write sent in the last
    /// moment has to arrive or fail; that two clocks do not run equally fast takes microseconds of it.
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(2), margin: Duration::from_secs(5) }
    }
}

impl Timing {
    /// How long the leader may write after it sent a renewal.
    fn trust(&self) -> Duration {
        self.lease.saturating_sub(self.margin)
    }

    /// How long to wait for an answer: a renewal that hangs leaves time for a second one.
    fn patience(&self) -> Duration {
        self.trust() / 2
    }
}

/// Whether this process may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// Another leads, or nobody does.
    #[default]
    Standby,
    /// This process leads.
    Leading {
        /// Which leadership this is: each has a higher number than all before it.
        term: u64,
        /// When it ends, unless it is renewed. Look at it before every write.
        until: Instant,
    },
}

impl Leadership {
    /// The term in which something may be written at this time, if it may be.
    pub fn term_at(&self, now: Instant) -> Option<u64> {
        match self {
            Self::Leading { term, until } if now < *until => Some(*term),
            _ => None,
        }
    }
}

/// A name for this process that no other has, not even its predecessor in the same pod.
pub fn identity(pod: &str) -> String {
    format!("{pod}_{:016x}", RandomState::new().build_hasher().finish())
}

/// One process that wants to lead.
pub struct Candidate {
    leases: Api<Lease>,
    identity: String,
    timing: Timing,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    leadership: watch::Sender<Leadership>,
    /// The highest term known, own or another's.
    highest: u64,
    /// The latest term this process has led in.
    led: u64,
    seen: Option<Seen>,
    looked: Instant,
    renewed: Instant,
    /// After trouble, nothing is tried before this time.
    pause_until: Instant,
    /// Kept until the lease has been seen for the first time.
    unseen: Option<Box<dyn Send + Sync>>,
}

/// The lease as this process last saw it.
struct Seen {
    /// None when there is no such object.
    lease: Option<Lease>,
    /// From when on this process may take it.
    free_at: Instant,
}

/// What a candidate does next.
enum Step {
    Look,
    /// Write the lease with this process as its holder: create it, take it or renew it.
    Hold {
        term: u64,
    },
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("somebody else wrote the lease at the same time")]
    Conflict,
    #[error("the API server did not answer within {0:?}")]
    Silence(Duration),
    #[error(transparent)]
    Api(kube::Error),
}

impl Candidate {
    /// A candidate and the news of its leadership; nothing happens before [`Candidate::run`].
    ///
    /// The identity must be unique, see [`identity`].
    pub fn new(
        client: Client,
        namespace: &str,
        identity: String,
        timing: Timing,
    ) -> (Self, watch::Receiver<Leadership>) {
        let (leadership, news) = watch::channel(Leadership::Standby);
        let now = Instant::now();
        let candidate = Self {
            leases: Api::namespaced(client, namespace),
            identity,
            timing,
            clock: Box::new(Timestamp::now),
            leadership,
            highest: 0,
            led: 0,
            seen: None,
            looked: now,
            renewed: now,
            pause_until: now,
            unseen: None,
        };
        (candidate, news)
    }

    /// The means to find out whether this candidate still leads, where its clock alone may be wrong.
    pub fn standing(&self) -> Standing {
        let (leases, identity) = (self.leases.clone(), self.identity.clone());
        Standing::new(leases, identity, self.leadership.clone(), self.timing.patience())
    }

    /// With something to keep until the lease has been seen, which is when the candidate can do its duty, leading or not.
    pub fn keeping(self, guard: impl Send + Sync + 'static) -> Self {
        Self { unseen: Some(Box::new(guard)), ..self }
    }

    /// With another clock for what is written into the lease; nothing is decided by it while the lease exists.
    pub fn with_clock(self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { clock: Box::new(clock), ..self }
    }

    /// Stands for election, again and again, until `stop`; then gives the lease back, so that a successor starts at once.
    ///
    /// `stop` should come after the answer to the last write.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let fuse = fuse(self.leadership.clone());
        tokio::select! {
            () = stop => {}
            () = self.campaign() => {}
            () = fuse => {}
        }
        self.publish(Leadership::Standby);
        match timeout(RELEASE_TIME, self.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "cannot give the lease back; a successor has to wait until it expires"),
            Err(_) => warn!("no time left to give the lease back; a successor has to wait until it expires"),
        }
    }

    async fn campaign(&mut self) {
        let mut bell = pin!(bell::versions(self.leases.clone()));
        loop {
            let (at, _) = self.next(Instant::now());
            let step = tokio::select! {
                biased;
                written = bell::rung(bell.as_mut(), self.version()) => {
                    self.hear(written);
                    Step::Look
                }
                // Decided anew, because a process may wake up much later than it wished to.
                () = sleep_until(at) => self.next(Instant::now()).1,
            };
            if let Err(trouble) = self.take(step).await {
                self.recover(trouble).await;
            }
        }
    }

    /// What to do next, and when.
    fn next(&self, now: Instant) -> (Instant, Step) {
        let leading = self.leadership.borrow().term_at(now);
        let (at, step) = match (&self.seen, leading) {
            (None, _) => (now, Step::Look),
            // No version protects the creation of an object, so it must follow closely on a look.
            (Some(Seen { lease: None, .. }), _) if self.looked + self.timing.renew < now => (now, Step::Look),
            (Some(Seen { lease: Some(_), .. }), Some(term)) => (self.renewed + self.timing.renew, Step::Hold { term }),
            // Deleted behind our back: write it anew before somebody takes us for gone.
            (Some(_), Some(term)) => (now, Step::Hold { term }),
            (Some(seen), None) if seen.free_at <= now => (now, Step::Hold { term: self.next_term() }),
            // The bell tells of every renewal; looking without it is for the day the watch is broken.
            (Some(seen), None) => (seen.free_at.min(self.looked + self.timing.renew * 2), Step::Look),
        };
        (at.max(self.pause_until), step)
    }

    /// One more than ever seen. A lease that is not there, because it is the first or because somebody deleted it together
    /// with the memory of all terms before, begins with the second it is: terms pass slower than seconds.
    fn next_term(&self) -> u64 {
        let counted = self.highest + 1;
        match &self.seen {
            Some(Seen { lease: Some(_), .. }) => counted,
            _ => u64::try_from((self.clock)().as_second() - FIRST_SECOND).map_or(counted, |second| counted.max(second)),
        }
    }

    async fn take(&mut self, step: Step) -> Result<(), Trouble> {
        let sent = Instant::now();
        match step {
            Step::Look => {
                let lease = self.in_time(self.leases.get_opt(LEASE_NAME)).await?;
                self.observe(lease);
            }
            Step::Hold { term } => {
                let lease = self.in_time(self.hold(term)).await?;
                self.observe(Some(lease));
                self.lead(term, sent);
            }
        }
        Ok(())
    }

    async fn hold(&self, term: u64) -> kube::Result<Lease> {
        let base = self.seen.as_ref().and_then(|seen| seen.lease.as_ref());
        let lease = record::held(base, &self.identity, term, self.timing.lease, (self.clock)());
        match base {
            Some(_) => self.patch(&lease).await,
            None => self.leases.create(&PostParams::default(), &lease).await,
        }
    }

    async fn patch(&self, lease: &Lease) -> kube::Result<Lease> {
        let patch = Patch::Merge(record::patch(lease));
        self.leases.patch(LEASE_NAME, &PatchParams::default(), &patch).await
    }

    async fn in_time<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
        let patience = self.timing.patience();
        match timeout(patience, call).await {
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(Trouble::Conflict),
            Ok(answer) => answer.map_err(Trouble::Api),
            Err(_) => Err(Trouble::Silence(patience)),
        }
    }

    /// Looks again at what may have changed, and lets some time pass in any case.
    async fn recover(&mut self, trouble: Trouble) {
        match &trouble {
            Trouble::Conflict => debug!("the lease has changed"),
            error => warn!(%error, "no access to the lease {LEASE_NAME}; may the allocator get, create and patch it?"),
        }
        // Who is met with silence better saves the time that is left for another renewal.
        let looked = !matches!(trouble, Trouble::Silence(_)) && self.take(Step::Look).await.is_ok();
        let leading = self.leadership.borrow().term_at(Instant::now()).is_some();
        // A conflict is over once the lease was looked at; a refusal will be the same in a moment.
        let over = looked && matches!(trouble, Trouble::Conflict);
        let pause = if leading || over { self.timing.renew / 4 } else { self.timing.renew / 2 };
        self.pause_until = Instant::now() + pause;
    }

    /// Takes note of the lease as the API server has it now.
    fn observe(&mut self, lease: Option<Lease>) {
        let now = Instant::now();
        self.unseen.take();
        let free_at = self.free_at(lease.as_ref(), now);
        if let Some(lease) = &lease {
            self.highest = self.highest.max(record::term(lease));
            if record::holder(lease) != Some(&self.identity) {
                self.publish(Leadership::Standby);
            }
        }
        self.looked = now;
        self.seen = Some(Seen { lease, free_at });
    }

    /// A missing lease that was written in between has a holder, even if it is missing again.
    fn hear(&mut self, written: bool) {
        if let (true, Some(Seen { lease: None, free_at })) = (written, &mut self.seen) {
            *free_at = Instant::now() + self.timing.lease;
        }
    }

    /// From when on this process may take the lease, when it sees it like this now.
    fn free_at(&self, lease: Option<&Lease>, now: Instant) -> Instant {
        match (&self.seen, lease) {
            (Some(Seen { lease: Some(before), free_at }), Some(lease)) if before.spec == lease.spec => *free_at,
            (_, Some(lease)) => now + self.claim(lease),
            (Some(Seen { lease: None, free_at }), None) if now < self.looked + self.timing.renew * 3 => *free_at,
            // Who has not looked for a while may have missed that it was there in between.
            (Some(Seen { lease: None, .. }), None) => now + self.timing.lease,
            // Deleting the lease does not stop its holder.
            (Some(Seen { lease: Some(before), .. }), None) => now + self.claim(before),
            // Nobody has led here yet, as far as anybody can tell.
            (None, None) => now,
        }
    }

    /// How long somebody else may go on writing after this lease was renewed.
    fn claim(&self, lease: &Lease) -> Duration {
        match record::holder(lease) {
            Some(holder) if holder != self.identity => record::duration(lease).unwrap_or(self.timing.lease),
            _ => Duration::ZERO,
        }
    }

    /// Begins or prolongs a leadership whose lease was written by a request of this time.
    fn lead(&mut self, term: u64, sent: Instant) {
        let current = self.leadership.borrow().term_at(Instant::now());
        self.renewed = sent;
        // An answer that comes after the end does not revive a term: the next one begins with a number of its own.
        if current == Some(term) || term > self.led {
            self.led = term;
            self.publish(Leadership::Leading { term, until: sent + self.timing.trust() });
        }
    }

    fn publish(&self, leadership: Leadership) {
        self.leadership.send_if_modified(|current| change(current, leadership));
    }

    /// Empties the lease if it is ours, also when our last renewal comes in between.
    async fn release(&self) -> Result<(), Trouble> {
        let mut result = Ok(());
        let is_ours = |lease: &Lease| record::holder(lease) == Some(&self.identity);
        // As last seen, it need not be read first: there is little time, and a conflict tells if it has changed.
        let mut known = self.seen.as_ref().and_then(|seen| seen.lease.clone()).filter(is_ours);
        for _ in 0..3 {
            let lease = match known.take() {
                Some(lease) => Some(lease),
                None => {
                    let look = until_answered("the lease", || self.leases.get_opt(LEASE_NAME));
                    self.in_time(look).await?
                }
            };
            let Some(lease) = lease.filter(is_ours) else { return Ok(()) };
            let free = record::released(&lease, (self.clock)());
            let patched = until_answered("the lease", || self.patch(&free));
            result = self.in_time(patched).await.map(drop);
            if !matches!(result, Err(Trouble::Conflict)) {
                break;
            }
        }
        result
    }

    fn version(&self) -> Option<String> {
        self.seen.as_ref().and_then(|seen| seen.lease.as_ref()).and_then(ResourceExt::resource_version)
    }
}

/// Ends a leadership that was not renewed in time, whatever its candidate is waiting for meanwhile.
async fn fuse(leadership: watch::Sender<Leadership>) {
    let mut news = leadership.subscribe();
    loop {
        let current = *news.borrow_and_update();
        let changed = match current {
            Leadership::Standby => news.changed().await,
            Leadership::Leading { until, .. } => tokio::select! {
                changed = news.changed() => changed,
                () = sleep_until(until) => {
                    leadership.send_if_modified(|now| *now == current && change(now, Leadership::Standby));
                    Ok(())
                }
            },
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Writes the news; true when it is any.
fn change(current: &mut Leadership, to: Leadership) -> bool {
    match (*current, to) {
        (Leadership::Standby, Leadership::Leading { term, .. }) => info!(term, "leading"),
        (Leadership::Leading { term, .. }, Leadership::Standby) => info!(term, "no longer leading"),
        _ => {}
    }
    std::mem::replace(current, to) != to
}

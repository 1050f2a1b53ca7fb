//! Doing steps, many with one call, each with its own outcome.

use std::io;
use std::net::IpAddr;

use purelb_core::links::HeldAddr;
use purelb_core::moment::Moment;
use purelb_core::plan::Step;
use rustix::io::Errno;

use super::numbers::RTM_NEWADDR;
use super::socket::{Asking, Refusal};
use super::{read, write};

/// Why a step was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum StepError {
    /// The kernel said no.
    #[error("the kernel refused to {what}: {why}")]
    Refused {
        /// What it should have done.
        what: String,
        /// The error, and the kernel's own words where it has some.
        why: String,
    },
    /// An IPv6 address can have one prefix length only, and it has another.
    #[error("{addr} is there with prefix length {has} and must be taken off before it can have {wanted}")]
    OtherPrefix {
        /// The address.
        addr: IpAddr,
        /// The prefix length it has.
        has: u8,
        /// The one it should have.
        wanted: u8,
    },
    /// There is no way to make a virtual interface.
    #[error("cannot make interface {name}: the kernel has neither dummy nor ifb; load the module `dummy` on this node")]
    NoVirtualLink {
        /// What it should have been called.
        name: String,
    },
    /// The agent was stopped or starved between deciding and doing, and the address may not be held any more.
    #[error("the agent was held up until the time for which this node may hold the address was over")]
    TooLate,
    /// The kernel did not answer, so that nobody knows.
    #[error("no answer from the kernel: {0}")]
    NoAnswer(String),
}

/// What came of some steps.
pub(super) struct Outcome {
    /// Each step, done or not.
    pub(super) results: Vec<(Step, Result<(), StepError>)>,
    /// Interfaces that became an ifb, because the kernel has no dummy.
    pub(super) no_dummy: Vec<String>,
    /// Whether answers are missing, so that only a new look tells what happened.
    pub(super) doubt: bool,
}

impl Outcome {
    /// The steps that were done.
    pub(super) fn done(&self) -> impl Iterator<Item = &Step> {
        self.results.iter().filter(|(_, result)| result.is_ok()).map(|(step, _)| step)
    }

    /// Enters what came of steps that make good what these did late: addresses that were put for a shorter time, or taken
    /// off again.
    pub(super) fn correct(&mut self, again: Outcome) {
        self.doubt |= again.doubt;
        for (step, result) in again.results {
            let same = |(put, done): &&mut (Step, Result<_, _>)| done.is_ok() && is_of_one_address(put, &step);
            let Some((put, done)) = self.results.iter_mut().find(same) else { continue };
            // Whether or not it could be taken off, it is not to be held.
            *done = if matches!(step, Step::DropAddr { .. }) { Err(StepError::TooLate) } else { result };
            if let (Step::PutAddr { valid, preferred, .. }, Step::PutAddr { valid: left, preferred: less, .. }) =
                (put, step)
            {
                (*valid, *preferred) = (left, less);
            }
        }
    }
}

fn is_of_one_address(put: &Step, other: &Step) -> bool {
    match (put, other) {
        (
            Step::PutAddr { link, addr, prefix, .. },
            Step::PutAddr { link: on, addr: other, prefix: length, .. }
            | Step::DropAddr { link: on, addr: other, prefix: length, .. },
        ) => (link, addr, prefix) == (on, other, length),
        _ => false,
    }
}

/// So many steps go to the kernel with one call; what they make the kernel say fits the buffers many times over.
pub(super) const BATCH: usize = 64;

/// Does any number of steps in this order.
pub(in crate::agent) fn apply_all(asking: &mut Asking, steps: Vec<Step>) -> Vec<(Step, Result<(), StepError>)> {
    steps.chunks(BATCH).flat_map(|batch| apply(asking, batch.to_vec()).results).collect()
}

/// Does these steps in this order.
pub(super) fn apply(asking: &mut Asking, steps: Vec<Step>) -> Outcome {
    let mut outcome = Outcome { results: Vec::with_capacity(steps.len()), no_dummy: Vec::new(), doubt: false };
    match asking.ask(steps.iter().map(write::request).collect(), |_| {}) {
        Ok(answers) => {
            for (step, answer) in steps.into_iter().zip(answers) {
                let result = answer.or_else(|refusal| second_try(asking, &step, refusal, &mut outcome));
                outcome.results.push((step, result));
            }
        }
        Err(error) => {
            outcome.doubt = true;
            let lost = |step| (step, Err(StepError::NoAnswer(error.to_string())));
            outcome.results.extend(steps.into_iter().map(lost));
        }
    }
    outcome
}

/// What to make of a refusal: some mean that all is well, some that there is another way.
fn second_try(asking: &mut Asking, step: &Step, refusal: Refusal, outcome: &mut Outcome) -> Result<(), StepError> {
    match (step, refusal.errno) {
        (Step::MakeLink { .. }, Errno::EXIST) | (Step::DropLink { .. }, Errno::NODEV) => Ok(()),
        (Step::DropAddr { .. }, Errno::ADDRNOTAVAIL | Errno::NODEV | Errno::NXIO | Errno::NOENT) => Ok(()),
        (Step::MakeLink { name }, Errno::OPNOTSUPP) => {
            make_ifb(asking, step, name)?;
            outcome.no_dummy.push(name.clone());
            Ok(())
        }
        (Step::PutAddr { link, addr, prefix, .. }, Errno::EXIST) => put_again(asking, step, (*link, *addr, *prefix)),
        _ => Err(refused(step, refusal)),
    }
}

fn make_ifb(asking: &mut Asking, step: &Step, name: &str) -> Result<(), StepError> {
    match one(asking, write::make_link(name, "ifb"))? {
        Err(Refusal { errno: Errno::OPNOTSUPP, .. }) => Err(StepError::NoVirtualLink { name: name.to_owned() }),
        Err(refusal) if refusal.errno != Errno::EXIST => Err(refused(step, refusal)),
        _ => Ok(()),
    }
}

/// The IPv6 address is there. With the same prefix length it only needs the lifetime and the mark.
fn put_again(asking: &mut Asking, step: &Step, (link, addr, wanted): (u32, IpAddr, u8)) -> Result<(), StepError> {
    let there =
        look(asking, &[(link, addr)], Moment::default()).map_err(|error| StepError::NoAnswer(error.to_string()))?;
    match there.first() {
        Some((_, held)) if held.prefix != wanted => Err(StepError::OtherPrefix { addr, has: held.prefix, wanted }),
        _ => one(asking, write::replace(step))?.map_err(|refusal| refused(step, refusal)),
    }
}

/// How the kernel shows these IPv6 addresses on these interfaces; those that are not there are left out.
pub(super) fn look(asking: &mut Asking, addrs: &[(u32, IpAddr)], now: Moment) -> io::Result<Vec<(u32, HeldAddr)>> {
    let mut shown = Vec::new();
    let requests = addrs.iter().map(|(link, addr)| write::look(*link, *addr)).collect();
    asking.ask(requests, |message| {
        shown.extend((message.kind == RTM_NEWADDR).then(|| read::addr(message.body, now)).flatten());
    })?;
    Ok(shown)
}

fn one(asking: &mut Asking, request: super::message::Request) -> Result<Result<(), Refusal>, StepError> {
    let answers = asking.ask(vec![request], |_| {}).map_err(|error| StepError::NoAnswer(error.to_string()))?;
    answers.into_iter().next().ok_or_else(|| StepError::NoAnswer("nothing came".to_owned()))
}

fn refused(step: &Step, refusal: Refusal) -> StepError {
    let words = refusal.words.map(|words| format!(" ({words})")).unwrap_or_default();
    StepError::Refused { what: what(step), why: format!("{}{words}", refusal.errno) }
}

/// A step in words that stay the same from one try to the next.
pub(super) fn what(step: &Step) -> String {
    match step {
        Step::MakeLink { name } => format!("make interface {name}"),
        Step::SetUp { link } => format!("switch interface {link} on"),
        Step::DropLink { link } => format!("remove interface {link}"),
        Step::PutAddr { link, addr, prefix, .. } => format!("put {addr}/{prefix} on interface {link}"),
        Step::DropAddr { link, addr, prefix, .. } => format!("take {addr}/{prefix} off interface {link}"),
    }
}

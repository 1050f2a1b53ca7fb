//! The kernel of this node: what it shows, and doing steps to it.
//!
//! Netlink lives on a thread of its own, so that nothing the agent does can make it miss a notification, and the packets
//! that tell neighbours of an address live on another, so that they never hold netlink up. Both belong to the network
//! namespace of the thread that called [`start`].
//!
//! Whatever the kernel said about a step is in the news before the [`KernelNews::Applied`] that covers the step. Doubt is
//! never news: a list that changed while it was read is read again, and nothing is said until it is whole.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;

use purelb_core::links::LinkNews;
use purelb_core::moment::Moment;
use purelb_core::plan::{Step, Telling};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::clock::Clock;
use running::Running;
use socket::Listening;
use teller::Teller;

pub(super) use dump::everything_for_sure as everything;
pub(super) use socket::{Asking, list, question};
pub use steps::StepError;
pub use teller::TellError;

mod dump;
mod filter;
pub(super) mod message;
pub(super) mod numbers;
pub mod pretended;
mod read;
mod running;
mod socket;
pub(super) mod steps;
mod teller;
mod write;

/// What the agent wants of the kernel.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Order {
    /// Do these, in this order. One that fails stops no other.
    Apply {
        /// What to do.
        steps: Vec<Step>,
        /// When that was decided: lifetimes count from then, however late the steps are done.
        decided: Moment,
    },
    /// Tell the neighbours of an address; instead of what is still to be told of the same address.
    Tell(Telling),
    /// Stop telling of an address.
    StopTelling(IpAddr),
    /// Read everything anew.
    Dump,
}

/// What the kernel said or did.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum KernelNews {
    /// Something is so, as of now. The first of these is everything.
    Links(LinkNews),
    /// These steps were done, or not.
    Applied(Vec<(Step, Result<(), StepError>)>),
    /// The kernel has no dummy interfaces; this one is an ifb.
    NoDummy {
        /// Its name.
        name: String,
    },
    /// A thread has ended, by a panic or because nobody gives orders any more: nothing of it is to be relied on.
    Ended,
    /// One round of telling the neighbours ended.
    Told {
        /// Of this address.
        addr: IpAddr,
        /// Whether the packets left.
        result: Result<(), TellError>,
    },
}

/// Gives orders. Clones give them to the same kernel; with the last one its threads end.
#[derive(Clone, Debug)]
pub struct Orders(Arc<Doors>);

/// The order of the fields matters: the bell hangs up after the orders have ended.
#[derive(Debug)]
struct Doors {
    steps: mpsc::Sender<Order>,
    tellings: mpsc::Sender<Order>,
    bell: OwnedFd,
}

impl Orders {
    /// Gives an order, to be carried out after those before it. Never waits.
    pub fn give(&self, order: Order) {
        // Where a thread has ended, so have the news, and that is where the agent sees it.
        match order {
            Order::Tell(_) | Order::StopTelling(_) => drop(self.0.tellings.send(order)),
            Order::Apply { .. } | Order::Dump => {
                drop(self.0.steps.send(order));
                // A full pipe has woken the thread already.
                let _ = rustix::io::write(&self.0.bell, &[1]);
            }
        }
    }
}

/// A kernel at the agent's service.
#[derive(Debug)]
pub struct Kernel {
    /// What it says and does.
    pub news: UnboundedReceiver<KernelNews>,
    /// Where to give orders.
    pub orders: Orders,
}

/// Opens the sockets and starts the threads.
///
/// # Errors
/// When a netlink or packet socket cannot be opened: the agent needs NET_ADMIN and NET_RAW.
pub fn start(clock: Clock) -> io::Result<Kernel> {
    start_with_room(clock, socket::ROOM)
}

/// As [`start`], with room for so many bytes of notifications; what does not fit is made good by reading everything anew.
///
/// # Errors
/// As [`start`].
pub fn start_with_room(clock: Clock, room: usize) -> io::Result<Kernel> {
    let (news, heard) = unbounded_channel();
    let (steps, steps_out) = mpsc::channel();
    let (tellings, tellings_out) = mpsc::channel();
    let (hear_bell, bell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Listening begins before the first list is read, so that nothing can happen between the two.
    let listening = Listening::open(room)?;
    let running = Running::new(Asking::open()?, listening, steps_out, hear_bell, news.clone(), clock);
    let teller = Teller::open(tellings_out, news.clone(), clock)?;
    let ends = news;
    begin("kernel", ends.clone(), move || running.run())?;
    begin("packets", ends, move || teller.run())?;
    Ok(Kernel { news: heard, orders: Orders(Arc::new(Doors { steps, tellings, bell })) })
}

/// Starts a thread whose end is news, however it comes: one of two that lives on must not hide that the other is gone.
fn begin(name: &str, news: News, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let end = End(news);
    let work = move || {
        let _end = end;
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Tells of the end of the thread that has it.
struct End(News);

impl Drop for End {
    fn drop(&mut self) {
        // Nobody may be listening any more.
        let _ = self.0.send(KernelNews::Ended);
    }
}

/// Where the threads put the news.
type News = UnboundedSender<KernelNews>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_is_news_although_the_other_lives_on() {
        let (news, mut heard) = unbounded_channel();
        let _other = news.clone();
        begin("doomed", news, || panic!("a defect in netlink's thread")).unwrap();
        assert!(matches!(heard.blocking_recv(), Some(KernelNews::Ended)));
    }
}

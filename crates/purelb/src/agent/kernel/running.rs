//! The thread that owns netlink: listens, reads anew where in doubt, and does what it is ordered to.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use purelb_core::links::{DefaultRoute, LinkNews};
use purelb_core::moment::Moment;
use purelb_core::plan::{InTime, Step, Why, done_late, in_time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::message::Message;
use super::numbers::{
    RTM_DELADDR, RTM_DELLINK, RTM_DELNEXTHOP, RTM_DELROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEXTHOP, RTM_NEWROUTE,
};
use super::socket::{Asking, Heard, Listening};
use super::steps::Outcome;
use super::{KernelNews, News, Order, StepError, dump, read, steps};
use crate::agent::clock::Clock;

/// The pause before something is read again that changed while it was read, or that could not be read.
const AGAIN: Duration = Duration::from_millis(20);

/// How long to wait for the kernel's own word on new addresses.
const MOMENT: Duration = Duration::from_millis(2);

/// How often something is read again before other steps may go on.
const PATIENCE: usize = 100;

/// What has to be read anew.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    Nothing,
    Routes,
    Everything,
}

/// Everything the thread has.
pub(super) struct Running {
    asking: Asking,
    listening: Listening,
    orders: Receiver<Order>,
    bell: OwnedFd,
    news: News,
    clock: Clock,
    /// As told last.
    routes: Vec<DefaultRoute>,
    doubt: Doubt,
    /// The IPv6 addresses that the kernel has told of since the steps of now were given to it.
    told: BTreeSet<(u32, IpAddr)>,
}

impl Running {
    pub(super) fn new(
        asking: Asking,
        listening: Listening,
        orders: Receiver<Order>,
        bell: OwnedFd,
        news: News,
        clock: Clock,
    ) -> Self {
        let (routes, doubt, told) = (Vec::new(), Doubt::Everything, BTreeSet::new());
        Self { asking, listening, orders, bell, news, clock, routes, doubt, told }
    }

    /// Runs until nobody gives orders any more.
    pub(super) fn run(mut self) {
        loop {
            self.settle();
            match self.orders.try_recv() {
                Ok(Order::Apply { steps, decided }) => self.apply(steps, decided),
                Ok(_) => self.doubt = Doubt::Everything,
                Err(TryRecvError::Empty) => self.wait(),
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Waits for a notification, an order or the time to look again.
    fn wait(&mut self) {
        self.told.clear();
        let timeout = (self.doubt != Doubt::Nothing).then(|| Timespec::try_from(AGAIN).expect("a few milliseconds"));
        let mut fds = [self.listening.as_fd(), self.bell.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, timeout.as_ref());
        // The bell must be silent before the orders are looked at, or one given in between would be slept over.
        let mut rung = [0; 256];
        let _ = rustix::io::read(&self.bell, &mut rung);
    }

    /// Passes on all that the kernel has said, and reads anew what is in doubt.
    fn settle(&mut self) {
        if let Err(error) = self.listen() {
            tracing::warn!(%error, "cannot hear the kernel");
            self.doubt = Doubt::Everything;
        }
        let read = match self.doubt {
            Doubt::Nothing => Ok(()),
            Doubt::Routes => self.read_routes(),
            Doubt::Everything => self.read_everything(),
        };
        if let Err(error) = read {
            tracing::warn!(%error, "cannot read the kernel's state, trying again");
        }
    }

    /// What comes of steps is told only after all that the kernel said, so a list that changed while it was read is read
    /// until it is whole; within reason, because the other steps wait.
    fn settle_for_good(&mut self) {
        self.settle();
        for _ in 0..PATIENCE {
            if self.doubt != Doubt::Everything {
                return;
            }
            std::thread::sleep(AGAIN);
            self.settle();
        }
    }

    /// Until there is silence. Once something was lost, the rest is only emptied out: everything is read after it.
    fn listen(&mut self) -> io::Result<()> {
        loop {
            match self.listening.hear()? {
                Heard::Silence => return Ok(()),
                Heard::Overrun => self.lost(),
                Heard::Bytes(_) if self.doubt == Doubt::Everything => {}
                Heard::Bytes(length) => self.pass_on(length),
            }
        }
    }

    fn lost(&mut self) {
        if self.doubt != Doubt::Everything {
            tracing::info!("notifications of the kernel were lost, reading everything anew");
        }
        self.doubt = Doubt::Everything;
    }

    fn pass_on(&mut self, length: usize) {
        let now = self.clock.now();
        let mut doubt = self.doubt;
        for message in self.listening.messages(length) {
            let told = match message.kind {
                RTM_NEWLINK | RTM_DELLINK => link_news(&message),
                RTM_NEWADDR => read::addr(message.body, now).map(|(link, held)| LinkNews::Addr(link, held)),
                RTM_DELADDR => {
                    read::addr(message.body, now).map(|(link, held)| LinkNews::AddrGone(link, held.addr, held.prefix))
                }
                RTM_NEWROUTE | RTM_DELROUTE if !read::is_default_route(message.body) => None,
                RTM_NEWROUTE | RTM_DELROUTE | RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
                    doubt = doubt.max(Doubt::Routes);
                    None
                }
                _ => None,
            };
            if let Some(told) = told {
                match told {
                    LinkNews::Addr(link, held) if held.addr.is_ipv6() => drop(self.told.insert((link, held.addr))),
                    LinkNews::AddrGone(link, addr, _) if addr.is_ipv6() => drop(self.told.remove(&(link, addr))),
                    _ => {}
                }
                doubt = doubt.max(if self.may_end_a_route(&told) { Doubt::Routes } else { Doubt::Nothing });
                let _ = self.news.send(KernelNews::Links(told));
            }
        }
        self.doubt = doubt;
    }

    /// The kernel removes IPv4 routes without a word when their interface or their subnet's address goes.
    fn may_end_a_route(&self, told: &LinkNews) -> bool {
        let leads_there = |index: u32| self.routes.iter().any(|route| route.link == index);
        match told {
            LinkNews::Link(index, _) | LinkNews::LinkGone(index) | LinkNews::AddrGone(index, ..) => leads_there(*index),
            _ => false,
        }
    }

    fn read_routes(&mut self) -> io::Result<()> {
        let Some(routes) = dump::default_routes(&mut self.asking)? else { return Ok(()) };
        self.doubt = Doubt::Nothing;
        if routes != self.routes {
            self.routes.clone_from(&routes);
            self.tell(LinkNews::DefaultRoutes(routes));
        }
        Ok(())
    }

    fn read_everything(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let Some(links) = dump::everything(&mut self.asking, now)? else { return Ok(()) };
        self.doubt = Doubt::Nothing;
        self.routes.clone_from(&links.default_routes);
        self.tell(LinkNews::Everything(links));
        Ok(())
    }

    /// In batches, and after each first what the kernel said to it and then what came of it.
    fn apply(&mut self, mut steps: Vec<Step>, decided: Moment) {
        while !steps.is_empty() {
            let later = steps.split_off(steps.len().min(steps::BATCH));
            self.told.clear();
            let outcome = self.apply_in_time(std::mem::replace(&mut steps, later), decided);
            if outcome.doubt {
                self.doubt = Doubt::Everything;
            }
            for name in outcome.no_dummy {
                let _ = self.news.send(KernelNews::NoDummy { name });
            }
            self.settle_for_good();
            self.show_quiet_ones(&outcome.results);
            let _ = self.news.send(KernelNews::Applied(outcome.results));
        }
    }

    /// Does steps for no longer than they were decided for. The clock is looked at before and after: a kernel that is busy
    /// with something else, such as the end of thousands of interfaces, takes a request up seconds after it was sent, and
    /// counts the lifetime from then.
    fn apply_in_time(&mut self, steps: Vec<Step>, decided: Moment) -> Outcome {
        let InTime { steps, over, mut counted_from } = in_time(steps, decided, self.clock.now());
        let mut outcome = steps::apply(&mut self.asking, steps);
        outcome.results.extend(over.into_iter().map(|step| (step, Err(StepError::TooLate))));
        while let Some(late) = done_late(outcome.done(), counted_from, self.clock.now()) {
            counted_from = late.counted_from;
            self.shorten(late, &mut outcome);
        }
        outcome
    }

    /// Gives the addresses that the kernel holds by steps done late the time that is left, or takes them off.
    fn shorten(&mut self, late: InTime, outcome: &mut Outcome) {
        let off: Vec<_> = late.over.iter().filter_map(|step| step.undo(Why::Fenced)).collect();
        tracing::warn!(shortened = late.steps.len(), withdrawn = off.len(), "the kernel did what it was told too late");
        // What must go goes first: this may have to wait for the kernel too.
        let again = steps::apply(&mut self.asking, off.into_iter().chain(late.steps).collect());
        outcome.correct(again);
    }

    /// The kernel tells of a new IPv6 address only when it knows that nobody else has it, which is later than it says
    /// "done", even where it does not look for others at all. There its word comes within a moment; where it does not
    /// come, the kernel is asked.
    fn show_quiet_ones(&mut self, results: &[(Step, Result<(), StepError>)]) {
        let mut quiet: Vec<(u32, IpAddr)> = results
            .iter()
            .filter_map(|done| match done {
                (Step::PutAddr { link, addr, refresh: false, .. }, Ok(())) if addr.is_ipv6() => Some((*link, *addr)),
                _ => None,
            })
            .collect();
        let end = Instant::now() + MOMENT;
        loop {
            quiet.retain(|shown| !self.told.contains(shown));
            let left = end.saturating_duration_since(Instant::now());
            if quiet.is_empty() || left.is_zero() || self.doubt == Doubt::Everything {
                break;
            }
            let timeout = Timespec::try_from(left).expect("a few milliseconds");
            let _ = poll(&mut [PollFd::new(&self.listening, PollFlags::IN)], Some(&timeout));
            self.settle();
        }
        if quiet.is_empty() {
            return;
        }
        match steps::look(&mut self.asking, &quiet, self.clock.now()) {
            Ok(shown) => shown.into_iter().for_each(|(link, held)| self.tell(LinkNews::Addr(link, held))),
            Err(_) => self.doubt = Doubt::Everything,
        }
    }

    fn tell(&self, news: LinkNews) {
        // Where nobody listens any more, nobody gives orders either, and that ends the thread.
        let _ = self.news.send(KernelNews::Links(news));
    }
}

fn link_news(message: &Message<'_>) -> Option<LinkNews> {
    let (index, link) = read::link(message.body)?;
    Some(if message.kind == RTM_NEWLINK { LinkNews::Link(index, link) } else { LinkNews::LinkGone(index) })
}

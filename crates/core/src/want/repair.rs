//! What is on its way to the kernel, what it refused, and what somebody keeps undoing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use crate::moment::Moment;
use crate::plan::Step;

/// The pause before the second try, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// What stayed right for this long begins anew.
const CALM: Duration = Duration::from_secs(60);

/// Nothing that is told changes more often than this.
const REFRESH_WINDOW: Duration = Duration::from_secs(1);
const MOST_REFRESHES: u32 = 10;

/// What was asked of the kernel and how it went.
#[derive(Default)]
pub(super) struct Repairs {
    sent: BTreeMap<IpAddr, Sent>,
    dropping: Vec<(u32, IpAddr, u8)>,
    /// Addresses on their way to a NIC.
    to_nics: Vec<IpAddr>,
    links_in_flight: usize,
    /// How often an address was refreshed since a moment.
    refreshes: BTreeMap<IpAddr, (Moment, u32)>,
    troubles: BTreeMap<IpAddr, Trouble>,
    link_trouble: Option<Trouble>,
    /// Somebody deletes the virtual interface.
    link_undone: Option<Trouble>,
}

/// What was done to an address; an entry with nothing in it is removed.
#[derive(Default)]
struct Sent {
    /// How many of its steps are on their way.
    in_flight: u32,
    /// This process put it somewhere.
    put: bool,
}

/// Something that does not stay as it should.
struct Trouble {
    tries: u32,
    last: Moment,
    /// Not to be tried again before.
    until: Moment,
    /// What the kernel said, unless somebody simply undid it.
    problem: Option<String>,
    /// It was taking the address off that failed.
    on_drop: bool,
}

impl Trouble {
    fn new(now: Moment) -> Self {
        Self { tries: 0, last: now, until: now, problem: None, on_drop: false }
    }

    /// One more try; the first is free of charge.
    fn again(&mut self, now: Moment, at_once: bool) {
        if now.since(self.last) > CALM {
            self.tries = 0;
        }
        let doublings = if at_once { self.tries.checked_sub(1) } else { Some(self.tries) };
        let pause = doublings.map_or(Duration::ZERO, |doublings| FIRST_PAUSE * 2_u32.pow(doublings.min(10)));
        (self.tries, self.last, self.until) = (self.tries + 1, now, now + pause.min(LONGEST_PAUSE));
    }
}

impl Repairs {
    /// Enters a step that is given to the kernel.
    pub fn sent(&mut self, step: &Step) {
        match step {
            Step::PutAddr { addr, refresh, .. } => {
                let sent = self.sent.entry(*addr).or_default();
                sent.in_flight += 1;
                sent.put |= !refresh;
            }
            Step::DropAddr { link, addr, prefix, .. } => {
                self.sent.entry(*addr).or_default().in_flight += 1;
                self.dropping.push((*link, *addr, *prefix));
            }
            Step::MakeLink { .. } | Step::SetUp { .. } | Step::DropLink { .. } => self.links_in_flight += 1,
        }
    }

    /// An address that is given to the kernel goes on a NIC.
    pub fn sent_to_nic(&mut self, addr: IpAddr) {
        self.to_nics.push(addr);
    }

    /// Whether an address may come to a NIC by what is on its way.
    pub fn puts_on_nics(&self) -> bool {
        !self.to_nics.is_empty()
    }

    /// Takes a step out that the kernel has answered.
    pub fn answered(&mut self, step: &Step) {
        match step {
            Step::PutAddr { addr, .. } => {
                self.note(*addr, |sent| sent.in_flight = sent.in_flight.saturating_sub(1));
                if let Some(at) = self.to_nics.iter().position(|there| there == addr) {
                    self.to_nics.swap_remove(at);
                }
            }
            Step::DropAddr { link, addr, prefix, .. } => {
                self.note(*addr, |sent| sent.in_flight = sent.in_flight.saturating_sub(1));
                if let Some(at) = self.dropping.iter().position(|there| *there == (*link, *addr, *prefix)) {
                    self.dropping.swap_remove(at);
                }
            }
            Step::MakeLink { .. } | Step::SetUp { .. } | Step::DropLink { .. } => {
                self.links_in_flight = self.links_in_flight.saturating_sub(1);
            }
        }
    }

    /// Changes what is known of an address, if anything is.
    fn note(&mut self, addr: IpAddr, change: impl FnOnce(&mut Sent)) {
        if let Entry::Occupied(mut sent) = self.sent.entry(addr) {
            change(sent.get_mut());
            if sent.get().in_flight == 0 && !sent.get().put {
                sent.remove();
            }
        }
    }

    pub fn is_in_flight(&self, addr: IpAddr) -> bool {
        self.sent.get(&addr).is_some_and(|sent| sent.in_flight > 0)
    }

    /// Whether we are about to take an address off, or one whose going takes it along.
    pub fn is_dropping(&self, link: u32, addr: IpAddr) -> bool {
        self.dropping.iter().any(|(on, dropped, prefix)| {
            *on == link && IpNet::new(*dropped, *prefix).is_ok_and(|net| net.contains(&addr))
        })
    }

    /// Whether this process put an address where it is.
    pub fn has_put(&self, addr: IpAddr) -> bool {
        self.sent.get(&addr).is_some_and(|sent| sent.put)
    }

    /// The address is nowhere any more.
    pub fn forget_put(&mut self, addr: IpAddr) {
        self.refreshes.remove(&addr);
        self.note(addr, |sent| sent.put = false);
    }

    /// Until when an address is to be left alone.
    pub fn paused(&self, addr: IpAddr, wanted: impl Fn() -> bool, now: Moment) -> Option<Moment> {
        let trouble = self.troubles.get(&addr)?;
        (trouble.until > now && (trouble.on_drop || wanted())).then_some(trouble.until)
    }

    /// Whether interfaces are to be left alone for now.
    pub fn links_paused(&self, now: Moment) -> bool {
        self.links_in_flight > 0 || self.links_until().is_some_and(|until| until > now)
    }

    /// When interfaces may be tried again, if the kernel refused them or somebody deletes them. While an answer is on
    /// its way there is nothing to wake up for.
    pub fn links_until(&self) -> Option<Moment> {
        let troubles = [&self.link_trouble, &self.link_undone].into_iter().flatten();
        troubles.map(|trouble| trouble.until).max().filter(|_| self.links_in_flight == 0)
    }

    /// Somebody deleted the virtual interface. Says whether it is time to complain: when it happens again.
    pub fn link_undone(&mut self, now: Moment) -> bool {
        let trouble = self.link_undone.get_or_insert_with(|| Trouble::new(now));
        trouble.again(now, true);
        trouble.tries == 2
    }

    /// Somebody took an address off. Says whether it is time to complain: when it happens again.
    pub fn undone(&mut self, addr: IpAddr, now: Moment) -> bool {
        let trouble = self.troubles.entry(addr).or_insert_with(|| Trouble::new(now));
        trouble.again(now, true);
        trouble.tries == 2
    }

    /// The kernel refused. Says whether the problem is a new one.
    pub fn refused(&mut self, addr: IpAddr, problem: String, on_drop: bool, now: Moment) -> bool {
        let trouble = self.troubles.entry(addr).or_insert_with(|| Trouble::new(now));
        trouble.again(now, false);
        trouble.on_drop = on_drop;
        let new = trouble.problem.as_ref() != Some(&problem);
        trouble.problem = Some(problem);
        new
    }

    /// The kernel refused a step for an interface. Says whether the problem is a new one.
    pub fn link_refused(&mut self, problem: String, now: Moment) -> bool {
        let trouble = self.link_trouble.get_or_insert_with(|| Trouble::new(now));
        trouble.again(now, false);
        let new = trouble.problem.as_ref() != Some(&problem);
        trouble.problem = Some(problem);
        new
    }

    /// Interfaces are as they should be, or a step for one went well. Says whether the kernel had refused something.
    pub fn link_settled(&mut self) -> bool {
        self.link_trouble.take().is_some()
    }

    /// What the kernel last said of an interface that it refuses.
    pub fn link_problem(&self) -> Option<&str> {
        self.link_trouble.as_ref()?.problem.as_deref()
    }

    /// An address is refreshed once more. Says whether that is too often: the kernel does not keep what it is told.
    pub fn refreshed(&mut self, addr: IpAddr, now: Moment) -> bool {
        let (since, count) = self.refreshes.entry(addr).or_insert((now, 0));
        if now.since(*since) > REFRESH_WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        *count > MOST_REFRESHES
    }

    /// The address is as it should be: whatever the kernel refused is over.
    pub fn settled(&mut self, addr: IpAddr, now: Moment) {
        if self.troubles.get(&addr).is_some_and(|trouble| trouble.problem.is_some() && trouble.until <= now) {
            self.troubles.remove(&addr);
        }
    }

    /// What the kernel last said of an address that it refuses.
    pub fn problem(&self, addr: IpAddr) -> Option<&str> {
        self.troubles.get(&addr)?.problem.as_deref()
    }
}

//! What to do now, and how it went.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::links::{HeldAddr, Link, Links};
use crate::moment::Moment;
use crate::plan::{Ownership, Planner, Step, Telling, WantedAddr, depart, plan};
use crate::reason::Reason;
use crate::want::{Change, Leaving, State, Taken};

impl State {
    /// Has an address compared with the kernel; what must go comes first, what goes on a NIC second.
    pub(super) fn mark_unplanned(&mut self, addr: IpAddr) {
        self.mark_unplanned_for(addr, self.turn(addr, self.desired.addrs.get(&addr)));
    }

    /// When an address with this wish has its turn.
    pub(super) fn turn(&self, addr: IpAddr, wanted: Option<&WantedAddr>) -> usize {
        match wanted {
            // Others wait for what is on the NICs of a node that leaves.
            None if self.leaving.is_some() && !self.sight.on_nics.contains(&addr) => 2,
            None => 0,
            Some(wanted) if Some(&wanted.link) != self.desired.virtual_link.as_ref() => 1,
            Some(_) => 2,
        }
    }

    /// Has an address whose turn is known compared with the kernel.
    pub(super) fn mark_unplanned_for(&mut self, addr: IpAddr, turn: usize) {
        for (other, set) in self.work.unplanned.iter_mut().enumerate() {
            if other == turn {
                set.insert(addr);
            } else {
                set.remove(&addr);
            }
        }
    }

    /// What to do now: the difference between the wish and the kernel, in about `most` steps at once.
    ///
    /// Nothing is told twice until [`State::applied`] was called for it. Empty while not enough is known.
    pub fn steps(&mut self, now: Moment, most: usize) -> Vec<Step> {
        if !self.is_ready() {
            return self.steps_to_leave(now);
        }
        let Planned { addrs, paused, waiting, links, links_right, steps } = self.plan_next(now, most);
        self.work.links &= !links;
        if links_right {
            self.link_settled();
        }
        self.forget_planned(&addrs);
        for addr in addrs {
            self.remember(addr);
            self.waits_no_longer(addr);
        }
        self.work.alarms.extend(paused);
        waiting.into_iter().for_each(|addr| self.wait(addr, now));
        let marks = self.sight.links.as_ref().is_some_and(Links::keeps_protocol);
        for step in &steps {
            if let Step::PutAddr { link, addr, prefix, .. } = step
                && !marks
            {
                self.sight.ours.insert((*link, *addr, *prefix));
            }
            self.repairs.sent(step);
            if let Step::PutAddr { link, addr, .. } = step
                && self.sight.link(*link).is_none_or(|on| !on.is_virtual())
            {
                self.repairs.sent_to_nic(*addr);
            }
            if let Step::PutAddr { link, addr, refresh: true, .. } = step
                && self.repairs.refreshed(*addr, now)
            {
                self.refused(*addr, *link, "the kernel does not keep what it is told".to_owned(), false, now);
            }
        }
        steps
    }

    /// What an agent that is told to stop does although it never came to know enough: [`crate::plan::adopt`] is taken
    /// back, so that nothing stays for ever.
    fn steps_to_leave(&mut self, now: Moment) -> Vec<Step> {
        let (Some(how), Some(links)) = (self.leaving, &self.sight.links) else { return Vec::new() };
        let stay = if let Leaving::Stay(span) = how { Some(span) } else { None };
        let adopted = |link, held: &HeldAddr| self.sight.ours.contains(&(link, held.addr, held.prefix));
        let mut steps = depart(links, adopted, stay, now);
        steps.retain(|step| match step {
            Step::PutAddr { addr, .. } | Step::DropAddr { addr, .. } => {
                !self.repairs.is_in_flight(*addr) && self.repairs.paused(*addr, || true, now).is_none()
            }
            _ => true,
        });
        if how == Leaving::Go && !self.repairs.links_paused(now) {
            let own = Ownership { is_ours: &|_, _| false, why: &|addr| self.why(addr), waits: &|_, _| false };
            let mut planner = Planner::new(&self.desired, links, now, own);
            planner.links();
            steps.extend(planner.finish());
        }
        steps.iter().for_each(|step| self.repairs.sent(step));
        steps
    }

    fn forget_planned(&mut self, planned: &[IpAddr]) {
        let unplanned = &mut self.work.unplanned;
        if planned.len() == unplanned.iter().map(BTreeSet::len).sum::<usize>() {
            return unplanned.iter_mut().for_each(BTreeSet::clear);
        }
        for set in unplanned {
            planned.iter().for_each(|addr| {
                set.remove(addr);
            });
        }
    }

    /// The whole difference between the wish and the kernel, for whoever asks; nothing is remembered of it.
    pub fn pending(&self, now: Moment) -> Vec<Step> {
        let Some(links) = self.sight.links.as_ref().filter(|_| self.is_ready()) else { return Vec::new() };
        let own = Ownership {
            is_ours: &|link, held| self.is_ours(link, held),
            why: &|addr| self.why(addr),
            waits: &|link, held| self.waits(link, held, now),
        };
        plan(&self.desired, links, now, own)
    }

    fn plan_next(&self, now: Moment, most: usize) -> Planned {
        let mut next = Planned::default();
        let Some(links) = &self.sight.links else { return next };
        let own = Ownership {
            is_ours: &|link, held| self.is_ours(link, held),
            why: &|addr| self.why(addr),
            waits: &|link, held| self.waits(link, held, now),
        };
        let mut planner = Planner::new(&self.desired, links, now, own);
        next.links = self.work.links && !self.repairs.links_paused(now);
        let whole = if next.links { self.leaving_links(links, now) } else { BTreeSet::new() };
        if next.links {
            planner.links();
            planner.drop_links(&whole);
            next.links_right = planner.len() == 0;
        }
        for addr in self.work.unplanned.iter().flatten().filter(|addr| !self.repairs.is_in_flight(**addr)) {
            if planner.len() >= most {
                break;
            }
            next.addrs.push(*addr);
            let shown = self.sight.shown(*addr);
            if !shown.is_empty() && shown.iter().all(|(link, _)| whole.contains(link)) {
                continue;
            }
            match self.repairs.paused(*addr, || self.desired.addrs.contains_key(addr), now) {
                Some(until) => next.paused.push((until, *addr)),
                None => planner.addr(*addr, self.sight.shown(*addr)),
            }
        }
        next.waiting = planner.waiting().to_vec();
        next.steps = planner.finish();
        next
    }

    /// The virtual interfaces that go with all that is on them, because the agent leaves: nothing there but what is ours
    /// to take off now. One that the kernel would not let go is emptied first.
    fn leaving_links(&self, links: &Links, now: Moment) -> BTreeSet<u32> {
        if self.leaving != Some(Leaving::Go) || self.repairs.link_problem().is_some() {
            return BTreeSet::new();
        }
        let former = links.by_index.iter().filter(|(_, link)| self.desired.former_links.contains(&*link.name));
        let goes = |index: u32, link: &Link| {
            let bare = |held: &HeldAddr| self.is_ours(index, held) && !self.waits(index, held, now);
            let idle =
                |held: &HeldAddr| !self.desired.addrs.contains_key(&held.addr) && !self.repairs.is_in_flight(held.addr);
            link.is_virtual() && link.addrs.iter().all(|held| held.is_kernels() || bare(held) && idle(held))
        };
        former.filter(|(index, link)| goes(**index, link)).map(|(index, _)| *index).collect()
    }

    /// How a step went. The kernel's news about it are expected before.
    pub fn applied(&mut self, step: &Step, result: Result<(), String>, now: Moment) {
        self.repairs.answered(step);
        match (step, result) {
            (Step::PutAddr { .. } | Step::DropAddr { .. }, Ok(())) => {}
            (Step::PutAddr { link, addr, prefix, .. }, Err(problem)) => {
                let shown = self.sight.shown(*addr).iter().any(|(on, held)| on == link && held.is(*addr, *prefix));
                if !shown {
                    self.sight.ours.remove(&(*link, *addr, *prefix));
                }
                self.refused(*addr, *link, problem, false, now);
            }
            (Step::DropAddr { link, addr, .. }, Err(problem)) => self.refused(*addr, *link, problem, true, now),
            (Step::SetUp { link }, Ok(())) if self.sight.link(*link).is_some_and(|link| !link.up) => {
                let (name, problem) = (self.link_name(*link), "it does not stay switched on".to_owned());
                self.link_refused(name, problem, now);
            }
            (Step::MakeLink { .. } | Step::SetUp { .. } | Step::DropLink { .. }, Ok(())) => self.link_settled(),
            (Step::MakeLink { name }, Err(problem)) => self.link_refused(name.clone(), problem, now),
            (Step::SetUp { link } | Step::DropLink { link }, Err(_)) if self.sight.link(*link).is_none() => {
                self.work.links = true;
            }
            (Step::SetUp { link } | Step::DropLink { link }, Err(problem)) => {
                // What was to go with it has to go by itself.
                let left = self.sight.link(*link).into_iter().flat_map(|link| &link.addrs).map(|held| held.addr);
                let left: Vec<_> = left.collect();
                left.into_iter().for_each(|addr| self.mark_unplanned(addr));
                let name = self.link_name(*link);
                self.link_refused(name, problem, now);
            }
        }
    }

    fn refused(&mut self, addr: IpAddr, link: u32, problem: String, on_drop: bool, now: Moment) {
        self.mark_unplanned(addr);
        // An interface that went meanwhile says nothing against the address.
        if self.sight.link(link).is_none() {
            return;
        }
        if self.repairs.refused(addr, problem.clone(), on_drop, now) {
            self.changes.push(Change::Failed { addr, link: self.link_name(link).into(), problem });
        }
    }

    fn link_refused(&mut self, link: String, problem: String, now: Moment) {
        self.work.links = true;
        if self.repairs.link_refused(problem.clone(), now) {
            self.changes.push(Change::LinkFailed { link, problem });
        }
    }

    fn link_settled(&mut self) {
        if self.repairs.link_settled() {
            self.changes.push(Change::LinkRestored);
        }
    }

    pub(super) fn link_name(&self, index: u32) -> String {
        self.sight.link(index).map_or_else(|| format!("interface {index}"), |link| link.name.clone())
    }

    /// What happened since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        let unsettled = std::mem::take(&mut self.work.unsettled);
        for addr in unsettled {
            if self.repairs.is_in_flight(addr) {
                self.work.unsettled.insert(addr);
            } else {
                self.settle(addr);
            }
        }
        std::mem::take(&mut self.changes)
    }

    /// Compares an address with how it was told last.
    fn settle(&mut self, addr: IpAddr) {
        let wanted = self.desired.addrs.get(&addr).cloned();
        let there = wanted.as_ref().and_then(|wanted| self.is_there(addr, wanted));
        let told = self.taken.get(&addr);
        let same =
            told.map(|taken| &taken.link) == wanted.as_ref().filter(|_| there.is_some()).map(|wanted| &wanted.link);
        if let Some(told) = told.filter(|_| !same) {
            // What this node no longer wants is lost only when it is off the interface.
            let name = told.link.clone();
            let still = |(link, held): &&(u32, _)| self.link_name(*link) == *name && self.is_ours(*link, held);
            if wanted.is_none() && self.sight.shown(addr).iter().any(|shown| still(&shown)) {
                self.work.unsettled.insert(addr);
                return;
            }
            let why = there.is_some().then_some(crate::plan::Why::Changed);
            let why = if wanted.is_none() { Some(self.why(addr)) } else { why };
            let local = told.local;
            self.taken.remove(&addr);
            self.changes.push(Change::Lost { addr, link: name, local, why });
        }
        if let (Some(link), Some(wanted), false) = (there, wanted, same) {
            self.take(addr, link, &wanted);
        }
        if there.is_some() {
            self.repairs.settled(addr, self.work.looked);
        } else if self.sight.shown(addr).is_empty() {
            self.repairs.forget_put(addr);
        }
    }

    fn take(&mut self, addr: IpAddr, index: u32, wanted: &WantedAddr) {
        let local = Some(&wanted.link) != self.desired.virtual_link.as_ref();
        let adopted = !self.repairs.has_put(addr);
        let tell = wanted.tell.clone().filter(|_| !adopted).map(|how| Telling { link: index, addr, how });
        self.taken.insert(addr, Taken { link: wanted.link.clone(), local });
        self.changes.push(Change::Taken { addr, link: wanted.link.clone(), local, adopted, tell });
    }

    /// The interface on which an address is, usable and as wanted.
    fn is_there(&self, addr: IpAddr, wanted: &WantedAddr) -> Option<u32> {
        let usable = self.sight.shown(addr).iter().find(|(link, held)| {
            held.prefix == wanted.prefix
                && !held.tentative
                && !held.dad_failed
                && self.sight.link(*link).is_some_and(|link| *link.name == *wanted.link)
        });
        usable.map(|(link, _)| *link)
    }

    /// Somebody took an address off that should be there.
    pub(super) fn undone(&mut self, addr: IpAddr, link: u32, now: Moment) {
        if self.repairs.undone(addr, now) {
            let reason = Reason::KeepsDisappearing { addr, link: self.link_name(link) };
            self.changes.push(Change::Meddled { addr, reason });
        }
    }
}

/// The next steps, and what they are about.
#[derive(Default)]
struct Planned {
    /// Addresses that were planned.
    addrs: Vec<IpAddr>,
    /// Those of them that pause until later.
    paused: Vec<(Moment, IpAddr)>,
    /// Those of them that wait for routers.
    waiting: Vec<IpAddr>,
    /// Whether interfaces were planned.
    links: bool,
    /// Whether they are all as they should be.
    links_right: bool,
    steps: Vec<Step>,
}

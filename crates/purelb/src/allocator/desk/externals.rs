//! What is known of external IPAMs: who may hold what, what they have yet to be told, and how busy each of them is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::ops::Bound;

use purelb_api::holders::Holders;
use purelb_api::read::ServiceRecord;
use purelb_core::alloc::ExternalRequest;
use purelb_core::pool::ServiceKey;
use purelb_core::report::Stock;
use purelb_core::service::ServiceView;
use tokio::time::Instant;

use super::pauses::Pauses;
use crate::allocator::job::{Job, Release};
use crate::cluster::known::Known;

/// How many calls may be under way at one socket: enough to be quick, few enough that a slow IPAM costs nothing.
pub(super) const AT_ONCE: usize = 4;

/// Everything about external IPAMs.
#[derive(Debug, Default)]
pub(super) struct Externals {
    /// Services that may hold addresses of external groups, and of which.
    pub by_service: BTreeMap<ServiceKey, BTreeMap<String, Held>>,
    /// Services that want addresses of an IPAM, with the question.
    pub asking: BTreeMap<ServiceKey, ExternalRequest>,
    /// Those among them that wait until they are on record.
    pub parked: BTreeSet<ServiceKey>,
    /// Services whose IPAM did not give what they want.
    pub ask_pauses: Pauses<ServiceKey>,
    /// Those among them whose IPAM said nothing at all.
    pub unheard: BTreeSet<ServiceKey>,
    /// What IPAMs have yet to be told, and how that stands.
    pub owed: BTreeMap<Release, Telling>,
    pub release_pauses: Pauses<Release>,
    /// What IPAMs said about their groups.
    pub stocks: BTreeMap<String, Stock>,
    /// Groups to be counted, with their sockets.
    pub uncounted: BTreeSet<(String, String)>,
    pub counting: BTreeSet<(String, String)>,
    pub count_pauses: Pauses<(String, String)>,
    lines: BTreeMap<String, Line>,
    /// For each group the Service whose turn it was last to ask again.
    turns: BTreeMap<String, ServiceKey>,
}

/// What a Service may hold of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    /// Where the group's IPAM is.
    pub socket: String,
    /// The addresses that are known to come from it; there may be others.
    given: BTreeSet<IpAddr>,
}

/// How far an IPAM has been told that addresses are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    /// Nobody has told it.
    NotYet,
    /// It is being told; and whether it was before, and has not answered.
    UnderWay {
        /// Whether it was.
        unsure: bool,
    },
    /// It was told and has not answered: it may free the addresses at any time, and is told again until it says so.
    Unsure,
}

/// The calls to one socket.
#[derive(Debug, Default)]
struct Line {
    asks: VecDeque<Job>,
    under_way: usize,
}

impl Externals {
    /// A Service no longer wants anything of an IPAM.
    pub fn forget(&mut self, key: &ServiceKey) {
        self.asking.remove(key);
        self.parked.remove(key);
        self.unheard.remove(key);
        self.ask_pauses.forget(key);
    }

    /// An IPAM has answered a Service, or has not; if something is missing still, it is asked again after a pause.
    pub fn heard(&mut self, key: &ServiceKey, silent: bool, missing: bool, at: Instant) {
        if !missing {
            return self.forget(key);
        }
        self.ask_pauses.failed(key, at);
        if silent {
            self.unheard.insert(key.clone());
        } else {
            self.unheard.remove(key);
        }
    }

    /// A question waits for its turn.
    pub fn line_up(&mut self, socket: &str, ask: Job) {
        self.lines.entry(socket.to_owned()).or_default().asks.push_back(ask);
    }

    /// The next call for which there is room. What makes addresses free comes first.
    pub fn next(&mut self, at: Instant) -> Option<Job> {
        let job = self.next_release(at).or_else(|| self.next_ask()).or_else(|| self.next_count(at))?;
        let socket = match &job {
            Job::Release(release) => &release.socket,
            Job::Ask { request, .. } => &request.socket,
            Job::Count { socket, .. } => socket,
            _ => return Some(job),
        };
        self.lines.entry(socket.clone()).or_default().under_way += 1;
        Some(job)
    }

    fn has_room(&self, socket: &str) -> bool {
        self.lines.get(socket).is_none_or(|line| line.under_way < AT_ONCE)
    }

    fn next_release(&mut self, at: Instant) -> Option<Job> {
        let ready = |(release, telling): &(&Release, &Telling)| {
            !matches!(telling, Telling::UnderWay { .. })
                && self.has_room(&release.socket)
                && !self.release_pauses.is_paused(release, at)
        };
        let release = self.owed.iter().find(ready)?.0.clone();
        self.release_pauses.end(&release);
        let unsure = self.owed.get(&release) == Some(&Telling::Unsure);
        self.owed.insert(release.clone(), Telling::UnderWay { unsure });
        Some(Job::Release(release))
    }

    fn next_ask(&mut self) -> Option<Job> {
        self.lines.values_mut().filter(|line| line.under_way < AT_ONCE).find_map(|line| line.asks.pop_front())
    }

    fn next_count(&mut self, at: Instant) -> Option<Job> {
        let ready = |key: &&(String, String)| {
            !self.counting.contains(*key) && self.has_room(&key.0) && !self.count_pauses.is_paused(key, at)
        };
        let key = self.uncounted.iter().find(ready)?.clone();
        self.count_pauses.end(&key);
        self.uncounted.remove(&key);
        self.counting.insert(key.clone());
        Some(Job::Count { socket: key.0, group: key.1 })
    }

    /// A call has ended. If it went well, those who heard nothing from that socket are named: they may ask again at once.
    pub fn ended(&mut self, socket: &str, well: bool) -> Vec<ServiceKey> {
        let line = self.lines.entry(socket.to_owned()).or_default();
        line.under_way = line.under_way.saturating_sub(1);
        if !well {
            return Vec::new();
        }
        let here = |key: &&ServiceKey| self.asking.get(*key).is_some_and(|request| request.socket == socket);
        let heard: Vec<_> = self.unheard.iter().filter(here).cloned().collect();
        for key in &heard {
            self.unheard.remove(key);
            self.ask_pauses.end(key);
        }
        heard
    }

    /// Ends the pauses of some of those who ask for addresses of a group, and names them: the next ones after those whose
    /// turn it was last, so that nobody who cannot be helped stands before all others for ever.
    pub fn end_pauses(&mut self, group: &str, some: usize) -> Vec<ServiceKey> {
        let waits = |(key, request): &(&ServiceKey, &ExternalRequest)| {
            request.group == group && self.ask_pauses.is_troubled(key)
        };
        let turn = self.turns.get(group).cloned().map_or(Bound::Unbounded, Bound::Excluded);
        let after = self.asking.range((turn, Bound::Unbounded)).filter(waits);
        let before = self.asking.iter().filter(waits);
        let mut keys: Vec<_> = after.chain(before).map(|(key, _)| key.clone()).take(some).collect();
        keys.dedup();
        if let Some(last) = keys.last() {
            self.turns.insert(group.to_owned(), last.clone());
        }
        keys.iter().for_each(|key| self.ask_pauses.end(key));
        keys
    }

    /// When a pause is over.
    pub fn next_wake(&self, at: Instant) -> Option<Instant> {
        let pauses = [self.ask_pauses.next(at), self.release_pauses.next(at), self.count_pauses.next(at)];
        pauses.into_iter().flatten().min()
    }

    /// An IPAM need not be told what it has not been told yet of a Service in a group; that it failed stays counted.
    pub fn cancel_owed(&mut self, key: &ServiceKey, group: &str) {
        let (pauses, meant) = (&mut self.release_pauses, |owed: &Release| owed.service == *key && owed.group == group);
        self.owed.retain(|owed, telling| {
            let stays = *telling != Telling::NotYet || !meant(owed);
            if !stays {
                pauses.end(owed);
            }
            stays
        });
    }

    /// A Service may hold addresses of a group; whether that is news.
    pub fn enter(&mut self, key: &ServiceKey, group: &str, socket: &str) -> bool {
        let groups = self.by_service.entry(key.clone()).or_default();
        let news = !groups.contains_key(group);
        socket.clone_into(&mut groups.entry(group.to_owned()).or_default().socket);
        news
    }

    /// These addresses of a Service come from this group, unless they are known to come from another.
    pub fn credit(&mut self, key: &ServiceKey, group: &str, addrs: &[IpAddr]) {
        let new: Vec<_> = addrs.iter().copied().filter(|addr| self.giver(key, *addr).is_none()).collect();
        if let Some(held) = self.by_service.get_mut(key).and_then(|groups| groups.get_mut(group)) {
            held.given.extend(new);
        }
    }

    /// Where these addresses of a Service come from is not known any more.
    pub fn discredit(&mut self, key: &ServiceKey, addrs: &[IpAddr]) {
        for held in self.by_service.get_mut(key).into_iter().flat_map(BTreeMap::values_mut) {
            held.given.retain(|addr| !addrs.contains(addr));
        }
    }

    /// The group whose IPAM is known to have given a Service this address.
    pub fn giver(&self, key: &ServiceKey, addr: IpAddr) -> Option<&str> {
        let mut groups = self.by_service.get(key)?.iter();
        groups.find(|(_, held)| held.given.contains(&addr)).map(|(group, _)| group.as_str())
    }

    /// The addresses a Service shows that come from a group: where nothing is known of one, the annotation counts.
    pub fn shown_from(&self, view: &ServiceView, group: &str) -> Vec<IpAddr> {
        let named = view.brand.from.as_deref();
        let is_from = |addr: &IpAddr| self.giver(&view.key, *addr).or(named) == Some(group);
        view.addresses().into_iter().filter(is_from).collect()
    }

    /// A Service holds nothing of a group any more.
    pub fn strike(&mut self, key: &ServiceKey, group: &str) {
        if let Some(groups) = self.by_service.get_mut(key) {
            groups.remove(group);
            if groups.is_empty() {
                self.by_service.remove(key);
            }
        }
        self.cancel_owed(key, group);
        let owed = &self.owed;
        self.release_pauses.retain(|was| owed.contains_key(was) || was.service != *key || was.group != group);
    }

    /// Who is to be on record: with what it shows, and with what the IPAM was not told yet.
    pub fn holders(&self, services: &Known<ServiceKey, ServiceRecord>) -> Holders {
        let mut holders = Holders::default();
        for (key, groups) in &self.by_service {
            for (group, Held { socket, .. }) in groups {
                let shown = services.at(key).map(|record| self.shown_from(&record.view, group)).unwrap_or_default();
                let owed: Vec<_> = self.owed(key, group, socket).filter(|addr| !shown.contains(addr)).collect();
                let entry = holders.groups.entry(group.clone()).or_default();
                entry.socket.clone_from(socket);
                entry.services.insert(key.to_string(), shown.into_iter().chain(owed).collect());
            }
        }
        holders
    }

    /// The single addresses of a Service that an IPAM has yet to be told of.
    fn owed(&self, key: &ServiceKey, group: &str, socket: &str) -> impl Iterator<Item = IpAddr> {
        let first = Release { socket: socket.to_owned(), group: group.to_owned(), service: key.clone(), addr: None };
        let same = first.clone();
        let same = move |owed: &&Release| Release { addr: None, ..(*owed).clone() } == same;
        self.owed.range(first..).map(|(owed, _)| owed).take_while(same).filter_map(|owed| owed.addr)
    }
}

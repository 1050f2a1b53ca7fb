//! The thread that tells neighbours of addresses taken over: gratuitous ARP and unsolicited neighbour advertisements.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use purelb_core::frames::{Arp, gratuitous_arp, unsolicited_advertisement};
use purelb_core::links::{HeldAddr, Link};
use purelb_core::plan::Telling;

use super::socket::Asking;
use super::{KernelNews, News, Order, dump};
use crate::agent::clock::Clock;
use crate::agent::packet::PacketSocket;

/// How often to look whether duplicate address detection has ended, which takes about a second.
const TENTATIVE: Duration = Duration::from_millis(50);

/// So many addresses are told of before orders are looked at again.
const SLICE: usize = 256;

/// Why neighbours were not told of an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum TellError {
    /// The interface is gone.
    #[error("cannot tell neighbours of {addr}: its interface is gone")]
    NoLink {
        /// The address.
        addr: IpAddr,
    },
    /// The interface has no Ethernet address.
    #[error("cannot tell neighbours of {addr}: {link} is not an Ethernet interface")]
    NoEthernet {
        /// The address.
        addr: IpAddr,
        /// The interface.
        link: String,
    },
    /// The address is not on the interface any more, or never was.
    #[error("neighbours are not told of {addr}: it is not on {link} (any more)")]
    NotHeld {
        /// The address.
        addr: IpAddr,
        /// The interface.
        link: String,
    },
    /// Somebody else on the segment has the address.
    #[error("neighbours are not told of {addr}: duplicate address detection on {link} found that somebody else has it")]
    Duplicate {
        /// The address.
        addr: IpAddr,
        /// The interface.
        link: String,
    },
    /// There is no address to send from.
    #[error("cannot tell neighbours of {addr}: {link} has no link-local IPv6 address to send from")]
    NoLinkLocal {
        /// The address.
        addr: IpAddr,
        /// The interface.
        link: String,
    },
    /// The kernel did not take the packet, or did not answer.
    #[error("cannot tell neighbours of {addr}: {why}")]
    NotSent {
        /// The address.
        addr: IpAddr,
        /// What the kernel said.
        why: String,
    },
}

impl TellError {
    /// Whether telling on makes no sense.
    fn is_final(&self) -> bool {
        matches!(self, Self::NoLink { .. } | Self::NotHeld { .. } | Self::Duplicate { .. })
    }
}

/// What is still to be told of one address.
struct Rounds {
    telling: Telling,
    left: u8,
    next: Instant,
}

/// An interface as it was when a slice of rounds began.
struct Seen {
    link: Link,
    addrs: BTreeMap<IpAddr, HeldAddr>,
}

/// Everything the thread has.
pub(super) struct Teller {
    asking: Asking,
    packets: PacketSocket,
    orders: Receiver<Order>,
    news: News,
    clock: Clock,
    rounds: BTreeMap<IpAddr, Rounds>,
}

impl Teller {
    pub(super) fn open(orders: Receiver<Order>, news: News, clock: Clock) -> io::Result<Self> {
        let (asking, packets) = (Asking::open()?, PacketSocket::open()?);
        Ok(Self { asking, packets, orders, news, clock, rounds: BTreeMap::new() })
    }

    /// Runs until nobody gives orders any more.
    pub(super) fn run(mut self) {
        loop {
            let next = self.rounds.values().map(|rounds| rounds.next).min();
            let order = match next {
                Some(next) => self.orders.recv_timeout(next.saturating_duration_since(Instant::now())),
                None => self.orders.recv().map_err(RecvTimeoutError::from),
            };
            match order {
                Ok(order) => self.take(order),
                Err(RecvTimeoutError::Timeout) => self.tell_due(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes this order and those that wait behind it.
    fn take(&mut self, order: Order) {
        let mut next = Some(order);
        while let Some(order) = next {
            match order {
                Order::Tell(telling) => self.begin(telling),
                Order::StopTelling(addr) => drop(self.rounds.remove(&addr)),
                Order::Apply { .. } | Order::Dump => {}
            }
            next = self.orders.try_recv().ok();
        }
    }

    fn begin(&mut self, telling: Telling) {
        let (addr, left) = (telling.addr, if telling.how.enabled { telling.how.count } else { 0 });
        let next = Instant::now() + telling.how.initial_delay;
        self.rounds.remove(&addr);
        if left > 0 {
            self.rounds.insert(addr, Rounds { telling, left, next });
        }
    }

    /// A slice of what is due; the rest waits behind new orders, one of which may be to stop.
    fn tell_due(&mut self) {
        let now = Instant::now();
        let due = self.rounds.iter().filter(|(_, rounds)| rounds.next <= now).map(|(addr, _)| *addr);
        let due: Vec<_> = due.take(SLICE).collect();
        // Looked up for each slice: the Ethernet address and the addresses may have changed since the last one.
        let mut seen = BTreeMap::new();
        for addr in due {
            let Some(rounds) = self.rounds.remove(&addr) else { continue };
            let index = rounds.telling.link;
            let link = seen.entry(index).or_insert_with(|| self.look(index));
            if let Some(rest) = self.tell(rounds, link) {
                self.rounds.insert(addr, rest);
            }
        }
    }

    /// One round; what is left of them.
    fn tell(&self, mut rounds: Rounds, link: &io::Result<Option<Seen>>) -> Option<Rounds> {
        let addr = rounds.telling.addr;
        let result = match frames(&rounds.telling, link) {
            // An address must not be used before duplicate address detection has ended (RFC 4862, 5.4).
            Ok(None) => {
                rounds.next = Instant::now() + TENTATIVE;
                return Some(rounds);
            }
            Ok(Some(frames)) => self.send(&rounds.telling, &frames),
            Err(error) => Err(error),
        };
        let end = result.as_ref().is_err_and(TellError::is_final);
        let _ = self.news.send(KernelNews::Told { addr, result });
        rounds.left -= 1;
        rounds.next += rounds.telling.how.interval;
        (!end && rounds.left > 0).then_some(rounds)
    }

    fn look(&mut self, index: u32) -> io::Result<Option<Seen>> {
        let link = dump::one_link(&mut self.asking, index, self.clock.now())?;
        Ok(link.map(|link| Seen { addrs: link.addrs.iter().map(|held| (held.addr, *held)).collect(), link }))
    }

    fn send(&self, telling: &Telling, frames: &[Vec<u8>]) -> Result<(), TellError> {
        let addr = telling.addr;
        let sent = frames.iter().try_for_each(|frame| self.packets.send(telling.link, frame));
        sent.map_err(|error| TellError::NotSent { addr, why: error.to_string() })
    }
}

/// The frames of one round; `None` while it is not known whether the address may be used.
fn frames(telling: &Telling, link: &io::Result<Option<Seen>>) -> Result<Option<Vec<Vec<u8>>>, TellError> {
    let addr = telling.addr;
    let found = link.as_ref().map_err(|error| TellError::NotSent { addr, why: error.to_string() })?;
    let Seen { link, addrs } = found.as_ref().ok_or(TellError::NoLink { addr })?;
    let name = || link.name.clone();
    match addrs.get(&addr) {
        None if telling.how.verify_before_send => Err(TellError::NotHeld { addr, link: name() }),
        Some(HeldAddr { dad_failed: true, .. }) => Err(TellError::Duplicate { addr, link: name() }),
        Some(HeldAddr { tentative: true, .. }) => Ok(None),
        _ => built(addr, link).map(Some),
    }
}

fn built(addr: IpAddr, link: &Link) -> Result<Vec<Vec<u8>>, TellError> {
    let mac = link.mac.ok_or_else(|| TellError::NoEthernet { addr, link: link.name.clone() })?;
    match addr {
        IpAddr::V4(v4) => Ok([Arp::Request, Arp::Reply].map(|form| gratuitous_arp(form, mac, v4).to_vec()).to_vec()),
        IpAddr::V6(v6) => {
            let from =
                dump::link_local(link).ok_or_else(|| TellError::NoLinkLocal { addr, link: link.name.clone() })?;
            Ok(vec![unsolicited_advertisement(mac, from, v6).to_vec()])
        }
    }
}

#[cfg(test)]
mod tests {
    use purelb_core::agent::Garp;
    use purelb_core::links::LinkKind;

    use super::*;

    const ADDR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 1, 100));

    fn telling(verify_before_send: bool) -> Telling {
        let (initial_delay, interval) = (Duration::ZERO, Duration::from_millis(500));
        Telling {
            link: 2,
            addr: ADDR,
            how: Garp { enabled: true, initial_delay, count: 3, interval, verify_before_send },
        }
    }

    /// An interface as the kernel shows it now.
    fn seen(addrs: Vec<HeldAddr>) -> io::Result<Option<Seen>> {
        let by_addr = addrs.iter().map(|held| (held.addr, *held)).collect();
        let (name, mac) = ("eth0".to_owned(), Some([2, 0, 0, 0, 0, 1]));
        let (kind, up, carrier, promote_secondaries) = (LinkKind::Other, true, true, None);
        Ok(Some(Seen { link: Link { name, kind, up, carrier, mac, promote_secondaries, addrs }, addrs: by_addr }))
    }

    #[test]
    fn a22_the_kernel_is_asked_before_each_round_and_telling_ends_when_the_address_has_gone() {
        let held = || seen(vec![HeldAddr::plain(ADDR, 24)]);
        assert_eq!(frames(&telling(true), &held()).unwrap().unwrap().len(), 2, "a request and a reply");
        let gone = frames(&telling(true), &seen(Vec::new())).unwrap_err();
        assert_eq!(gone, TellError::NotHeld { addr: ADDR, link: "eth0".to_owned() });
        assert!(gone.is_final());
        assert!(frames(&telling(false), &seen(Vec::new())).unwrap().is_some(), "who does not want it checked");
    }
}

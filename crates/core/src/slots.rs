//! Who announces which local address, as `purelb.io/announcing-IPv4` and `-IPv6` of a Service say it.
//!
//! The text is `node,interface,address`, several separated by one blank. Others read it, so it is always written in one
//! form, and whatever in it cannot be read is dropped.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The announcers of one family's addresses, one for each address.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Slots {
    by_addr: BTreeMap<IpAddr, Slot>,
}

/// Who announces an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Slot {
    /// The node.
    pub node: String,
    /// Its interface.
    pub interface: String,
}

impl Slots {
    /// Reads an annotation; of two entries for one address, the one that sorts first counts.
    pub fn parse(text: &str) -> Self {
        let mut slots = Self::default();
        for (addr, slot) in text.split_whitespace().filter_map(entry) {
            let known = slots.by_addr.entry(addr).or_insert_with(|| slot.clone());
            if slot.cmp(known) == Ordering::Less {
                *known = slot;
            }
        }
        slots
    }

    /// Reads what 0.13 wrote, `node,interface`, for the addresses of the family that the Service has.
    pub fn parse_old(text: &str, addrs: impl IntoIterator<Item = IpAddr>) -> Self {
        let mut parts = text.split(',');
        let (Some(node), Some(interface), None) = (parts.next(), parts.next(), parts.next()) else {
            return Self::default();
        };
        if node.is_empty() || interface.is_empty() || text.contains(char::is_whitespace) {
            return Self::default();
        }
        let slot = Slot { node: node.to_owned(), interface: interface.to_owned() };
        Self { by_addr: addrs.into_iter().map(|addr| (addr.to_canonical(), slot.clone())).collect() }
    }

    /// The one text for these announcers; `None` where the annotation should not be there at all.
    pub fn encode(&self) -> Option<String> {
        let entries = self.by_addr.iter().map(|(addr, slot)| format!("{},{},{addr}", slot.node, slot.interface));
        let text = entries.collect::<Vec<_>>().join(" ");
        (!text.is_empty()).then_some(text)
    }

    /// Enters a node as the announcer of an address; returns the other node that was there before.
    pub fn claim(&mut self, addr: IpAddr, node: &str, interface: &str) -> Option<String> {
        let slot = Slot { node: node.to_owned(), interface: interface.to_owned() };
        let before = self.by_addr.insert(addr.to_canonical(), slot);
        before.map(|before| before.node).filter(|before| before != node)
    }

    /// Removes a node's own entry for an address, and nobody else's.
    pub fn clear(&mut self, addr: IpAddr, node: &str) {
        let addr = addr.to_canonical();
        if self.announcer(addr).is_some_and(|slot| slot.node == node) {
            self.by_addr.remove(&addr);
        }
    }

    /// Keeps only the entries that somebody still has a use for.
    pub fn sweep(&mut self, mut keep: impl FnMut(IpAddr, &Slot) -> bool) {
        self.by_addr.retain(|addr, slot| keep(*addr, slot));
    }

    /// Who announces an address.
    pub fn announcer(&self, addr: IpAddr) -> Option<&Slot> {
        self.by_addr.get(&addr.to_canonical())
    }

    /// All entries, in the order of their addresses.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &Slot)> {
        self.by_addr.iter().map(|(addr, slot)| (*addr, slot))
    }
}

/// The first comma ends the node and the last one begins the address; an interface may have commas of its own.
fn entry(text: &str) -> Option<(IpAddr, Slot)> {
    let (node, rest) = text.split_once(',')?;
    let (interface, addr) = rest.rsplit_once(',')?;
    let addr: IpAddr = addr.parse().ok()?;
    let named = !node.is_empty() && !interface.is_empty();
    named.then(|| (addr.to_canonical(), Slot { node: node.to_owned(), interface: interface.to_owned() }))
}

#[cfg(test)]
mod tests;

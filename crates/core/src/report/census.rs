//! What the Services say about the groups they come from, gathered in one pass over all of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::book::{Book, Slot};
use crate::pool::ServiceKey;
use crate::service::ServiceView;

/// Addresses, each with a Service that has it.
pub type Held = BTreeMap<IpAddr, ServiceKey>;

static NOBODY: Held = Held::new();

/// The addresses of each group that its status has to speak of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    groups: BTreeMap<String, Share>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Share {
    loose: Held,
    local_traffic: Held,
}

impl Census {
    /// Looks at every Service once; each comes with whether its `externalTrafficPolicy` is `Local`.
    pub fn take<'a>(book: &Book, services: impl IntoIterator<Item = (&'a ServiceView, bool)>) -> Self {
        let mut census = Self::default();
        for (svc, local_traffic) in services {
            let held = book.holding(&svc.key).map(|holding| holding.addrs.as_slice()).unwrap_or_default();
            for &addr in held {
                census.enter(book, svc, addr, local_traffic);
            }
        }
        census
    }

    /// Addresses that Services say they have from this group and that are in no group's ranges.
    pub fn loose(&self, group: &str) -> &Held {
        self.groups.get(group).map_or(&NOBODY, |share| &share.loose)
    }

    /// Addresses of this group's ranges whose Service wants only nodes with its own endpoints to answer.
    pub fn local_traffic(&self, group: &str) -> &Held {
        self.groups.get(group).map_or(&NOBODY, |share| &share.local_traffic)
    }

    fn enter(&mut self, book: &Book, svc: &ServiceView, addr: IpAddr, local_traffic: bool) {
        match home(book, svc, addr) {
            Some(slot) if local_traffic => {
                let share = self.groups.entry(slot.group.name.clone()).or_default();
                share.local_traffic.entry(addr).or_insert_with(|| svc.key.clone());
            }
            Some(_) => {}
            None => {
                for name in named(svc) {
                    let share = self.groups.entry(name.to_owned()).or_default();
                    share.loose.entry(addr).or_insert_with(|| svc.key.clone());
                }
            }
        }
    }
}

/// The group whose ranges have the address; nearly always the one that the Service names, so that is asked first.
fn home<'a>(book: &'a Book, svc: &ServiceView, addr: IpAddr) -> Option<&'a Slot> {
    let first = named(svc).filter_map(|name| book.slot(name).ok()).find(|slot| slot.pool.contains(addr));
    first.or_else(|| book.slot_of(addr))
}

/// The groups in `purelb.io/allocated-from`.
fn named(svc: &ServiceView) -> impl Iterator<Item = &str> {
    svc.brand
        .from
        .as_deref()
        .into_iter()
        .flat_map(|from| from.split(','))
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

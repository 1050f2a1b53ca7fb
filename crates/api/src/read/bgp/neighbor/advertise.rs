//! What a neighbor is told of our routes.

use purelb_core::bgp::{Advertise, NextHop};
use purelb_core::reason::Reason;

use super::{Draft, parts};

/// How often our AS may be repeated.
const MOST_PREPENDS: i64 = 32;

impl Draft<'_> {
    /// The next hops that are written by hand.
    pub(super) fn next_hop(&mut self) -> NextHop {
        let Some(written) = &self.neighbor.next_hop else { return NextHop::default() };
        let syntax = |text: &str, wanted, example| Reason::AddressSyntax { text: text.to_owned(), wanted, example };
        let v4 = written.ipv4.as_ref().and_then(|text| {
            let read = text.parse().map_err(|_| syntax(text, "an IPv4 address", "192.0.2.10"));
            self.accept(format!("{}.nextHop.ipv4", self.path), read)
        });
        let v6 = written.ipv6.as_ref().and_then(|text| {
            let read = text.parse().map_err(|_| syntax(text, "an IPv6 address", "2001:db8::10"));
            self.accept(format!("{}.nextHop.ipv6", self.path), read)
        });
        NextHop { v4, v6 }
    }

    /// What goes with each route.
    pub(super) fn advertise(&mut self) -> Advertise {
        let Some(written) = &self.neighbor.advertise else { return Advertise::default() };
        let path = format!("{}.advertise", self.path);
        let mut advertise = Advertise::default();
        for (i, text) in written.communities.iter().enumerate() {
            advertise.communities.extend(self.accept(format!("{path}.communities[{i}]"), parts::community(text)));
        }
        for (i, text) in written.large_communities.iter().enumerate() {
            let read = self.accept(format!("{path}.largeCommunities[{i}]"), parts::large_community(text));
            advertise.large_communities.extend(read);
        }
        advertise.med = self.whole(&path, "med", written.med);
        advertise.local_pref = self.whole(&path, "localPref", written.local_pref);
        let prepend = parts::within(written.prepend.unwrap_or(0), 0, MOST_PREPENDS);
        let prepend = self.accept(format!("{path}.prepend"), prepend);
        advertise.prepend = prepend.and_then(|times| u8::try_from(times).ok()).unwrap_or(0);
        advertise.service_groups = written.service_groups.as_ref().map(|names| names.iter().cloned().collect());
        advertise
    }

    fn whole(&mut self, path: &str, name: &str, value: Option<i64>) -> Option<u32> {
        let read = self.accept(format!("{path}.{name}"), parts::within(value?, 0, i64::from(u32::MAX)))?;
        u32::try_from(read).ok()
    }
}

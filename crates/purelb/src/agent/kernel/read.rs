//! The kernel's messages as links, addresses and default routes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use purelb_core::addr::Family;
use purelb_core::links::{DefaultRoute, HeldAddr, Link, LinkKind};
use purelb_core::moment::Moment;

use super::message::{aligned, attribute, attributes, u16_at, u32_at};
use super::numbers::{
    AF_INET, AF_INET6, AF_UNSPEC, IFA_ADDRESS, IFA_CACHEINFO, IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_NODAD,
    IFA_F_NOPREFIXROUTE, IFA_F_TENTATIVE, IFA_FLAGS, IFA_LOCAL, IFA_PROTO, IFF_LOOPBACK, IFF_LOWER_UP, IFF_UP,
    IFLA_ADDRESS, IFLA_AF_SPEC, IFLA_IFNAME, IFLA_INET_CONF, IFLA_INFO_KIND, IFLA_LINKINFO, INFINITY,
    IPV4_DEVCONF_PROMOTE_SECONDARIES, NHA_GATEWAY, NHA_GROUP, NHA_ID, NHA_OIF, RT_TABLE_MAIN, RTA_GATEWAY,
    RTA_MULTIPATH, RTA_NH_ID, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTA_VIA, RTM_F_CLONED, RTN_UNICAST,
};

const LINK_HEADER: usize = 16;
const ADDR_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
const HOP_HEADER: usize = 8;

/// An interface. `None` for what only tells of a bridge's port: such a message can say "gone" although the interface
/// stays and only left its bridge.
pub(super) fn link(body: &[u8]) -> Option<(u32, Link)> {
    if *body.first()? != AF_UNSPEC {
        return None;
    }
    let (index, flags) = (u32_at(body, 4)?, u32_at(body, 8)?);
    let rest = body.get(LINK_HEADER..)?;
    let name = text(attribute(rest, IFLA_IFNAME)?);
    let link = Link {
        name,
        kind: kind(flags, rest),
        up: flags & IFF_UP != 0,
        carrier: flags & IFF_LOWER_UP != 0,
        mac: attribute(rest, IFLA_ADDRESS).and_then(|mac| mac.try_into().ok()),
        promote_secondaries: promotes(rest),
        addrs: Vec::new(),
    };
    Some((index, link))
}

fn kind(flags: u32, rest: &[u8]) -> LinkKind {
    let named = attribute(rest, IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND)).map(text);
    match named.as_deref() {
        _ if flags & IFF_LOOPBACK != 0 => LinkKind::Loopback,
        Some("dummy") => LinkKind::Dummy,
        Some("ifb") => LinkKind::Ifb,
        _ => LinkKind::Other,
    }
}

/// The kernel gives the settings as an array that counts from 1.
fn promotes(rest: &[u8]) -> Option<bool> {
    let families = attribute(rest, IFLA_AF_SPEC)?;
    let settings = attribute(attribute(families, AF_INET.into())?, IFLA_INET_CONF)?;
    let at = usize::from(IPV4_DEVCONF_PROMOTE_SECONDARIES - 1) * 4;
    u32_at(settings, at).map(|value| value != 0)
}

/// An address and the interface it is on.
pub(super) fn addr(body: &[u8], now: Moment) -> Option<(u32, HeldAddr)> {
    let (prefix, index) = (*body.get(1)?, u32_at(body, 4)?);
    let rest = body.get(ADDR_HEADER..)?;
    // On a point-to-point link IFA_ADDRESS is the other end; IPv6 has IFA_LOCAL only there.
    let own = attribute(rest, IFA_LOCAL).or_else(|| attribute(rest, IFA_ADDRESS))?;
    let flags = attribute(rest, IFA_FLAGS).and_then(|flags| u32_at(flags, 0)).unwrap_or_else(|| u32::from(body[2]));
    let times = attribute(rest, IFA_CACHEINFO);
    let seconds = |at| times.and_then(|times| u32_at(times, at)).unwrap_or(INFINITY);
    let (preferred, valid) = (seconds(0), seconds(4));
    let held = HeldAddr {
        addr: ip(own)?,
        prefix,
        no_prefix_route: flags & IFA_F_NOPREFIXROUTE != 0,
        no_dad: flags & IFA_F_NODAD != 0,
        tentative: flags & IFA_F_TENTATIVE != 0,
        dad_failed: flags & IFA_F_DADFAILED != 0,
        // The kernel sets the flag a moment after the time is over.
        deprecated: flags & IFA_F_DEPRECATED != 0 || preferred == 0,
        valid_until: (valid != INFINITY).then(|| now + Duration::from_secs(valid.into())),
        protocol: attribute(rest, IFA_PROTO).and_then(|value| value.first().copied()).unwrap_or(0),
    };
    Some((index, held))
}

/// A next hop: the interface and the router.
type Hop = (u32, Option<IpAddr>);

/// Next-hop objects by their number, each with its next hops or the members of its group.
#[derive(Debug, Default)]
pub(super) struct NextHops {
    single: BTreeMap<u32, Hop>,
    groups: BTreeMap<u32, Vec<u32>>,
}

impl NextHops {
    /// Takes one message of their list in.
    pub(super) fn learn(&mut self, body: &[u8]) -> Option<()> {
        let rest = body.get(8..)?;
        let id = u32_at(attribute(rest, NHA_ID)?, 0)?;
        if let Some(members) = attribute(rest, NHA_GROUP) {
            let members = members.chunks(8).filter_map(|member| u32_at(member, 0)).collect();
            self.groups.insert(id, members);
        } else {
            let link = u32_at(attribute(rest, NHA_OIF)?, 0)?;
            self.single.insert(id, (link, attribute(rest, NHA_GATEWAY).and_then(ip)));
        }
        Some(())
    }

    fn of(&self, id: u32) -> Vec<Hop> {
        let members = self.groups.get(&id).cloned().unwrap_or_else(|| vec![id]);
        members.iter().filter_map(|id| self.single.get(id).copied()).collect()
    }
}

/// Whether a route message is about a default route of the main table. Cheap, because a busy router has many others.
pub(super) fn is_default_route(body: &[u8]) -> bool {
    let (Some(&to), Some(&table)) = (body.get(1), body.get(4)) else { return false };
    to == 0 && table == RT_TABLE_MAIN
}

/// The next hops of a default route of the main table; nothing for any other route.
pub(super) fn default_route(body: &[u8], objects: &NextHops) -> Option<Vec<DefaultRoute>> {
    let (kind, flags) = (*body.get(7)?, u32_at(body, 8)?);
    let rest = body.get(ROUTE_HEADER..)?;
    let table = attribute(rest, RTA_TABLE).and_then(|table| u32_at(table, 0));
    let main = table.is_none_or(|table| table == u32::from(RT_TABLE_MAIN));
    if !is_default_route(body) || !main || kind != RTN_UNICAST || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let family = match *body.first()? {
        AF_INET => Family::V4,
        AF_INET6 => Family::V6,
        _ => return None,
    };
    let metric = attribute(rest, RTA_PRIORITY).and_then(|metric| u32_at(metric, 0)).unwrap_or(0);
    let to_route = |(link, gateway)| DefaultRoute { family, metric, link, gateway };
    Some(hops(rest, objects).into_iter().map(to_route).collect())
}

fn hops(rest: &[u8], objects: &NextHops) -> Vec<Hop> {
    if let Some(many) = attribute(rest, RTA_MULTIPATH) {
        return multipath(many);
    }
    if let Some(link) = attribute(rest, RTA_OIF).and_then(|link| u32_at(link, 0)) {
        return vec![(link, router(rest))];
    }
    // Where `nexthop_compat_mode` is 0 the kernel names only the object.
    let object = attribute(rest, RTA_NH_ID).and_then(|id| u32_at(id, 0));
    object.map(|id| objects.of(id)).unwrap_or_default()
}

fn multipath(mut bytes: &[u8]) -> Vec<Hop> {
    let mut hops = Vec::new();
    while let (Some(length), Some(link)) = (u16_at(bytes, 0), u32_at(bytes, 4)) {
        let Some(rest) = bytes.get(HOP_HEADER..usize::from(length)) else { break };
        hops.push((link, router(rest)));
        bytes = bytes.get(aligned(length.into())..).unwrap_or_default();
    }
    hops
}

/// RTA_VIA is a router of the other family, after two bytes that name it.
fn router(rest: &[u8]) -> Option<IpAddr> {
    attributes(rest).find_map(|(kind, value)| match kind {
        RTA_GATEWAY => ip(value),
        RTA_VIA => ip(value.get(2..)?),
        _ => None,
    })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|octets| Ipv4Addr::from(octets).into());
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(|octets| Ipv6Addr::from(octets).into())).ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

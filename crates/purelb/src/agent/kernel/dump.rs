//! Complete lists of what the kernel has.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use purelb_core::links::{DefaultRoute, HeldAddr, Link, Links};
use purelb_core::moment::Moment;
use rustix::io::Errno;

use super::numbers::{
    AF_INET, AF_INET6, AF_UNSPEC, IFLA_EXT_MASK, RT_TABLE_MAIN, RTA_TABLE, RTEXT_FILTER_SKIP_STATS, RTM_GETADDR,
    RTM_GETLINK, RTM_GETNEXTHOP, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEXTHOP, RTM_NEWROUTE,
};
use super::read::{self, NextHops};
use super::socket::{Asking, list, order};

const ATTEMPTS: usize = 100;

/// Everything, or `None` where it changed while it was read.
pub(super) fn everything(asking: &mut Asking, now: Moment) -> io::Result<Option<Links>> {
    let mut links = Links::default();
    let mut header = [0; 16];
    header[0] = AF_UNSPEC;
    let request = list(RTM_GETLINK, &header).attribute(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    let mut whole = asking.dump(request, |message| {
        links.by_index.extend((message.kind == RTM_NEWLINK).then(|| read::link(message.body)).flatten());
    })?;
    whole &= asking.dump(list(RTM_GETADDR, &[0; 8]), |message| {
        let found = (message.kind == RTM_NEWADDR).then(|| read::addr(message.body, now)).flatten();
        // A link that came between the two lists is told by a notification, and its addresses after it.
        if let Some((index, held)) = found
            && let Some(link) = links.by_index.get_mut(&index)
        {
            link.addrs.push(held);
        }
    })?;
    match default_routes(asking)? {
        Some(routes) if whole => Ok(Some(Links { default_routes: routes, ..links })),
        _ => Ok(None),
    }
}

/// Everything, read until it is whole.
pub(in crate::agent) fn everything_for_sure(asking: &mut Asking, now: Moment) -> io::Result<Links> {
    for _ in 0..ATTEMPTS {
        if let Some(links) = everything(asking, now)? {
            return Ok(links);
        }
    }
    Err(io::Error::other("the kernel's interfaces and addresses change faster than they can be read"))
}

/// The default routes of the main table, sorted; `None` where they changed while they were read.
pub(super) fn default_routes(asking: &mut Asking) -> io::Result<Option<Vec<DefaultRoute>>> {
    let mut objects = NextHops::default();
    let mut whole = tolerant(asking.dump(list(RTM_GETNEXTHOP, &[0; 8]), |message| {
        if message.kind == RTM_NEWNEXTHOP {
            objects.learn(message.body);
        }
    }))?;
    let mut routes = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut header = [0; 12];
        (header[0], header[4]) = (family, RT_TABLE_MAIN);
        let request = list(RTM_GETROUTE, &header).attribute(RTA_TABLE, &u32::from(RT_TABLE_MAIN).to_ne_bytes());
        whole &= tolerant(asking.dump(request, |message| {
            // A kernel without IPv6 answers with the routes it has.
            if message.kind == RTM_NEWROUTE && message.body.first() == Some(&family) {
                routes.extend(read::default_route(message.body, &objects).into_iter().flatten());
            }
        }))?;
    }
    routes.sort();
    Ok(whole.then_some(routes))
}

/// A family or a kind of object that the kernel does not have, or a table that nobody used yet, is an empty list.
fn tolerant(listed: io::Result<bool>) -> io::Result<bool> {
    let nothing = [Errno::NOENT, Errno::OPNOTSUPP, Errno::AFNOSUPPORT];
    match listed {
        Err(error) if Errno::from_io_error(&error).is_some_and(|errno| nothing.contains(&errno)) => Ok(true),
        other => other,
    }
}

/// One interface with its addresses, as it is now.
pub(super) fn one_link(asking: &mut Asking, index: u32, now: Moment) -> io::Result<Option<Link>> {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    let mut found: Option<Link> = None;
    let answers = asking.ask(vec![order(RTM_GETLINK, 0, &header)], |message| {
        found = read::link(message.body).map(|(_, link)| link);
    })?;
    if let Some(refusal) = answers.into_iter().find_map(Result::err) {
        return if refusal.errno == Errno::NODEV { Ok(None) } else { Err(refusal.into()) };
    }
    let Some(mut link) = found else { return Ok(None) };
    let mut header = [0; 8];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    loop {
        let whole = asking.dump(list(RTM_GETADDR, &header), |message| {
            let held = read::addr(message.body, now).filter(|(of, _)| *of == index && message.kind == RTM_NEWADDR);
            link.addrs.extend(held.map(|(_, held)| held));
        })?;
        if whole {
            return Ok(Some(link));
        }
        link.addrs.clear();
    }
}

/// The link-local address of an interface that others may see as a sender.
pub(super) fn link_local(link: &Link) -> Option<Ipv6Addr> {
    let usable = |held: &&HeldAddr| !held.tentative && !held.dad_failed;
    link.addrs.iter().filter(usable).find_map(|held| match held.addr {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(v6),
        _ => None,
    })
}

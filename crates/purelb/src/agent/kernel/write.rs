//! Steps as requests to the kernel.

use std::net::{IpAddr, Ipv4Addr};

use purelb_core::links::OUR_PROTOCOL;
use purelb_core::plan::Step;

use super::message::Request;
use super::numbers::{
    AF_INET, AF_INET6, IFA_ADDRESS, IFA_BROADCAST, IFA_CACHEINFO, IFA_F_NODAD, IFA_F_NOPREFIXROUTE, IFA_FLAGS,
    IFA_LOCAL, IFA_PROTO, IFF_UP, IFLA_AF_SPEC, IFLA_IFNAME, IFLA_INET_CONF, IFLA_INFO_KIND, IFLA_LINKINFO,
    IPV4_DEVCONF_PROMOTE_SECONDARIES, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RTM_DELADDR, RTM_DELLINK, RTM_GETADDR,
    RTM_NEWADDR, RTM_NEWLINK,
};
use super::socket::{order, question};

/// The first request that a step takes.
pub(super) fn request(step: &Step) -> Request {
    match step {
        Step::MakeLink { name } => make_link(name, "dummy"),
        Step::SetUp { link } => set_up(*link),
        Step::DropLink { link } => order(RTM_DELLINK, 0, &link_header(*link, 0)),
        // A replacing request would silently keep the prefix length that an IPv6 address has already.
        Step::PutAddr { addr: IpAddr::V6(_), refresh: false, .. } => put(step, NLM_F_CREATE | NLM_F_EXCL),
        Step::PutAddr { .. } => replace(step),
        Step::DropAddr { link, addr, prefix, .. } => address(RTM_DELADDR, 0, *link, *addr, *prefix),
    }
}

/// A new interface, of which only name and kind are given.
pub(super) fn make_link(name: &str, kind: &str) -> Request {
    let name = [name.as_bytes(), &[0]].concat();
    order(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &link_header(0, 0))
        .attribute(IFLA_IFNAME, &name)
        .nested(IFLA_LINKINFO, |info| info.attribute(IFLA_INFO_KIND, kind.as_bytes()))
}

/// Up, and secondaries are promoted when their primary goes. /proc/sys is read-only in a pod; netlink is not.
fn set_up(link: u32) -> Request {
    order(RTM_NEWLINK, 0, &link_header(link, IFF_UP)).nested(IFLA_AF_SPEC, |families| {
        families.nested(AF_INET.into(), |inet| {
            let on = 1_u32.to_ne_bytes();
            inet.nested(IFLA_INET_CONF, |settings| settings.attribute(IPV4_DEVCONF_PROMOTE_SECONDARIES, &on))
        })
    })
}

/// Puts an address, or changes lifetime, mark and (IPv6) flags of one that is there with the same prefix length.
pub(super) fn replace(step: &Step) -> Request {
    put(step, NLM_F_CREATE | NLM_F_REPLACE)
}

fn put(step: &Step, mode: u16) -> Request {
    let Step::PutAddr { link, addr, prefix, no_prefix_route, no_dad, valid, preferred, .. } = step else {
        unreachable!("only called for PutAddr");
    };
    let mut request = address(RTM_NEWADDR, mode, *link, *addr, *prefix).attribute(IFA_PROTO, &[OUR_PROTOCOL]);
    if let IpAddr::V4(v4) = addr
        && *prefix < 31
    {
        request = request.attribute(IFA_BROADCAST, &broadcast(*v4, *prefix).octets());
    }
    let flags = [(*no_prefix_route, IFA_F_NOPREFIXROUTE), (*no_dad, IFA_F_NODAD)];
    let flags: u32 = flags.iter().filter_map(|(set, flag)| set.then_some(flag)).sum();
    if flags != 0 {
        request = request.attribute(IFA_FLAGS, &flags.to_ne_bytes());
    }
    // Without this the kernel keeps the address for ever. The two times that follow are the kernel's own notes.
    if let Some(valid) = valid {
        let times = [(*preferred).min(*valid), *valid, 0, 0].map(u32::to_ne_bytes);
        request = request.attribute(IFA_CACHEINFO, times.as_flattened());
    }
    request
}

/// A question for one IPv6 address on an interface.
pub(super) fn look(link: u32, addr: IpAddr) -> Request {
    let fixed = addr_header(addr, 0, link);
    question(RTM_GETADDR, &fixed).attribute(IFA_ADDRESS, &octets(addr))
}

fn address(kind: u16, mode: u16, link: u32, addr: IpAddr, prefix: u8) -> Request {
    let octets = octets(addr);
    order(kind, mode, &addr_header(addr, prefix, link)).attribute(IFA_LOCAL, &octets).attribute(IFA_ADDRESS, &octets)
}

/// struct ifinfomsg: family, padding, type, index, flags, and which flags change.
fn link_header(index: u32, flags: u32) -> [u8; 16] {
    let words = [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), flags.to_ne_bytes()];
    words.as_flattened().try_into().expect("four words of four bytes")
}

/// struct ifaddrmsg: family, prefix length, flags, scope (0 is global), index.
fn addr_header(addr: IpAddr, prefix: u8, link: u32) -> [u8; 8] {
    let family = if addr.is_ipv4() { AF_INET } else { AF_INET6 };
    let [a, b, c, d] = link.to_ne_bytes();
    [family, prefix, 0, 0, a, b, c, d]
}

fn broadcast(addr: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
    Ipv4Addr::from_bits(addr.to_bits() | host)
}

fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

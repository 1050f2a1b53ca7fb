//! kube-proxy's virtual servers in IPVS mode.

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_GENERIC;
use purelb_core::data_path::Question;
use purelb_core::pool::Port;
use rustix::io::Errno;

use super::netfilter::number;
use crate::agent::kernel::message::{Request, attribute, u16_at};
use crate::agent::kernel::numbers::{AF_INET, AF_INET6, IFLA_IFNAME, RTM_GETLINK};
use crate::agent::kernel::{Asking, list, question};

/// The interface that kube-proxy makes in this mode and in no other.
const INTERFACE: &[u8] = b"kube-ipvs0\0";

/// linux/genetlink.h
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const HEADER: usize = 4;

/// linux/ip_vs.h
const GET_SERVICE: u8 = 4;
const GET_DESTINATION: u8 = 8;
const SERVICE: u16 = 1;
const SERVICE_FAMILY: u16 = 1;
const SERVICE_PROTOCOL: u16 = 2;
const SERVICE_ADDRESS: u16 = 3;
const SERVICE_PORT: u16 = 4;

/// Whether kube-proxy runs in this mode.
///
/// The interface says so, not the kernel's virtual servers: to ask whether there are any loads them.
pub(super) fn is_there(links: &mut Asking) -> io::Result<bool> {
    let request = question(RTM_GETLINK, &[0; 16]).attribute(IFLA_IFNAME, INTERFACE);
    match links.ask(vec![request], |_| ())?.pop() {
        Some(Err(refusal)) if refusal.errno != Errno::NODEV => Err(refusal.into()),
        answer => Ok(matches!(answer, Some(Ok(())))),
    }
}

/// A socket to the kernel's virtual servers.
pub(super) struct VirtualServers {
    asking: Asking,
    family: u16,
}

impl VirtualServers {
    /// Opens one in the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        let mut asking = Asking::open_to(NETLINK_GENERIC)?;
        let mut family = None;
        let request = question(CONTROLLER, &[GET_FAMILY, 1, 0, 0]).attribute(FAMILY_NAME, b"IPVS\0");
        let answers = asking.ask(vec![request], |message| {
            family = message.body.get(HEADER..).and_then(|body| u16_at(attribute(body, FAMILY_ID)?, 0));
        })?;
        answers.into_iter().collect::<Result<Vec<()>, _>>()?;
        let family = family.ok_or_else(|| io::Error::other("a family without a number"))?;
        Ok(Self { asking, family })
    }

    /// Whether there are virtual servers for all ports, and, where the Service has endpoints, servers behind each.
    pub(super) fn answer(&mut self, question: &Question) -> io::Result<bool> {
        for port in &question.ports {
            if !self.is_there(question.addr, *port)? || question.endpoints && !self.has_servers(question.addr, *port)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_there(&mut self, addr: IpAddr, port: Port) -> io::Result<bool> {
        let request = of_service(question(self.family, &[GET_SERVICE, 1, 0, 0]), addr, port);
        match self.asking.ask(vec![request], |_| ())?.pop() {
            Some(Err(refusal)) if refusal.errno != Errno::SRCH => Err(refusal.into()),
            answer => Ok(matches!(answer, Some(Ok(())))),
        }
    }

    fn has_servers(&mut self, addr: IpAddr, port: Port) -> io::Result<bool> {
        let mut any = false;
        let request = of_service(list(self.family, &[GET_DESTINATION, 1, 0, 0]), addr, port);
        self.asking.dump(request, |_| any = true)?;
        Ok(any)
    }
}

/// Names the virtual server that a request is about.
fn of_service(request: Request, addr: IpAddr, port: Port) -> Request {
    let mut bytes = [0; 16];
    let family = match addr {
        IpAddr::V4(addr) => {
            bytes[..4].copy_from_slice(&addr.octets());
            AF_INET
        }
        IpAddr::V6(addr) => {
            bytes = addr.octets();
            AF_INET6
        }
    };
    request.nested(SERVICE, |service| {
        service
            .attribute(SERVICE_FAMILY, &u16::from(family).to_ne_bytes())
            .attribute(SERVICE_PROTOCOL, &u16::from(number(port.protocol)).to_ne_bytes())
            .attribute(SERVICE_ADDRESS, &bytes)
            .attribute(SERVICE_PORT, &port.number.to_be_bytes())
    })
}

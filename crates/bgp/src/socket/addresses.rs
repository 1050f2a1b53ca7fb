//! Which addresses are on the interface of a connection?

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::path::Ends;

/// Every address of this machine at one moment, with the name of its interface.
pub(crate) struct Addresses(Vec<(Vec<u8>, IpAddr)>);

impl Addresses {
    /// What the kernel lists now; `None` when it does not answer.
    pub(crate) fn now() -> Option<Self> {
        interface_addresses().ok().map(Self)
    }

    /// Our end of a connection from this address; `None` when no interface has the address.
    pub(crate) fn ends(&self, local: IpAddr) -> Option<Ends> {
        let (interface, _) = self.0.iter().find(|(_, address)| *address == local)?;
        let beside = self.0.iter().filter(|(name, address)| name == interface && *address != local);
        Some(Ends { local, beside: beside.map(|(_, address)| *address).collect() })
    }
}

/// Our end of a connection from this address. Without an answer from the kernel, the address alone.
pub(crate) fn ends(local: IpAddr) -> Ends {
    let known = Addresses::now().and_then(|addresses| addresses.ends(local));
    known.unwrap_or(Ends { local, beside: Vec::new() })
}

/// Every address of this machine with the name of its interface, as the kernel lists them.
fn interface_addresses() -> io::Result<Vec<(Vec<u8>, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a valid place for the list's beginning.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all = Vec::new();
    let mut next = first;
    // SAFETY: each entry belongs to the list until it is freed below; `next` ends it.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if let Some(address) = address(entry) {
            // SAFETY: an entry's name is a string that ends with zero.
            all.push((unsafe { CStr::from_ptr(entry.ifa_name) }.to_bytes().to_vec(), address));
        }
    }
    // SAFETY: the list came from `getifaddrs`, and nothing of it is used after this.
    unsafe { libc::freeifaddrs(first) };
    Ok(all)
}

fn address(entry: &libc::ifaddrs) -> Option<IpAddr> {
    // SAFETY: the pointer is null or to an address whose family says what it is.
    unsafe {
        match libc::c_int::from(entry.ifa_addr.as_ref()?.sa_family) {
            libc::AF_INET => {
                let raw = std::ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some(Ipv4Addr::from(u32::from_be(raw)).into())
            }
            libc::AF_INET6 => {
                let raw = std::ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr;
                Some(Ipv6Addr::from(raw).into())
            }
            _ => None,
        }
    }
}

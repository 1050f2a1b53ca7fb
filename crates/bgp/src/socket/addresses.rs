//! Which addresses are on the interface of a connection?

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::path::Ends;

/// Our end of a connection from this address. Without an answer from the kernel, the address alone.
pub(crate) fn ends(local: IpAddr) -> Ends {
    let all = interface_addresses().unwrap_or_default();
    let interface = all.iter().find(|(_, address)| *address == local).map(|(name, _)| name.clone());
    let beside = |(name, address): &(Vec<u8>, IpAddr)| {
        (Some(name) == interface.as_ref() && *address != local).then_some(*address)
    };
    Ends { local, beside: all.iter().filter_map(beside).collect() }
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

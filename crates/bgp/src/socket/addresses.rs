//! Which addresses are on the interface of a connection?

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::path::Ends;

/// Every address of this machine at one moment, with the name of its interface.
pub(crate) struct Addresses(Vec<(Vec<u8>, Address)>);

/// An address, and the interface on which it means something, by its number; 0 where it means the same on all.
type Address = (IpAddr, u32);

/// Our end of a connection, as [`Addresses`] knows it.
pub(crate) fn local_end(local: SocketAddr) -> Address {
    match local {
        SocketAddr::V4(local) => ((*local.ip()).into(), 0),
        SocketAddr::V6(local) => ((*local.ip()).into(), local.scope_id()),
    }
}

impl Addresses {
    /// What the kernel lists now; `None` when it does not answer.
    pub(crate) fn now() -> Option<Self> {
        interface_addresses().ok().map(Self)
    }

    /// Our end of a connection from this address; `None` when no interface has the address. A link-local one may be on
    /// several, and is not the same on any two.
    pub(crate) fn ends(&self, local: Address) -> Option<Ends> {
        let (interface, _) = self.0.iter().find(|(_, address)| *address == local)?;
        let beside = self.0.iter().filter(|(name, address)| name == interface && *address != local);
        Some(Ends { local: local.0, beside: beside.map(|(_, (address, _))| *address).collect() })
    }
}

/// Our end of a connection from this address. Without an answer from the kernel, the address alone.
pub(crate) fn ends(local: Address) -> Ends {
    let known = Addresses::now().and_then(|addresses| addresses.ends(local));
    known.unwrap_or(Ends { local: local.0, beside: Vec::new() })
}

/// Every address of this machine with the name of its interface, as the kernel lists them.
fn interface_addresses() -> io::Result<Vec<(Vec<u8>, Address)>> {
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

fn address(entry: &libc::ifaddrs) -> Option<Address> {
    // SAFETY: the pointer is null or to an address whose family says what it is.
    unsafe {
        match libc::c_int::from(entry.ifa_addr.as_ref()?.sa_family) {
            libc::AF_INET => {
                let raw = std::ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in>()).sin_addr.s_addr;
                Some((Ipv4Addr::from(u32::from_be(raw)).into(), 0))
            }
            libc::AF_INET6 => {
                let raw = std::ptr::read_unaligned(entry.ifa_addr.cast::<libc::sockaddr_in6>());
                Some((Ipv6Addr::from(raw.sin6_addr.s6_addr).into(), raw.sin6_scope_id))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_address_that_two_interfaces_have_is_found_on_the_one_of_the_connection() {
        let on = |name: &str, text: &str, scope| (name.as_bytes().to_vec(), (text.parse().unwrap(), scope));
        let all = Addresses(vec![
            on("eth0", "fe80::1", 2),
            on("eth0", "2001:db8::1", 0),
            on("eth1", "fe80::1", 3),
            on("eth1", "2001:db8:1::1", 0),
        ]);
        let beside = |local: &str| all.ends(local_end(local.parse().unwrap())).map(|ends| ends.beside);
        assert_eq!(beside("[fe80::1%3]:179"), Some(vec!["2001:db8:1::1".parse().unwrap()]));
        assert_eq!(beside("[fe80::1%2]:179"), Some(vec!["2001:db8::1".parse().unwrap()]));
        assert_eq!(beside("[2001:db8::1]:179"), Some(vec!["fe80::1".parse().unwrap()]));
        assert_eq!(beside("[fe80::1%4]:179"), None);
    }
}

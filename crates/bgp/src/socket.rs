//! TCP sockets with what BGP asks of them: passwords, hop limits, source addresses.
//!
//! This is the only room with `unsafe`: the standard library and `socket2` have no word for these socket options.
#![allow(unsafe_code)]

mod addresses;

pub(crate) use addresses::{Addresses, ends, local_end};

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::Secret;
use crate::secret;
use crate::wish::{Peer, Ttl};

/// `linux/tcp.h`: TCP_MD5SIG.
const TCP_MD5SIG: libc::c_int = 14;

/// `linux/in.h` and `linux/in6.h`: the least TTL or hop limit that is let in.
const IP_MINTTL: libc::c_int = 21;
const IPV6_MINHOPCOUNT: libc::c_int = 73;

/// The class of routing protocols: DSCP CS6.
const CS6: u32 = 0xc0;

/// Connections waiting to be accepted. A handful of routers dial us, and they dial again.
const BACKLOG: i32 = 64;

/// `struct tcp_md5sig` of `linux/tcp.h`.
#[repr(C)]
struct Md5Signature {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: libc::c_int,
    key: [u8; secret::LONGEST],
}

/// A socket that accepts sessions. Each family has its own, because a password belongs to an address of the socket's family.
pub(crate) fn listener(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // The answer to a peer that drops what comes from afar (RFC 5082) must look near; each session gets its own limit later.
    set_hop_limit(&socket, address.is_ipv6(), 255)?;
    set_class(&socket, address.is_ipv6())?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// A socket to dial a peer with, and where to. The second is the step that failed.
pub(crate) fn dialler(peer: &Peer, internal: bool) -> Result<(Socket, SocketAddr), (&'static str, io::Error)> {
    let step = |name: &'static str| move |error: io::Error| (name, error);
    let target = target(peer).map_err(step("finding the interface"))?;
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP));
    let socket = socket.map_err(step("opening a socket"))?;
    socket.set_nonblocking(true).map_err(step("opening a socket"))?;
    tune(&socket, peer, internal)?;
    if let Some(password) = &peer.password {
        set_password(&socket, peer.address, Some(password)).map_err(step("setting the password"))?;
    }
    if let Some(source) = peer.source {
        let address = scoped(source, 0, target);
        socket.bind(&address.into()).map_err(step("using the source address"))?;
    }
    Ok((socket, target))
}

/// What a session's socket needs, whoever opened it.
pub(crate) fn tune(socket: &Socket, peer: &Peer, internal: bool) -> Result<(), (&'static str, io::Error)> {
    let step = |name: &'static str| move |error: io::Error| (name, error);
    let v6 = peer.address.is_ipv6();
    socket.set_tcp_nodelay(true).map_err(step("setting TCP_NODELAY"))?;
    set_class(socket, v6).map_err(step("setting the traffic class"))?;
    if !peer.hold.is_zero() {
        socket.set_tcp_user_timeout(Some(peer.hold)).map_err(step("setting the TCP timeout"))?;
    }
    if let Some(interface) = &peer.interface {
        socket.bind_device(Some(interface.as_bytes())).map_err(step("binding to the interface"))?;
    }
    let (ours, least) = match peer.ttl {
        Ttl::Security(hops) => (255, Some(256 - u32::from(hops.max(1)))),
        _ if internal => (64, None),
        Ttl::Usual => (1, None),
        Ttl::Multihop(0) => (255, None),
        Ttl::Multihop(hops) => (u32::from(hops), None),
    };
    set_hop_limit(socket, v6, ours).map_err(step("setting the TTL"))?;
    least.map_or(Ok(()), |least| set_least_hop_limit(socket, v6, least)).map_err(step("setting the least TTL"))
}

/// Sets or takes back the password that packets from and to this peer are signed with.
pub(crate) fn set_password(socket: &Socket, peer: IpAddr, password: Option<&Secret>) -> io::Result<()> {
    let secret = password.map_or(&[][..], Secret::expose);
    let mut key = [0; secret::LONGEST];
    key[..secret.len()].copy_from_slice(secret);
    let signature = Md5Signature {
        address: storage(&SockAddr::from(SocketAddr::new(peer, 0))),
        flags: 0,
        prefix_length: 0,
        key_length: u16::try_from(secret.len()).map_err(io::Error::other)?,
        interface: 0,
        key,
    };
    match set_option(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_MD5SIG, &signature) {
        // There was none to take back.
        Err(error) if password.is_none() && error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

fn storage(address: &SockAddr) -> libc::sockaddr_storage {
    // SAFETY: all zeroes is a valid `sockaddr_storage`; an address is at most as long as one, and both are plain bytes.
    unsafe {
        let mut whole: libc::sockaddr_storage = zeroed();
        let length = (address.len() as usize).min(size_of::<libc::sockaddr_storage>());
        std::ptr::copy_nonoverlapping(address.as_ptr().cast::<u8>(), (&raw mut whole).cast::<u8>(), length);
        whole
    }
}

fn set_hop_limit(socket: &Socket, v6: bool, limit: u32) -> io::Result<()> {
    if v6 { socket.set_unicast_hops_v6(limit) } else { socket.set_ttl_v4(limit) }
}

fn set_least_hop_limit(socket: &Socket, v6: bool, limit: u32) -> io::Result<()> {
    let (level, name) = if v6 { (libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT) } else { (libc::IPPROTO_IP, IP_MINTTL) };
    let limit = libc::c_int::try_from(limit).map_err(io::Error::other)?;
    set_option(socket.as_raw_fd(), level, name, &limit)
}

fn set_class(socket: &Socket, v6: bool) -> io::Result<()> {
    if v6 { socket.set_tclass_v6(CS6) } else { socket.set_tos_v4(CS6) }
}

fn set_option<T>(socket: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the pointer and the length are those of one live value, which the kernel only reads.
    let answer = unsafe { libc::setsockopt(socket, level, name, std::ptr::from_ref(value).cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where to dial. A link-local address means something on one interface only.
fn target(peer: &Peer) -> io::Result<SocketAddr> {
    let scope = match (peer.address, &peer.interface) {
        (IpAddr::V6(address), Some(name)) if address.is_unicast_link_local() => interface_index(name)?,
        _ => 0,
    };
    Ok(scoped(peer.address, peer.port, SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, scope))))
}

fn scoped(address: IpAddr, port: u16, like: SocketAddr) -> SocketAddr {
    match (address, like) {
        (IpAddr::V6(address), SocketAddr::V6(like)) if address.is_unicast_link_local() => {
            SocketAddrV6::new(address, port, 0, like.scope_id()).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(io::Error::other)?;
    // SAFETY: the pointer is to a string that ends with zero and lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests;

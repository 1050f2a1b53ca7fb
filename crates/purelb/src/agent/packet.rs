//! Whole Ethernet frames out of an interface.
#![allow(unsafe_code, reason = "no safe library can build the address of a packet socket")]

use std::io;
use std::mem::size_of;

use socket2::{Domain, SockAddr, Socket, Type};

/// A packet socket that only sends.
#[derive(Debug)]
pub(super) struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens one in the network namespace of this thread; needs NET_RAW.
    pub(super) fn open() -> io::Result<Self> {
        // Without a protocol it receives nothing, so that there is never anything to be emptied out.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }

    /// Sends one frame, Ethernet header included, or fails at once.
    pub(super) fn send(&self, link: u32, frame: &[u8]) -> io::Result<()> {
        self.0.send_to(frame, &to(link)).map(drop)
    }
}

/// The frame names its receiver; the socket only has to know the interface.
fn to(link: u32) -> SockAddr {
    let fill = |storage: *mut socket2::SockAddrStorage, length: *mut libc::socklen_t| {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: 0,
            sll_ifindex: link.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        // SAFETY: the storage is larger than any socket address and aligned for each of them, and the length we leave
        // is that of what we wrote.
        unsafe {
            storage.cast::<libc::sockaddr_ll>().write(address);
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        }
        Ok(())
    };
    // SAFETY: `fill` makes the whole of a sockaddr_ll.
    let made = unsafe { SockAddr::try_init(fill) };
    made.expect("filling the address cannot fail").1
}

//! What the kernel need not tell: a node may have all the routes of the Internet, and only default routes concern the agent.

use std::io;

use libc::{BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
use netlink_sys::Socket;
use socket2::{SockFilter, SockRef};

use super::numbers::{RTM_DELROUTE, RTM_NEWROUTE};

/// Where a message has its kind, and a route the length of its destination.
const KIND: u32 = 4;
const LENGTH: u32 = 17;

/// Routes to anywhere but everywhere are dropped before they are queued. A notification is a datagram of its own.
pub(super) fn only_default_routes(socket: &Socket) -> io::Result<()> {
    // The program reads numbers as they are on the wire, netlink writes them as they are in memory.
    let kind = |kind: u16| u32::from(kind.to_be());
    let program = [
        load(BPF_H, KIND),
        jump(kind(RTM_NEWROUTE), 1, 0),
        jump(kind(RTM_DELROUTE), 0, 2),
        load(BPF_B, LENGTH),
        jump(0, 0, 1),
        answer(u32::MAX),
        answer(0),
    ];
    SockRef::from(socket).attach_filter(&program)
}

fn load(size: u32, k: u32) -> SockFilter {
    instruction(BPF_LD | size | BPF_ABS, 0, 0, k)
}

/// Skips `jt` instructions if the value that was loaded is `k`, else `jf`.
fn jump(k: u32, jt: u8, jf: u8) -> SockFilter {
    instruction(BPF_JMP | BPF_JEQ | BPF_K, jt, jf, k)
}

/// So many bytes of it may pass.
fn answer(k: u32) -> SockFilter {
    instruction(BPF_RET | BPF_K, 0, 0, k)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> SockFilter {
    SockFilter::new(code as u16, jt, jf, k)
}

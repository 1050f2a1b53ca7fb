//! Bytes to messages and back.
//!
//! Encoding, and the capabilities of an OPEN, are the work of `netgauze-bgp-pkt`. Three things are done here by hand: the
//! frame, because its checks decide which notification is sent; a NOTIFICATION, because one with a code that nobody has
//! heard of must still be readable (RFC 9687's is new to the codec); and a peer's UPDATE, which is only walked over and
//! counted, so that it costs no memory and no attribute, however odd, can upset anything.

mod decode;
mod encode;
mod walk;

pub use decode::decode;
pub use encode::{EncodeError, can_be_route, encode, room};

use crate::notification::Notification;

/// The header of every message.
pub const HEADER: usize = 19;

/// The longest message (RFC 4271 §4.1); we do not offer longer ones (RFC 8654).
pub const LONGEST: usize = 4096;

/// Types of messages.
pub(crate) mod kind {
    pub(crate) const OPEN: u8 = 1;
    pub(crate) const UPDATE: u8 = 2;
    pub(crate) const NOTIFICATION: u8 = 3;
    pub(crate) const KEEPALIVE: u8 = 4;
    pub(crate) const REFRESH: u8 = 5;
}

/// What a header says: the type, and the length of the body that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The type of the message.
    pub kind: u8,
    /// Octets after the header.
    pub body: usize,
}

/// Reads a header (RFC 4271 §4.1).
///
/// # Errors
/// The notification to close the connection with (§6.1).
pub fn frame(header: &[u8; HEADER]) -> Result<Frame, Notification> {
    if header[..16] != [0xff; 16] {
        return Err(Notification::new(1, 1));
    }
    let (length, kind) = (u16::from_be_bytes([header[16], header[17]]), header[18]);
    let fits = match kind {
        kind::OPEN => 29..=LONGEST,
        kind::UPDATE => 23..=LONGEST,
        kind::NOTIFICATION => 21..=LONGEST,
        kind::KEEPALIVE => HEADER..=HEADER,
        kind::REFRESH => 23..=23,
        _ if (HEADER..=LONGEST).contains(&usize::from(length)) => {
            return Err(Notification::new(1, 3).with([kind]));
        }
        _ => HEADER..=LONGEST,
    };
    if !fits.contains(&usize::from(length)) {
        return Err(Notification::new(1, 2).with(length.to_be_bytes()));
    }
    Ok(Frame { kind, body: usize::from(length) - HEADER })
}

#[cfg(test)]
mod tests;

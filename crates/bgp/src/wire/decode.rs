//! Bytes to messages.

use std::net::Ipv4Addr;

use netgauze_bgp_pkt::capabilities::BgpCapability;
use netgauze_iana::address_family::AddressType;
use netgauze_parse_utils::reader::SliceReader;
use netgauze_parse_utils::traits::ParseFrom;

use super::{kind, walk};
use crate::message::{Capabilities, Graceful, Heard, Open};
use crate::notification::Notification;
use crate::wish::Family;

/// Type of the one optional parameter there is: capabilities (RFC 5492 §4).
const CAPABILITIES: u8 = 2;

/// Capabilities that are lists of families. They are read by hand: the codec gives a list up for one family that it does
/// not know.
const EXTENDED_NEXT_HOP: u8 = 5;
const GRACEFUL_RESTART: u8 = 64;

/// IPv4 unicast with a next hop of IPv6 (RFC 8950 §4).
const V4_THROUGH_V6: [u8; 6] = [0, 1, 0, 1, 0, 2];

/// Length and type that announce lengths of two octets (RFC 9072 §2).
const EXTENDED: u8 = 255;

/// Reads the body of a message whose header was good.
///
/// # Errors
/// The notification to close the connection with.
pub fn decode(kind: u8, body: &[u8]) -> Result<Heard, Notification> {
    match kind {
        kind::OPEN => open(body).map(Heard::Open),
        kind::UPDATE => walk::update(body).map(Heard::Update),
        kind::NOTIFICATION => notification(body).map(Heard::Notification),
        kind::KEEPALIVE => Ok(Heard::Keepalive),
        kind::REFRESH => refresh(body).map(Heard::Refresh),
        other => Err(Notification::new(1, 3).with([other])),
    }
}

fn notification(body: &[u8]) -> Result<Notification, Notification> {
    match body {
        [code, subcode, data @ ..] => Ok(Notification::new(*code, *subcode).with(data)),
        _ => Err(Notification::new(1, 2)),
    }
}

/// AFI, operation, SAFI (RFC 2918 §3, RFC 7313 §3.2). Only requests matter: we ask nobody to refresh.
fn refresh(body: &[u8]) -> Result<Option<Family>, Notification> {
    match body {
        [0, 1, 0, 1] => Ok(Some(Family::V4)),
        [0, 2, 0, 1] => Ok(Some(Family::V6)),
        [_, _, _, _] => Ok(None),
        _ => Err(Notification::new(7, 1)),
    }
}

fn open(body: &[u8]) -> Result<Open, Notification> {
    let Some((fixed, parameters)) = body.split_first_chunk::<10>() else {
        return Err(Notification::new(2, 0));
    };
    let [version, as_high, as_low, hold_high, hold_low, a, b, c, d, length] = *fixed;
    if version != 4 {
        return Err(Notification::new(2, 1).with([0, 4]));
    }
    let hold = u16::from_be_bytes([hold_high, hold_low]);
    if hold == 1 || hold == 2 {
        return Err(Notification::new(2, 6).with(hold.to_be_bytes()));
    }
    let id = Ipv4Addr::new(a, b, c, d);
    if id.is_unspecified() {
        return Err(Notification::new(2, 3).with(id.octets()));
    }
    let mut reading = Reading { asn: u32::from(u16::from_be_bytes([as_high, as_low])), can: Capabilities::default() };
    reading.parameters(length, parameters)?;
    Ok(Open { asn: reading.asn, hold, id, can: reading.can })
}

/// What is known so far of an OPEN.
struct Reading {
    asn: u32,
    can: Capabilities,
}

impl Reading {
    fn parameters(&mut self, length: u8, bytes: &[u8]) -> Result<(), Notification> {
        let malformed = || Notification::new(2, 0);
        let (mut rest, wide) = match bytes {
            [EXTENDED, high, low, rest @ ..] if length != 0 => {
                (rest.get(..usize::from(u16::from_be_bytes([*high, *low]))).ok_or_else(malformed)?, true)
            }
            _ => (bytes.get(..usize::from(length)).ok_or_else(malformed)?, false),
        };
        while let Some((&kind, after)) = rest.split_first() {
            let (value, next) = sized(after, wide).ok_or_else(malformed)?;
            if kind != CAPABILITIES {
                return Err(Notification::new(2, 4));
            }
            self.capabilities(value).ok_or_else(malformed)?;
            rest = next;
        }
        Ok(())
    }

    /// Hands the codec one capability at a time, so that one that it cannot read does not spoil the next.
    fn capabilities(&mut self, mut bytes: &[u8]) -> Option<()> {
        while let Some((&code, after)) = bytes.split_first() {
            let (value, rest) = sized(after, false)?;
            let whole = bytes.get(..value.len() + 2)?;
            match code {
                EXTENDED_NEXT_HOP => {
                    self.can.extended_next_hop |= value.chunks_exact(6).any(|one| one == V4_THROUGH_V6)
                }
                GRACEFUL_RESTART => self.can.graceful = graceful(value).or(self.can.graceful.take()),
                _ => {
                    if let Ok(capability) = BgpCapability::parse(&mut SliceReader::new(whole)) {
                        self.capability(&capability);
                    }
                }
            }
            bytes = rest;
        }
        Some(())
    }

    fn capability(&mut self, capability: &BgpCapability) {
        match capability {
            BgpCapability::MultiProtocolExtensions(offer) => {
                let families = self.can.families.get_or_insert_default();
                family(offer.address_type()).into_iter().for_each(|family| families.add(family));
            }
            BgpCapability::RouteRefresh => self.can.refresh = true,
            BgpCapability::FourOctetAs(offer) => {
                self.can.four_octets = true;
                self.asn = offer.asn4();
            }
            BgpCapability::Fqdn(offer) => self.can.name = offer.hostname().into(),
            _ => {}
        }
    }
}

/// A length of one or two octets, that many octets, and the rest.
fn sized(bytes: &[u8], wide: bool) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match bytes {
        [high, low, rest @ ..] if wide => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [length, rest @ ..] if !wide => (usize::from(*length), rest),
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn family(kind: AddressType) -> Option<Family> {
    match kind {
        AddressType::Ipv4Unicast => Some(Family::V4),
        AddressType::Ipv6Unicast => Some(Family::V6),
        _ => None,
    }
}

/// Flags of four bits and a time of twelve, and then each family with flags of its own.
fn graceful(value: &[u8]) -> Option<Graceful> {
    let (head, tuples) = value.split_first_chunk::<2>()?;
    let head = u16::from_be_bytes(*head);
    let mut graceful = Graceful { restarting: head & 0x8000 != 0, time: head & 0x0fff, ..Graceful::default() };
    for tuple in tuples.chunks_exact(4) {
        let family = match tuple {
            [0, 1, 1, _] => Family::V4,
            [0, 2, 1, _] => Family::V6,
            _ => continue,
        };
        graceful.families.add(family);
        graceful.preserved |= tuple[3] & 0x80 != 0;
    }
    Some(graceful)
}

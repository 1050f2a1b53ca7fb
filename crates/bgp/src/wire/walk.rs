//! Counts the routes of an UPDATE without keeping any of it (RFC 4271 §4.3, RFC 7606).

use crate::message::Tally;
use crate::notification::Notification;
use crate::wish::Family;

/// Types and flags of path attributes.
const MP_REACH: u8 = 14;
const MP_UNREACH: u8 = 15;
const EXTENDED_LENGTH: u8 = 0x10;

/// What an UPDATE amounts to.
///
/// We keep no routes, so whatever an attribute says wrongly can be dropped without a contradiction: only lengths that
/// leave the message itself in doubt reset a session.
///
/// # Errors
/// Such lengths, as the notification to close with.
pub(super) fn update(body: &[u8]) -> Result<Tally, Notification> {
    let malformed = || Notification::new(3, 1);
    let (withdrawn, rest) = sized(body).ok_or_else(malformed)?;
    let (attributes, announced) = sized(rest).ok_or_else(malformed)?;
    let unreadable = || Notification::new(3, 10);
    let mut tally = Tally {
        withdrawn: prefixes(withdrawn, 32).ok_or_else(unreadable)?,
        announced: prefixes(announced, 32).ok_or_else(unreadable)?,
        ..Tally::default()
    };
    if body.len() == 4 {
        tally.end_of_rib = Some(Family::V4);
    } else if walk(attributes, &mut tally).is_none() {
        return Ok(Tally { malformed: true, ..Tally::default() });
    }
    Ok(tally)
}

/// Goes over the attributes; `None` when one makes no sense.
fn walk(mut bytes: &[u8], tally: &mut Tally) -> Option<()> {
    while let [flags, kind, rest @ ..] = bytes {
        let (value, rest) = if flags & EXTENDED_LENGTH != 0 {
            sized(rest)?
        } else {
            let (&length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(length))?
        };
        match *kind {
            MP_REACH => reach(value, tally)?,
            MP_UNREACH => unreach(value, tally)?,
            _ => {}
        }
        bytes = rest;
    }
    bytes.is_empty().then_some(())
}

/// AFI, SAFI, next hop with its length, a reserved octet, prefixes (RFC 4760 §3). Other families are not counted.
fn reach(value: &[u8], tally: &mut Tally) -> Option<()> {
    let (&[high, low, safi, length], rest) = value.split_first_chunk::<4>()?;
    let prefixes_there = rest.get(usize::from(length) + 1..)?;
    if let Some(family) = family([high, low, safi]) {
        tally.announced += prefixes(prefixes_there, bits(family))?;
    }
    Some(())
}

/// AFI, SAFI, prefixes (RFC 4760 §4); without prefixes, the end of a family's first telling (RFC 4724 §2).
fn unreach(value: &[u8], tally: &mut Tally) -> Option<()> {
    let (&head, prefixes_there) = value.split_first_chunk::<3>()?;
    if let Some(family) = family(head) {
        tally.withdrawn += prefixes(prefixes_there, bits(family))?;
        if prefixes_there.is_empty() {
            tally.end_of_rib = Some(family);
        }
    }
    Some(())
}

/// Counts prefixes; `None` when one is too long for its family or for the bytes there are.
fn prefixes(mut bytes: &[u8], longest: u8) -> Option<u64> {
    let mut count = 0;
    while let Some((&length, rest)) = bytes.split_first() {
        if length > longest {
            return None;
        }
        bytes = rest.get(usize::from(length.div_ceil(8))..)?;
        count += 1;
    }
    Some(count)
}

/// A length of two octets, that many octets, and the rest.
fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

fn family(head: [u8; 3]) -> Option<Family> {
    match head {
        [0, 1, 1] => Some(Family::V4),
        [0, 2, 1] => Some(Family::V6),
        _ => None,
    }
}

fn bits(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

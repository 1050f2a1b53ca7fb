//! Families, address ranges and prefixes, and the ways people write them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::reason::Reason;

/// The two kinds of IP address, with the names Kubernetes gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Family {
    /// IPv4, and IPv6 addresses that map an IPv4 one (`::ffff:192.0.2.1`).
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address; an IPv4-mapped IPv6 address is IPv4.
    pub fn of(addr: IpAddr) -> Self {
        match addr.to_canonical() {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// The longest prefix of the family: 32 or 128.
    pub fn max_prefix(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// How the field names of a ServiceGroup begin: `v4` or `v6`.
    pub fn short(self) -> &'static str {
        match self {
            Family::V4 => "v4",
            Family::V6 => "v6",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// An address as a number, for arithmetic inside its family.
pub(crate) fn bits(addr: IpAddr) -> u128 {
    match addr.to_canonical() {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The address that a number stands for in a family.
///
/// The caller's number came from [`bits`] of the same family, so an IPv4 number always fits.
pub(crate) fn addr_of(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

/// Consecutive addresses of one family, both ends included and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
// Written as people type it: numbers of 128 bits are more than most readers of JSON can hold.
#[serde(into = "String", try_from = "String")]
pub struct AddrRange {
    family: Family,
    first: u128,
    last: u128,
}

impl AddrRange {
    /// The range between two addresses, both included.
    pub fn new(first: IpAddr, last: IpAddr) -> Result<Self, Reason> {
        let range = Self { family: Family::of(first), first: bits(first), last: bits(last) };
        if range.family != Family::of(last) {
            return Err(Reason::RangeMixedFamilies { first: first.to_canonical(), last: last.to_canonical() });
        }
        if range.first > range.last {
            let (first, last) = (first.to_canonical(), last.to_canonical());
            return Err(Reason::RangeReversed { first, last, instead: straighten(first, last) });
        }
        Ok(range)
    }

    /// Reads the text of a `pool` field: `a-b`, a CIDR whose host bits say where to start, or one address.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let trimmed = text.trim();
        if let Some((from, to)) = trimmed.split_once('-') {
            let syntax = |which: &str, part: &str| Reason::RangeSyntax {
                problem: format!("invalid IP range {text:?}: invalid {which} IP {:?}", part.trim()),
            };
            let first = from.trim().parse().map_err(|_| syntax("start", from))?;
            let last = to.trim().parse().map_err(|_| syntax("end", to))?;
            return Self::new(first, last);
        }
        if let Ok(addr) = trimmed.parse() {
            return Self::new(addr, addr);
        }
        let (addr, prefix) =
            cidr(trimmed).ok_or_else(|| Reason::RangeSyntax { problem: format!("invalid CIDR {text:?}") })?;
        let family = Family::of(addr);
        let hosts = hosts(family, prefix);
        Ok(Self { family, first: bits(addr), last: bits(addr) | hosts })
    }

    /// The family of every address in the range.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The lowest address.
    pub fn first(&self) -> IpAddr {
        addr_of(self.family, self.first)
    }

    /// The highest address.
    pub fn last(&self) -> IpAddr {
        addr_of(self.family, self.last)
    }

    /// How many addresses there are; all of IPv6 is one too many for the number and saturates.
    pub fn size(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }

    /// Whether an address lies in the range.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.family == Family::of(addr) && (self.first..=self.last).contains(&bits(addr))
    }

    /// Whether two ranges have an address in common; it does not matter which of them is asked.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.family == other.family && self.first <= other.last && other.first <= self.last
    }

    /// Refuses a range with an end outside its subnet.
    pub fn within(&self, subnet: IpNet) -> Result<(), Reason> {
        match [self.first(), self.last()].into_iter().find(|end| !subnet.contains(end)) {
            Some(outside) => Err(Reason::RangeOutsideSubnet { range: *self, subnet, outside }),
            None => Ok(()),
        }
    }

    /// The ends as numbers, for the pool's arithmetic.
    pub(crate) fn bounds(&self) -> (u128, u128) {
        (self.first, self.last)
    }

    /// The range as a person would type it into a `pool` field.
    pub fn typed(&self) -> String {
        format!("{}-{}", self.first(), self.last())
    }
}

impl From<AddrRange> for String {
    fn from(range: AddrRange) -> Self {
        range.typed()
    }
}

impl TryFrom<String> for AddrRange {
    type Error = Reason;

    fn try_from(text: String) -> Result<Self, Reason> {
        Self::parse(&text)
    }
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} - {})", self.first(), self.last())
    }
}

/// The prefix that a virtual address gets on the virtual interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Aggregation {
    /// `default`: the prefix of the entry's own subnet.
    Subnet,
    /// `/N`: this prefix, whatever the subnet's.
    Prefix(u8),
}

/// The shortest prefix `aggregation` may have. Anything shorter would claim a good part of the Internet.
const SHORTEST_AGGREGATION: u8 = 8;

impl Aggregation {
    /// Reads the text of an `aggregation` field for a pool of the given family.
    pub fn parse(text: &str, family: Family) -> Result<Self, Reason> {
        if text == "default" {
            return Ok(Aggregation::Subnet);
        }
        let refuse = || Reason::AggregationSyntax { text: text.to_owned(), longest: family.max_prefix() };
        let digits = text.strip_prefix('/').ok_or_else(refuse)?;
        match prefix(digits) {
            Some(length) if length > family.max_prefix() => Err(Reason::AggregationTooLong { length, family }),
            Some(length) if length >= SHORTEST_AGGREGATION => Ok(Aggregation::Prefix(length)),
            _ => Err(refuse()),
        }
    }
}

/// Reads the text of a `subnet` field; host bits are tolerated and dropped.
pub fn parse_subnet(text: &str) -> Result<IpNet, Reason> {
    let syntax = || Reason::SubnetSyntax { text: text.to_owned() };
    let (addr, prefix) = cidr(text.trim()).ok_or_else(syntax)?;
    IpNet::new(addr, prefix).map(|net| net.trunc()).map_err(|_| syntax())
}

/// A count as it leaves the process: Kubernetes integers and metrics end at an i64.
pub fn saturate(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Address and prefix length of a CIDR, IPv4-mapped ones as IPv4.
fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (addr, length) = text.split_once('/')?;
    let (addr, length) = (addr.parse::<IpAddr>().ok()?, prefix(length)?);
    let canonical = addr.to_canonical();
    // `::ffff:192.0.2.0/120` is `192.0.2.0/24`; with less than 96 bits it would no longer be IPv4 only.
    let length = if addr.is_ipv6() && canonical.is_ipv4() { length.checked_sub(96)? } else { length };
    (length <= Family::of(canonical).max_prefix()).then_some((canonical, length))
}

/// A prefix length without sign or leading zeros.
fn prefix(digits: &str) -> Option<u8> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

/// The host part of a prefix, all ones.
fn hosts(family: Family, prefix: u8) -> u128 {
    let free = u32::from(family.max_prefix() - prefix);
    1_u128.checked_shl(free).unwrap_or(0).wrapping_sub(1)
}

/// What the author of a reversed range most likely meant.
///
/// Ends that differ only in their last part were swapped. Otherwise one part of the second end is a slip of the
/// keyboard, and the same part of the first end mends it: `172.32.100.225-172.30.100.229` meant `172.32.100.229`.
fn straighten(first: IpAddr, last: IpAddr) -> String {
    let family = Family::of(first);
    let (a, b) = (bits(first), bits(last));
    let width = if family == Family::V4 { 8 } else { 16 };
    let mended = (1..u32::from(family.max_prefix()) / width)
        .map(|part| ((1_u128 << width) - 1) << (part * width))
        .map(|mask| (a & mask) | (b & !mask))
        .find(|mended| *mended >= a);
    match mended {
        Some(mended) => format!("{first}-{}", addr_of(family, mended)),
        None => format!("{last}-{first}"),
    }
}

#[cfg(test)]
mod tests;

//! Messages to bytes.

use std::net::IpAddr;

use ipnet::IpNet;
use netgauze_bgp_pkt::BgpMessage;
use netgauze_bgp_pkt::capabilities::{
    BgpCapability, ExtendedNextHopEncoding, ExtendedNextHopEncodingCapability, FourOctetAsCapability, FqdnCapability,
    GracefulRestartAddressFamily, GracefulRestartCapability, MultiProtocolExtensionsCapability,
};
use netgauze_bgp_pkt::community::{Community, LargeCommunity};
use netgauze_bgp_pkt::nlri::{Ipv4Unicast, Ipv4UnicastAddress, Ipv6Unicast, Ipv6UnicastAddress};
use netgauze_bgp_pkt::open::{BgpOpenMessage, BgpOpenMessageParameter};
use netgauze_bgp_pkt::path_attribute::{
    As2PathSegment, As4Path, As4PathSegment, AsPath, AsPathSegmentType, Communities, LargeCommunities, LocalPreference,
    MpReach, MpUnreach, MultiExitDiscriminator, NextHop as ClassicNextHop, Origin, PathAttribute, PathAttributeValue,
};
use netgauze_bgp_pkt::update::BgpUpdateMessage;
use netgauze_iana::address_family::{AddressFamily, AddressType};
use netgauze_parse_utils::WritablePdu;

use super::{HEADER, LONGEST, kind};
use crate::message::{Capabilities, Graceful, Message, Open, Update};
use crate::notification::Notification;
use crate::path::{NextHop, Path};
use crate::wish::Family;

/// The AS number that stands for one of four octets (RFC 6793 §9).
const AS_TRANS: u16 = 23456;

/// What cannot be said in BGP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The codec refused.
    #[error("cannot write a BGP message: {0}")]
    Codec(String),
    /// Longer than a message may be.
    #[error("a BGP message of {0} octets is longer than the 4096 that are allowed")]
    TooLong(usize),
}

/// The bytes of a message.
///
/// # Errors
/// When it does not fit into one message.
pub fn encode(message: &Message) -> Result<Vec<u8>, EncodeError> {
    let whole = match message {
        Message::Open(hello) => BgpMessage::Open(open(hello)),
        Message::Update(news) => BgpMessage::Update(update(news)),
        Message::Keepalive => BgpMessage::KeepAlive,
        Message::Notification(farewell) => return Ok(notification(farewell)),
    };
    // Asked first: the codec writes the lower 16 bits of a length whatever it is.
    let length = whole.len();
    if length > LONGEST {
        return Err(EncodeError::TooLong(length));
    }
    let mut bytes = Vec::with_capacity(length);
    whole.write(&mut bytes).map_err(|error| EncodeError::Codec(error.to_string()))?;
    Ok(bytes)
}

/// How many octets of prefixes fit beside the attributes of a path.
#[must_use]
pub fn room(path: &Path) -> usize {
    LONGEST.saturating_sub(BgpMessage::Update(announce(path, &[])).len())
}

/// Whether a prefix can be a unicast route at all.
#[must_use]
pub fn can_be_route(prefix: &IpNet) -> bool {
    match prefix {
        IpNet::V4(net) => Ipv4Unicast::from_net(net.trunc()).is_ok(),
        IpNet::V6(net) => Ipv6Unicast::from_net(net.trunc()).is_ok(),
    }
}

fn notification(farewell: &Notification) -> Vec<u8> {
    let data = &farewell.data[..farewell.data.len().min(LONGEST - HEADER - 2)];
    let length = u16::try_from(HEADER + 2 + data.len()).unwrap_or(u16::MAX);
    let mut bytes = vec![0xff; 16];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&[kind::NOTIFICATION, farewell.code, farewell.subcode]);
    bytes.extend_from_slice(data);
    bytes
}

fn open(hello: &Open) -> BgpOpenMessage {
    let short = u16::try_from(hello.asn).unwrap_or(AS_TRANS);
    let offers = BgpOpenMessageParameter::new_capabilities(capabilities(hello.asn, &hello.can));
    BgpOpenMessage::new(short, hello.hold, hello.id, vec![offers])
}

fn capabilities(asn: u32, can: &Capabilities) -> Vec<BgpCapability> {
    let family = |family| MultiProtocolExtensionsCapability::new(address_type(family));
    let families = can.families.into_iter().flat_map(|families| families.iter().collect::<Vec<_>>());
    let mut all: Vec<_> = families.map(|one| BgpCapability::MultiProtocolExtensions(family(one))).collect();
    if can.refresh {
        all.push(BgpCapability::RouteRefresh);
    }
    if can.extended_next_hop {
        let encoding = ExtendedNextHopEncoding::new(AddressType::Ipv4Unicast, AddressFamily::IPv6);
        all.push(BgpCapability::ExtendedNextHopEncoding(ExtendedNextHopEncodingCapability::new(vec![encoding])));
    }
    all.extend(can.graceful.as_ref().map(|graceful| BgpCapability::GracefulRestartCapability(restart(graceful))));
    if can.four_octets {
        all.push(BgpCapability::FourOctetAs(FourOctetAsCapability::new(asn)));
    }
    if !can.name.is_empty() {
        all.push(BgpCapability::Fqdn(FqdnCapability::new(can.name.as_str().into(), "".into())));
    }
    all
}

fn restart(graceful: &Graceful) -> GracefulRestartCapability {
    let kept = |family| GracefulRestartAddressFamily::new(graceful.preserved, address_type(family));
    let families: Vec<_> = graceful.families.iter().map(kept).collect();
    GracefulRestartCapability::new(graceful.restarting, false, graceful.time, families)
}

fn address_type(family: Family) -> AddressType {
    match family {
        Family::V4 => AddressType::Ipv4Unicast,
        Family::V6 => AddressType::Ipv6Unicast,
    }
}

fn update(news: &Update) -> BgpUpdateMessage {
    match news {
        Update::Announce(path, prefixes) => announce(path, prefixes),
        Update::Withdraw(prefixes, false) if prefixes.iter().all(|net| matches!(net, IpNet::V4(_))) => {
            BgpUpdateMessage::new(v4(prefixes), vec![], vec![])
        }
        Update::Withdraw(prefixes, _) => {
            let family = prefixes.first().map_or(Family::V4, Family::of_net);
            BgpUpdateMessage::new(vec![], vec![unreach(family, prefixes)], vec![])
        }
        Update::EndOfRib(Family::V4) => BgpUpdateMessage::new(vec![], vec![], vec![]),
        Update::EndOfRib(Family::V6) => BgpUpdateMessage::new(vec![], vec![unreach(Family::V6, &[])], vec![]),
    }
}

/// Attributes in ascending order of their types (RFC 4271 §5, appendix F.3), but MP_REACH_NLRI first: a router that finds a
/// later attribute malformed must still see which prefixes it concerns (RFC 7606 §5.1).
fn announce(path: &Path, prefixes: &[IpNet]) -> BgpUpdateMessage {
    let mut all: Vec<_> = reach(path, prefixes).map(PathAttributeValue::MpReach).into_iter().collect();
    all.extend([PathAttributeValue::Origin(Origin::IGP), as_path(path)]);
    let mut classic = vec![];
    if let NextHop::V4(address) = path.next_hop {
        all.push(PathAttributeValue::NextHop(ClassicNextHop::new(address)));
        classic = v4(prefixes);
    }
    all.extend(path.med.map(|metric| PathAttributeValue::MultiExitDiscriminator(MultiExitDiscriminator::new(metric))));
    all.extend(path.local_pref.map(|metric| PathAttributeValue::LocalPreference(LocalPreference::new(metric))));
    if !path.communities.is_empty() {
        let list: Vec<_> = path.communities.iter().map(|value| Community::new(*value)).collect();
        all.push(PathAttributeValue::Communities(Communities::new(list)));
    }
    all.extend(as4_path(path));
    if !path.large_communities.is_empty() {
        let list: Vec<_> = path.large_communities.iter().map(|[a, b, c]| LargeCommunity::new(*a, *b, *c)).collect();
        all.push(PathAttributeValue::LargeCommunities(LargeCommunities::new(list)));
    }
    BgpUpdateMessage::new(vec![], all.into_iter().filter_map(attribute).collect::<Vec<_>>(), classic)
}

/// An attribute with the flags that its type must have, and a length of two octets where one may not do.
fn attribute(value: PathAttributeValue) -> Option<PathAttribute> {
    let optional = value.can_be_optional().unwrap_or(true);
    let transitive = value.can_be_transitive().unwrap_or(true);
    let long = matches!(
        value,
        PathAttributeValue::MpReach(_)
            | PathAttributeValue::MpUnreach(_)
            | PathAttributeValue::AsPath(_)
            | PathAttributeValue::As4Path(_)
            | PathAttributeValue::Communities(_)
            | PathAttributeValue::LargeCommunities(_)
    );
    PathAttribute::from(optional, transitive, false, long, value).ok()
}

fn as_path(path: &Path) -> PathAttributeValue {
    let sequence = AsPathSegmentType::AsSequence;
    if path.four_octets {
        let segments = path.as_path.chunks(255).map(|some| As4PathSegment::new(sequence, some));
        return PathAttributeValue::AsPath(AsPath::as4_path_segments(segments.collect::<Vec<_>>()));
    }
    let short: Vec<_> = path.as_path.iter().map(|asn| u16::try_from(*asn).unwrap_or(AS_TRANS)).collect();
    let segments = short.chunks(255).map(|some| As2PathSegment::new(sequence, some));
    PathAttributeValue::AsPath(AsPath::as2_path_segments(segments.collect::<Vec<_>>()))
}

/// For a peer that reads two octets only, what AS_TRANS stands for (RFC 6793 §4.2.2).
fn as4_path(path: &Path) -> Option<PathAttributeValue> {
    let needed = !path.four_octets && path.as_path.iter().any(|asn| u16::try_from(*asn).is_err());
    let segments = path.as_path.chunks(255).map(|some| As4PathSegment::new(AsPathSegmentType::AsSequence, some));
    needed.then(|| PathAttributeValue::As4Path(As4Path::new(segments.collect::<Vec<_>>())))
}

fn reach(path: &Path, prefixes: &[IpNet]) -> Option<MpReach> {
    let NextHop::V6(global, local) = path.next_hop else { return None };
    Some(match path.family {
        Family::V4 => {
            MpReach::Ipv4Unicast { next_hop: IpAddr::V6(global), next_hop_local: local, nlri: v4(prefixes).into() }
        }
        Family::V6 => {
            MpReach::Ipv6Unicast { next_hop_global: global, next_hop_local: local, nlri: v6(prefixes).into() }
        }
    })
}

fn unreach(family: Family, prefixes: &[IpNet]) -> PathAttribute {
    let value = match family {
        Family::V4 => MpUnreach::Ipv4Unicast { nlri: v4(prefixes).into() },
        Family::V6 => MpUnreach::Ipv6Unicast { nlri: v6(prefixes).into() },
    };
    attribute(PathAttributeValue::MpUnreach(value)).expect("the flags are those the codec asks for")
}

/// The IPv4 prefixes that can be routes: a multicast one cannot, and the codec refuses it.
fn v4(prefixes: &[IpNet]) -> Vec<Ipv4UnicastAddress> {
    let unicast = |net: &IpNet| match net {
        IpNet::V4(net) => Ipv4Unicast::from_net(net.trunc()).ok().map(Ipv4UnicastAddress::new_no_path_id),
        IpNet::V6(_) => None,
    };
    prefixes.iter().filter_map(unicast).collect()
}

/// The same for IPv6.
fn v6(prefixes: &[IpNet]) -> Vec<Ipv6UnicastAddress> {
    let unicast = |net: &IpNet| match net {
        IpNet::V6(net) => Ipv6Unicast::from_net(net.trunc()).ok().map(|net| Ipv6UnicastAddress::new(None, net)),
        IpNet::V4(_) => None,
    };
    prefixes.iter().filter_map(unicast).collect()
}

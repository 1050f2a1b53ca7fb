//! Small things that are written in several places: AS numbers, addresses, communities, seconds.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use purelb_core::bgp::{Operator, Requirement, Selector};
use purelb_core::reason::Reason;

/// An AS number; 0 is none (RFC 7607).
pub fn asn(value: i64) -> Result<u32, Reason> {
    u32::try_from(value).ok().filter(|asn| *asn > 0).ok_or(Reason::AsnInvalid { value })
}

/// An AS number that may be left away, or be 0 for the same.
pub fn optional_asn(value: Option<i64>) -> Result<Option<u32>, Reason> {
    value.filter(|value| *value != 0).map(asn).transpose()
}

/// An address of either family.
pub fn address(text: &str, wanted: &'static str, example: &'static str) -> Result<IpAddr, Reason> {
    text.trim().parse().map_err(|_| Reason::AddressSyntax { text: text.to_owned(), wanted, example })
}

/// A number inside limits.
pub fn within(value: i64, lowest: i64, highest: i64) -> Result<i64, Reason> {
    if (lowest..=highest).contains(&value) {
        Ok(value)
    } else {
        Err(Reason::NumberOutOfRange { value, lowest, highest })
    }
}

/// Seconds, of which 0 says nothing.
pub fn seconds(value: Option<i64>, highest: i64) -> Result<Option<Duration>, Reason> {
    let read = value.filter(|value| *value != 0).map(|value| within(value, 0, highest)).transpose()?;
    Ok(read.map(|value| Duration::from_secs(value.unsigned_abs())))
}

/// A community, such as `64512:100`.
pub fn community(text: &str) -> Result<u32, Reason> {
    let parts =
        text.split_once(':').and_then(|(high, low)| Some((high.parse::<u16>().ok()?, low.parse::<u16>().ok()?)));
    let (high, low) = parts.ok_or_else(|| Reason::CommunitySyntax { text: text.to_owned() })?;
    Ok(u32::from(high) << 16 | u32::from(low))
}

/// A large community, such as `64512:1:100`.
pub fn large_community(text: &str) -> Result<[u32; 3], Reason> {
    let parts: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
    let parts = parts.and_then(|parts| parts.try_into().ok());
    parts.ok_or_else(|| Reason::LargeCommunitySyntax { text: text.to_owned() })
}

/// The nodes that two selectors have in common; both can be evaluated.
pub fn selector(written: [Option<&LabelSelector>; 2]) -> Selector {
    let labels = written.into_iter().flatten().flat_map(|selector| selector.match_labels.iter().flatten());
    let labels = labels.map(|(key, value)| (key, Operator::In([value.clone()].into())));
    let expressions = written.into_iter().flatten().flat_map(|selector| selector.match_expressions.iter().flatten());
    let expressions = expressions.map(|requirement| (&requirement.key, operator(requirement)));
    let requirement = |(key, operator): (&String, Operator)| Requirement { key: key.clone(), operator };
    Selector(labels.chain(expressions).map(requirement).collect())
}

fn operator(requirement: &LabelSelectorRequirement) -> Operator {
    let values = || requirement.values.iter().flatten().cloned().collect();
    match requirement.operator.as_str() {
        "In" => Operator::In(values()),
        "NotIn" => Operator::NotIn(values()),
        "Exists" => Operator::Exists,
        _ => Operator::DoesNotExist,
    }
}

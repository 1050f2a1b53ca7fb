//! What can be asked of a sidecar, and what its answers mean.

use std::net::IpAddr;

use purelb_core::addr::Family;

use crate::error::IpamError;
use crate::v1::allocate_request::Selector;
use crate::v1::{AllocateResponse, ExplicitIPs, FamilyRequest, StatsResponse};

/// The most addresses one answer may have.
pub const MAX_IPS: usize = 16;

/// What a Service wants from a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// One address of each family, chosen by the sidecar.
    Families(&'a [Family]),
    /// These addresses and no others.
    Explicit(&'a [IpAddr]),
}

/// How full a pool is; nothing at all before the sidecar has been asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// IPv4 addresses with a holder.
    pub in_use_v4: u64,
    /// IPv6 addresses with a holder.
    pub in_use_v6: u64,
    /// How many addresses there are, if the sidecar knows.
    pub size: Option<Size>,
    /// The ranges as the sidecar wants them shown.
    pub display_addresses: Vec<String>,
}

/// How many addresses a pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// IPv4 addresses.
    pub v4: u64,
    /// IPv6 addresses; 2^64-1 where there are more.
    pub v6: u64,
}

impl Wanted<'_> {
    pub(crate) fn selector(self) -> Selector {
        match self {
            Self::Families(families) => Selector::Families(FamilyRequest {
                want_ipv4: families.contains(&Family::V4),
                want_ipv6: families.contains(&Family::V6),
            }),
            Self::Explicit(addrs) => {
                Selector::Explicit(ExplicitIPs { ips: addrs.iter().map(IpAddr::to_string).collect() })
            }
        }
    }
}

impl From<StatsResponse> for Stats {
    fn from(answer: StatsResponse) -> Self {
        Self {
            in_use_v4: answer.in_use_v4,
            in_use_v6: answer.in_use_v6,
            size: answer.has_known_capacity.then_some(Size { v4: answer.size_v4, v6: answer.size_v6 }),
            display_addresses: answer.display_addresses,
        }
    }
}

/// The addresses of an answer, each once.
pub(crate) fn addresses(answer: AllocateResponse, provider: &str) -> Result<Vec<IpAddr>, IpamError> {
    let provider = || provider.to_owned();
    match answer.ips.len() {
        0 => return Err(IpamError::NoIps { provider: provider() }),
        count if count > MAX_IPS => return Err(IpamError::TooManyIps { provider: provider(), count }),
        _ => (),
    }
    let mut addrs = Vec::new();
    for text in answer.ips.into_iter().map(|ip| ip.ip) {
        let Ok(addr) = text.parse::<IpAddr>() else {
            return Err(IpamError::UnparseableIp { provider: provider(), text });
        };
        let addr = addr.to_canonical();
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    Ok(addrs)
}

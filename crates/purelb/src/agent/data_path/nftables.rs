//! kube-proxy's rules in nftables mode: the element for one address and port in its own maps.

use std::io;

use purelb_core::data_path::Question;

use super::netfilter::{Family, Netfilter, element, key, set};

/// Where traffic to each address and port that has any endpoint goes.
const SERVICES: (&str, &str) = ("kube-proxy", "service-ips");
/// The addresses and ports whose traffic from outside is rejected, or dropped where endpoints are on other nodes only.
const WITHOUT_ENDPOINTS: (&str, &str) = ("kube-proxy", "no-endpoint-services");

/// Whether kube-proxy has its maps here.
pub(super) fn is_there(netfilter: &mut Netfilter) -> io::Result<bool> {
    let maps = Family::BOTH.map(|family| set(family, SERVICES));
    Ok(netfilter.are_there(maps.into())?.contains(&true))
}

/// Whether the maps say, for each of these, what its Service needs.
///
/// kube-proxy fills both in one transaction with the chains that they lead to.
pub(super) fn answers(netfilter: &mut Netfilter, questions: &[&Question]) -> io::Result<Vec<bool>> {
    let mut asked = Vec::new();
    for question in questions {
        let family = Family::of(question.addr);
        for port in &question.ports {
            let key = key(question.addr, *port);
            asked.extend([SERVICES, WITHOUT_ENDPOINTS].map(|map| element(family, map, &key)));
        }
    }
    let found = netfilter.are_there(asked)?;
    let mut ports = found.chunks(2).map(|found| (found[0], found[1]));
    Ok(questions.iter().map(|question| ports.by_ref().take(question.ports.len()).all_of(question.endpoints)).collect())
}

/// As `all`, but to the end, so that the next question finds its own.
trait AllOf {
    fn all_of(self, endpoints: bool) -> bool;
}

impl<I: Iterator<Item = (bool, bool)>> AllOf for I {
    fn all_of(self, endpoints: bool) -> bool {
        self.fold(true, |all, (served, refused)| all & if endpoints { served && !refused } else { refused })
    }
}

//! What PureLB needs to know of a Service.

use std::net::IpAddr;
use std::sync::Arc;

use crate::addr::Family;
use crate::pool::{Claim, Port, ServiceKey};
use crate::reason::Reason;

/// A Service of type LoadBalancer, reduced to what decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// `namespace/name`.
    pub key: ServiceKey,
    /// Which of the objects that ever had this name it is.
    pub uid: String,
    /// `spec.loadBalancerClass`.
    pub class: Option<String>,
    /// Whether it has a cluster address; without one there is nothing to balance.
    pub has_cluster_ip: bool,
    /// Whether it is being deleted, and waits for somebody's finalizer.
    pub is_leaving: bool,
    /// `spec.ipFamilies`, each once, in order.
    pub families: Vec<Family>,
    /// `spec.ipFamilyPolicy`: whether one family of two is better than none.
    pub prefers_dual_stack: bool,
    /// The ports clients connect to.
    pub ports: Vec<Port>,
    /// `spec.loadBalancerIP`, if not empty.
    pub load_balancer_ip: Option<String>,
    /// What the annotations ask for.
    pub asks: Asks,
    /// What the annotations say it was given.
    pub brand: Brand,
    /// `status.loadBalancer.ingress`.
    pub ingress: Vec<Ingress>,
    /// The condition as last written.
    pub condition: Option<Condition>,
}

impl ServiceView {
    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.key.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// Sharing key and ports, as the pools want to know them.
    pub fn claim(&self) -> Claim {
        Claim { service: self.key.clone(), key: self.asks.sharing_key.clone(), ports: self.ports.clone() }
    }

    /// The addresses in the status, each once, in order.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut addrs = Vec::new();
        for addr in self.ingress.iter().filter_map(|ingress| ingress.addr) {
            if !addrs.contains(&addr) {
                addrs.push(addr);
            }
        }
        addrs
    }
}

/// What a user's annotations ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// `purelb.io/service-group`.
    pub group: Option<String>,
    /// `purelb.io/addresses`.
    pub addresses: Option<String>,
    /// `purelb.io/allow-shared-ip`, if not empty.
    pub sharing_key: Option<Arc<str>>,
    /// `purelb.io/multi-pool`: whether it is `true`, if it is there.
    pub multi_pool: Option<bool>,
    /// `purelb.io/re-evaluate: "true"`.
    pub re_evaluate: bool,
}

/// What PureLB's own annotations say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Brand {
    /// `purelb.io/allocated-by: PureLB`.
    pub ours: bool,
    /// `purelb.io/allocated-from`.
    pub from: Option<String>,
    /// `purelb.io/pool-type`.
    pub pool_type: Option<String>,
    /// `purelb.io/skip-ipv6-dad: "true"`.
    pub skip_ipv6_dad: bool,
}

/// One entry of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The address, unless the entry is a host name or cannot be read.
    pub addr: Option<IpAddr>,
    /// Whether its mode is `VIP`, said or not, and nothing stands beside the address.
    pub plain: bool,
}

impl Ingress {
    /// The entry PureLB writes for an address.
    pub fn of(addr: IpAddr) -> Self {
        Self { addr: Some(addr), plain: true }
    }
}

/// The condition `purelb.io/AddressAssigned`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether the Service has an address.
    pub assigned: bool,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// What stands between a sentence about a Service that has addresses and these.
const HAS: &str = "; it has ";

impl Condition {
    /// All is well: these addresses are assigned.
    pub fn assigned(addrs: &str, from: &str) -> Self {
        let message = format!("assigned {addrs} from {from}");
        Self { assigned: true, reason: ASSIGNED.to_owned(), message }
    }

    /// Something is not as it should be, with the addresses that the Service has all the same.
    pub fn troubled(reason: &Reason, addrs: &str) -> Self {
        let message = if addrs.is_empty() { reason.to_string() } else { format!("{reason}{HAS}{addrs}") };
        Self { assigned: !addrs.is_empty(), reason: reason.name().to_owned(), message }
    }

    /// Whether its sentence, without the addresses that the Service has, names an address.
    pub fn is_about(&self, addr: IpAddr) -> bool {
        let sentence = self.message.rsplit_once(HAS).map_or(&*self.message, |(sentence, _)| sentence);
        sentence.split([' ', '"', ',']).any(|word| word.parse() == Ok(addr))
    }

    /// The addresses that PureLB had given to the Service when it wrote this.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let list = match &*self.reason {
            ASSIGNED => {
                self.message.strip_prefix("assigned ").and_then(|rest| rest.split_once(" from ")).map(|(list, _)| list)
            }
            _ => self.message.rsplit_once(HAS).map(|(_, list)| list),
        };
        list.filter(|_| self.assigned)
            .into_iter()
            .flat_map(|list| list.split(", "))
            .filter_map(|text| text.parse().ok())
    }
}

/// The condition's reason when all is well.
const ASSIGNED: &str = "Assigned";

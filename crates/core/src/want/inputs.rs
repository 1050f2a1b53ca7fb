//! What the API server tells: each call states the whole of one thing and marks only the addresses it touches.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::group::Group;
use crate::links::{Link, LinkKind};
use crate::moment::Moment;
use crate::place::{Guard, LinkChoice, Origins, Serving};
use crate::plan::IPVS_LINK;
use crate::pool::ServiceKey;
use crate::reason::Reason;
use crate::want::{AgentService, Leaving, Setup, State};

impl State {
    /// What the LBNodeAgents say to this node. One that cannot be followed changes nothing.
    pub fn set_setup(&mut self, setup: Setup) -> Result<(), Reason> {
        if setup == self.setup {
            return Ok(());
        }
        (self.choice, self.config) = match &setup {
            Setup::Config(config) => (Some(LinkChoice::new(config)?), Some(Arc::new(config.clone()))),
            Setup::Unknown => return Ok(()),
            Setup::None | Setup::Deselected => (None, None),
        };
        if self.setup != Setup::Unknown {
            // What other interfaces served before says nothing about these.
            self.around.serving = Serving::default();
        }
        self.setup = setup;
        let name = self.config.as_ref().map(|config| config.virtual_interface.as_str().into());
        self.name_virtual_link(name);
        self.work.ends.clear();
        self.touch_all();
        Ok(())
    }

    fn name_virtual_link(&mut self, name: Option<Arc<str>>) {
        let name = if self.leaving == Some(Leaving::Go) { None } else { name };
        if let Some(name) = &name {
            self.desired.former_links.remove(name);
        }
        let before = std::mem::replace(&mut self.desired.virtual_link, name);
        self.desired.former_links.extend(before.filter(|before| Some(before) != self.desired.virtual_link.as_ref()));
        self.work.links = true;
    }

    /// The ServiceGroups in force.
    pub fn set_groups(&mut self, groups: Vec<Group>) {
        if groups != self.groups.groups() {
            self.groups = Origins::new(groups);
            self.touch_all();
        }
    }

    /// A Service is there and looks like this.
    pub fn set_service(&mut self, service: AgentService) {
        if !service.ours {
            return self.drop_service(&service.key);
        }
        let service = Arc::new(service);
        let before = self.services.insert(service.key.clone(), service.clone());
        let before = before.as_deref();
        // It may say which addresses on the NICs are ours.
        self.around.stale |= before.is_none_or(|before| before.announcing != service.announcing)
            && service.addrs.iter().any(|addr| self.sight.by_addr.contains_key(addr));
        let same = before.is_some_and(|before| is_same_wish(before, &service));
        if !same {
            self.work.changed.insert(service.key.clone());
        }
        let lost = before.iter().flat_map(|before| &before.addrs).filter(|addr| !service.addrs.contains(addr));
        for addr in lost {
            self.enlist(*addr, &service.key, None);
            self.work.unwished.insert(*addr);
        }
        for addr in &service.addrs {
            self.enlist(*addr, &service.key, Some(&service));
            if !same {
                self.work.unwished.insert(*addr);
            }
        }
    }

    /// A Service is gone.
    pub fn drop_service(&mut self, key: &str) {
        self.policies.remove(key);
        if let Some(service) = self.services.remove(key) {
            for addr in &service.addrs {
                self.enlist(*addr, key, None);
                self.work.unwished.insert(*addr);
            }
        }
    }

    /// Enters the Service of this key that has an address, or that it has it no longer.
    fn enlist(&mut self, addr: IpAddr, key: &str, service: Option<&Arc<AgentService>>) {
        // While its Service still explains it, what is ours is remembered.
        self.remember(addr);
        // It may be somebody else's too, who is then not in the way.
        self.around.stale |= self.by_addr.contains_key(&addr) != service.is_some() && self.is_somebodys(addr);
        let others = self.holders(addr).iter().filter(|there| *there.key != *key);
        let mut holders: Vec<_> = others.chain(service).cloned().collect();
        holders.sort_by(|a, b| a.key.cmp(&b.key));
        if holders.is_empty() {
            self.by_addr.remove(&addr);
        } else {
            self.by_addr.insert(addr, holders.into());
        }
    }

    /// Whether an address is guarded, or on an interface that is no NIC and not ours.
    fn is_somebodys(&self, addr: IpAddr) -> bool {
        let elsewhere =
            |link: &Link| link.kind != LinkKind::Other && link.name != IPVS_LINK && !self.is_virtual_name(&link.name);
        let shown = self.sight.shown(addr).iter().filter_map(|(link, _)| self.sight.link(*link));
        self.told_guarded.contains_key(&addr) || shown.into_iter().any(elsewhere)
    }

    /// The nodes on which a Service has ready endpoints.
    pub fn set_endpoints(&mut self, key: &ServiceKey, nodes: BTreeSet<String>) {
        let before = self.endpoints.get(key);
        if before.map_or(nodes.is_empty(), |before| *before == nodes) {
            return;
        }
        if nodes.is_empty() {
            self.endpoints.remove(key);
        } else {
            self.endpoints.insert(key.clone(), nodes);
        }
        if let Some(service) = self.services.get(key).filter(|service| service.policy_local || service.affinity) {
            self.work.unwished.extend(&service.addrs);
        }
    }

    /// Addresses that must not be announced or captured, beside those the kernel shows.
    pub fn set_guarded(&mut self, guarded: BTreeMap<IpAddr, Guard>) {
        self.around.stale |= guarded != self.told_guarded;
        self.told_guarded = guarded;
    }

    /// Every list has been complete at least once.
    pub fn set_synced(&mut self, synced: bool) {
        if synced != self.synced {
            self.synced = synced;
            self.touch_all();
        }
    }

    /// This process has just begun, and knows nothing of Leases that were deleted before: what it does not hold already it
    /// takes only when their nodes must have let go.
    pub fn begin(&mut self, now: Moment) {
        self.members.begin(now);
        self.lease.joined = self.members.is_expected() || self.holds_local();
    }

    /// Which kernel this agent works on.
    pub fn set_host(&mut self, host: &str) {
        self.members.set_host(host);
    }

    /// The agent is told to stop. Local addresses go; the virtual ones as it says.
    pub fn leave(&mut self, how: Leaving) {
        self.leaving = Some(how);
        self.name_virtual_link(self.desired.virtual_link.clone());
        self.work.ends.clear();
        self.touch_all();
    }

    /// Has everything looked at again.
    pub(super) fn touch_all(&mut self) {
        self.work.all = true;
        self.work.links = true;
        self.around.stale = true;
        self.routing.mark_all();
    }
}

fn is_same_wish(a: &AgentService, b: &AgentService) -> bool {
    let AgentService { announcing: _, key, ours, addrs, policy_local, allow_local, shared, affinity, .. } = a;
    let AgentService { skip_ipv6_dad, pool_type, from, policy_rewritten, .. } = a;
    (key, ours, addrs, policy_local, allow_local, shared, affinity)
        == (&b.key, &b.ours, &b.addrs, &b.policy_local, &b.allow_local, &b.shared, &b.affinity)
        && (skip_ipv6_dad, pool_type, from, policy_rewritten)
            == (&b.skip_ipv6_dad, &b.pool_type, &b.from, &b.policy_rewritten)
}

//! What the desk tells the neighbours, the users and the log of what happened to addresses.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::ObjectReference;
use purelb_core::alloc::Notice;
use purelb_core::plan::Why;
use purelb_core::reason::Reason;
use purelb_core::want::{Change as Happening, PolicyWish};
use tracing::{info, warn};

use super::{Desk, notices};
use crate::agent::kernel::Order;

impl Desk {
    /// Tells the neighbours, the users and the log what happened to addresses.
    pub(super) fn tell(&mut self) {
        for happening in self.state.take_changes() {
            match happening {
                Happening::Taken { addr, link, local, adopted, tell } => {
                    let event = if local { "electionWon" } else { "announcingNonLocal" };
                    info!(event, %addr, iface = %link, adopted, "this node announces an address");
                    if adopted {
                        self.state.services_of(addr).for_each(|service| self.services.adopt(addr, service));
                    }
                    self.metrics.taken(local);
                    if local {
                        self.metrics.wins.inc();
                    }
                    self.todo.orders.extend(tell.map(Order::Tell));
                    self.touch(addr, local);
                }
                Happening::Lost { addr, link, local, why } => {
                    let reason: &str = why.map_or("takenOff", Into::into);
                    info!(event = "withdrawAddress", %addr, iface = %link, reason, "this node ceases to announce an address");
                    if why == Some(Why::LostElection) {
                        self.metrics.losses.inc();
                    }
                    self.metrics.lost(local, why);
                    self.todo.orders.push(Order::StopTelling(addr));
                    self.services.lose(addr);
                    self.touch(addr, local);
                }
                Happening::Failed { addr, link, problem } => {
                    self.tell_all(addr, &notices::failed(&self.settings.node, addr, &link, &problem));
                }
                Happening::Meddled { addr, reason } => {
                    warn!(%addr, reason = reason.name(), "{reason}");
                    self.tell_all(addr, &notices::warned(&reason));
                }
                Happening::LinkFailed { link, problem } => {
                    warn!(iface = link, error = problem, "the virtual interface cannot be had as it should be");
                    // One that only should go harms nobody.
                    if self.state.link_problem().is_some() {
                        let node = self.settings.node.clone();
                        self.tell_author(&Reason::InterfaceRefused { node, link, problem });
                    }
                    self.show_selector_state();
                }
                Happening::LinkRestored => self.show_selector_state(),
                Happening::LinkMeddled { reason } => {
                    warn!(reason = reason.name(), "{reason}");
                    self.tell_author(&reason);
                }
                Happening::Policy { service, say } => {
                    self.services.touch(&service);
                    match say {
                        Some(PolicyWish::Allowed) => self.tell_service(&service, notices::policy_allowed()),
                        Some(PolicyWish::SetBack) => self.tell_service(&service, notices::policy_set_back()),
                        Some(PolicyWish::Rewrite) | None => {}
                    }
                }
            }
        }
    }

    /// Which LBNodeAgent counts; one whose virtual interface the kernel refuses is as good as invalid.
    pub(super) fn show_selector_state(&self) {
        let Some(chosen) = self.choices.selector_state() else { return };
        let refused = chosen == "configured" && self.state.link_problem().is_some();
        self.metrics.selector_state(if refused { "invalid" } else { chosen });
    }

    /// Tells whoever wrote the LBNodeAgent that counts.
    fn tell_author(&mut self, reason: &Reason) {
        let about = self.choices.reference();
        self.todo.notices.extend(about.map(|about| (about, notices::warned(reason))));
    }

    fn touch(&mut self, addr: IpAddr, local: bool) {
        for service in self.state.services_of(addr) {
            self.services.touch(service);
            if local {
                self.metrics.winner_changed(service);
            }
        }
    }

    fn tell_all(&mut self, addr: IpAddr, notice: &Notice) {
        let services: Vec<_> = self.state.services_of(addr).cloned().collect();
        for service in services {
            self.tell_service(&service, notice.clone());
        }
    }

    pub(super) fn tell_service(&mut self, key: &str, notice: Notice) {
        let Some((namespace, name)) = key.split_once('/') else { return };
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: self.services.uid(key).map(str::to_owned),
            ..ObjectReference::default()
        };
        self.todo.notices.push((about, notice));
    }
}

//! What the desk tells the neighbours, the users and the log of what happened to addresses.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::ObjectReference;
use purelb_core::alloc::Notice;
use purelb_core::plan::Why;
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
                        self.services.adopt(addr);
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

//! What the desk does with each thing that it hears.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use purelb_api::read;
use purelb_core::links::{HeldAddr, LinkNews, Links};
use purelb_core::moment::Moment;
use purelb_core::place::Guard;
use purelb_core::plan::{Step, adopt, left_behind};
use purelb_core::pool::ServiceKey;
use tracing::{info, warn};

use super::{Desk, Ended, notices, sight};
use crate::agent::event::{API_SERVER, Event, LeaseNews};
use crate::agent::guarded::Guarded;
use crate::agent::kernel::KernelNews;
use crate::agent::lease;
use crate::agent::work::Done;
use crate::cluster::watch::Change;

impl Desk {
    /// Takes in one thing that was heard.
    pub fn hear(&mut self, event: Event, now: Moment) {
        match event {
            Event::Service(change) => {
                let service = if let Change::Here(news) = &change { Some(news.service.key.clone()) } else { None };
                self.services.hear(change, &mut self.state);
                service.inspect(|service| self.point(service));
            }
            Event::Endpoints(change) => {
                let touched = self.slices.take(change);
                touched.iter().for_each(|service| self.point(service));
                if touched.contains(API_SERVER) {
                    self.guard();
                }
            }
            Event::Lease(change) => self.hear_lease(change, now),
            Event::Node(change) => {
                if self.choices.take_node(change) {
                    self.guard();
                    self.configure();
                }
                if self.bgp.set_node(self.choices.facts()) {
                    self.configure_bgp(now);
                }
            }
            Event::Group(change) => {
                if let Some(groups) = self.choices.take_group(change) {
                    self.state.set_groups(groups);
                    self.services.touch_all();
                }
            }
            Event::Agent(change) => {
                if self.choices.take_agent(change) {
                    self.configure();
                }
            }
            Event::Bgp(change) => {
                if self.bgp.take(change) {
                    self.configure_bgp(now);
                }
            }
            Event::Secrets(secrets) => {
                self.bgp.set_secrets(secrets);
                self.configure_bgp(now);
            }
            Event::Speaker(news) => {
                self.state.hear_routers(news.acts_on, news.is_anybody_listening(), |net| news.is_told(net), now);
                self.bgp.hear(news);
                self.todo.notices.extend(self.bgp.notices(now));
            }
            Event::Reported(well) => self.bgp.written(well, now),
            Event::Guarded(guarded) => {
                self.guarded = guarded;
                self.guard();
            }
            Event::Kernel(news) => self.hear_kernel(news, now),
            Event::Renewal(news) => self.hear_renewal(news, now),
            Event::Done(done) => self.hear_done(done, now),
        }
    }

    /// Only a Service whose addresses follow its endpoints needs to know where they are.
    fn point(&mut self, key: &ServiceKey) {
        let follows = self.state.service(key).is_some_and(|service| service.policy_local || service.affinity);
        let nodes = if follows { self.slices.nodes(key) } else { BTreeSet::new() };
        if follows {
            self.services.touch(key);
        }
        self.state.set_endpoints(key, nodes);
    }

    /// A complete list is heard as a whole: a part of it proves nothing.
    fn hear_lease(&mut self, change: Change<Box<LeaseNews>>, now: Moment) {
        self.note_guarded(&change);
        match self.sight.take(change.map(|news| Box::new(news.view))) {
            sight::Seen::Nothing => {}
            sight::Seen::All(leases) => self.state.hear_leases(leases, now),
            sight::Seen::One(lease) => self.state.hear_lease(lease, now),
            sight::Seen::Gone(node) => {
                if node == self.settings.node && !self.leaving {
                    warn!(event = "leaseDelete", node, "this node's lease was deleted; it is written anew");
                    self.heartbeat.lost();
                }
                self.state.lease_gone(&node, now);
            }
        }
    }

    /// What a lease says of addresses that nobody may announce hardly ever changes.
    fn note_guarded(&mut self, change: &Change<Box<LeaseNews>>) {
        if let Change::Here(news) = change
            && self.peers.at(&news.view.node) == Some(&news.guarded)
        {
            return self.peers.confirm(&news.view.node);
        }
        if !self.peers.take(change.clone().map(|news| (news.view.node, news.guarded))).is_empty() {
            self.guard();
        }
    }

    fn hear_kernel(&mut self, news: KernelNews, now: Moment) {
        match news {
            KernelNews::Links(links) => {
                if let (None, LinkNews::Everything(links)) = (self.state.links(), &links) {
                    self.apply(adopt(links), now);
                    self.bgp.restarting = has_virtual(links);
                }
                self.state.hear_links(links, now);
                self.bgp.touch();
            }
            KernelNews::Applied(steps) => {
                self.applying = self.applying.saturating_sub(steps.len());
                self.steps_done += steps.iter().filter(|(_, result)| result.is_ok()).count();
                for (step, result) in steps {
                    let result = result.map_err(|error| error.to_string());
                    self.count(&step, result.as_ref().err());
                    self.state.applied(&step, result, now);
                }
            }
            KernelNews::NoDummy { name } => {
                warn!(iface = name, "the kernel has no dummy interfaces; an ifb stands in");
                let about = self.choices.reference();
                self.todo.notices.extend(about.map(|about| (about, notices::no_dummy(&name))));
            }
            // The loop ends the agent.
            KernelNews::Ended => {}
            KernelNews::Told { addr, result } => {
                let (sent, errors) = if addr.is_ipv4() {
                    (&self.metrics.garp_sent, &self.metrics.garp_errors)
                } else {
                    (&self.metrics.na_sent, &self.metrics.na_errors)
                };
                match result {
                    Ok(()) => sent.inc(),
                    Err(error) => {
                        warn!(%addr, %error, "the neighbours could not be told of an address");
                        errors.inc()
                    }
                };
            }
        }
    }

    fn count(&self, step: &Step, error: Option<&String>) {
        match (step, error) {
            (Step::PutAddr { refresh: true, .. }, None) => drop(self.metrics.renewals.inc()),
            (Step::PutAddr { .. }, None) => drop(self.metrics.additions.inc()),
            (Step::DropAddr { .. }, None) => drop(self.metrics.withdrawals.inc()),
            (_, None) => {}
            (step, Some(error)) => {
                if matches!(step, Step::PutAddr { refresh: true, .. }) {
                    self.metrics.renewal_errors.inc();
                }
                self.metrics.step_errors.inc();
                let event =
                    if matches!(step, Step::DropAddr { .. }) { "withdrawAddressFailed" } else { "announceError" };
                warn!(event, ?step, error, "the kernel refused a step; it is tried again");
            }
        }
    }

    fn hear_renewal(&mut self, news: lease::News, now: Moment) {
        match news {
            lease::News::Renewed(lease) => {
                if self.heartbeat.accepted() > 0 {
                    info!(event = "renewRecovered", "the lease is renewed again");
                }
                if let Some(view) = read::lease_view(&lease, Timestamp::UNIX_EPOCH) {
                    // What was heard before it was sent has lower versions, unless the cluster's past is another by now.
                    if view.version.is_some_and(|version| version <= self.heard) {
                        self.ended = Some(Ended::Restored);
                    }
                    self.sight.accepted(view.version, now);
                }
                self.metrics.lease_renewed(self.stamp.as_microsecond() as f64 / 1e6);
            }
            lease::News::Usurped(instance) => {
                warn!(instance, "another agent writes the lease of this node");
                self.ended = Some(Ended::Usurped);
            }
            lease::News::Restored => self.ended = Some(Ended::Restored),
            lease::News::Failed(error) => {
                let failures = self.heartbeat.failed(now);
                self.metrics.lease_failures.inc();
                warn!(event = "renewFailed", failures, error, "the lease could not be renewed; it is tried again");
            }
        }
    }

    fn hear_done(&mut self, done: Done, now: Moment) {
        let service = done.service.clone();
        let then = self.services.done(done, &mut self.state, now);
        for from in &then.steals {
            self.metrics.slot_stolen(from, &self.settings.node);
        }
        for notice in then.notices {
            self.tell_service(&service, notice);
        }
    }

    /// Everything that must not be announced, beside what the kernel shows.
    fn guard(&mut self) {
        let mut guarded: Guarded = self.bgp.peers().map(|peer| (peer, Guard::Peer)).collect();
        guarded.extend(&self.guarded);
        guarded.extend(self.api_servers().map(|addr| (addr, Guard::ApiServer)));
        // What any agent must not announce, no agent announces, and the allocator gives to nobody.
        guarded.extend(self.peers.values().flatten());
        guarded.extend(self.choices.node_addresses().map(|addr| (addr, Guard::Node)));
        self.state.set_guarded(guarded);
    }

    /// The addresses of the API server, as far as this node knows.
    pub(super) fn api_servers(&self) -> impl Iterator<Item = IpAddr> {
        let told = self.guarded.iter().filter(|(_, guard)| **guard == Guard::ApiServer).map(|(addr, _)| *addr);
        told.chain(self.slices.api_servers())
    }

    /// Finds out anew what BGP means for this node.
    fn configure_bgp(&mut self, now: Moment) {
        self.bgp.configure();
        self.state.set_imported(self.bgp.imported());
        self.guard();
        self.todo.notices.extend(self.bgp.notices(now));
    }

    /// Finds out anew which LBNodeAgent counts.
    fn configure(&mut self) {
        let Some(choice) = self.choices.choose() else { return };
        if choice.setup.is_some() {
            self.metrics.lifetime_beyond_lease(choice.outlives_lease);
        }
        if let Some(setup) = choice.setup
            && let Err(reason) = self.state.set_setup(setup)
        {
            warn!(reason = reason.name(), "{reason}");
        }
        self.services.touch_all();
        self.show_selector_state();
        if choice.selector_state == "configured" {
            self.metrics.config_loaded();
        }
        self.todo.notices.extend(choice.notices);
    }
}

/// Whether a predecessor has left virtual addresses. Where the kernel keeps no marks, those have lifetimes.
fn has_virtual(links: &Links) -> bool {
    let mut virtuals = links.by_index.values().filter(|link| link.is_virtual()).flat_map(|link| &link.addrs);
    virtuals.any(HeldAddr::is_marked) || left_behind(links).next().is_some()
}

#[cfg(test)]
mod tests {
    use purelb_core::links::{Link, LinkKind, OUR_LIFETIME, OUR_PROTOCOL};
    use rstest::rstest;

    use super::*;

    /// A node with one address on its virtual interface.
    fn links(held: HeldAddr, marks: bool) -> Links {
        let link = |name: &str, kind, held| Link {
            name: name.to_owned(),
            kind,
            up: true,
            carrier: true,
            mac: None,
            promote_secondaries: None,
            addrs: vec![held],
        };
        let home = HeldAddr { protocol: u8::from(marks), ..HeldAddr::plain([127, 0, 0, 1].into(), 8) };
        let all = [link("lo", LinkKind::Loopback, home), link("kube-lb0", LinkKind::Dummy, held)];
        Links { by_index: (1..).zip(all).collect(), default_routes: Vec::new() }
    }

    #[rstest]
    #[case::marked(true, OUR_PROTOCOL, None, true)]
    #[case::an_operators(true, 0, None, false)]
    #[case::old_kernel_stopped(false, 0, Some(60), true)]
    #[case::old_kernel_killed(false, 0, Some(OUR_LIFETIME), true)]
    #[case::old_kernel_an_operators(false, 0, None, false)]
    fn routers_are_told_of_a_restart_where_a_predecessor_left_addresses(
        #[case] marks: bool,
        #[case] protocol: u8,
        #[case] seconds: Option<u32>,
        #[case] restarting: bool,
    ) {
        let valid_until = seconds.map(|seconds| Moment(std::time::Duration::from_secs(seconds.into())));
        let held = HeldAddr { protocol, valid_until, ..HeldAddr::plain([10, 9, 0, 1].into(), 32) };
        assert_eq!(has_virtual(&links(held, marks)), restarting);
    }
}

//! What a Service should say of this node: its announcing annotations, and the traffic policy of a local address.

use std::net::IpAddr;

use purelb_api::annotations::{ANNOUNCING_IPV4, ANNOUNCING_IPV6, POLICY_REWRITTEN, TRUE};
use purelb_core::addr::Family;
use purelb_core::alloc::Notice;
use purelb_core::slots::Slots;
use purelb_core::want::{AgentService, PolicyWish, State, Verdict};
use serde_json::{Value, json};

use super::notices;

/// A write that is under way.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Something may have changed since.
    pub look_again: bool,
    pub then: Then,
}

/// What is to be told once something is written.
#[derive(Debug, Default)]
pub(super) struct Then {
    pub notices: Vec<Notice>,
    /// From whom entries are taken over.
    pub steals: Vec<String>,
}

/// What is to be written, and told once it is.
#[derive(Debug)]
pub(super) struct Wish {
    /// Annotations with their new values; `None` removes one.
    annotations: Vec<(&'static str, Option<String>)>,
    rewrite_policy: bool,
    /// Nothing but entries of this node that are out of date, which a new holder is likely to replace.
    pub can_wait: bool,
    pub then: Then,
}

impl Wish {
    /// The merge patch, which only applies to the version it was decided on.
    pub fn patch(&self, version: &str) -> Value {
        let mut annotations: serde_json::Map<String, Value> =
            self.annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        if self.rewrite_policy {
            annotations.insert(POLICY_REWRITTEN.to_owned(), json!(TRUE));
        }
        let mut patch = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
        if self.rewrite_policy {
            patch["spec"] = json!({"externalTrafficPolicy": "Cluster"});
        }
        patch
    }
}

/// What a Service lacks; `None` if it says what it should.
pub(super) fn wish(service: &AgentService, state: &State, me: &str) -> Option<Wish> {
    let rewrite_policy = state.policy(&service.key) == Some(PolicyWish::Rewrite);
    let mut wish = Wish {
        annotations: Vec::new(),
        rewrite_policy,
        can_wait: !rewrite_policy,
        then: Then {
            notices: rewrite_policy.then(notices::policy_rewritten).into_iter().collect(),
            steals: Vec::new(),
        },
    };
    for (family, key) in [(Family::V4, ANNOUNCING_IPV4), (Family::V6, ANNOUNCING_IPV6)] {
        announcing(service, family, key, state, me, &mut wish);
    }
    (rewrite_policy || !wish.annotations.is_empty()).then_some(wish)
}

/// Brings the entries of one family up to date: claims what this node holds, removes its own entries for what it does not.
fn announcing(service: &AgentService, family: Family, key: &'static str, state: &State, me: &str, wish: &mut Wish) {
    let written = service.announcing[usize::from(family == Family::V6)].as_deref();
    let before = Slots::parse(written.unwrap_or_default());
    let mut slots = before.clone();
    let live: Vec<IpAddr> = service.addrs.iter().copied().filter(|addr| Family::of(*addr) == family).collect();
    let mut claims = false;
    for &addr in &live {
        let held = state.held(addr).filter(|_| matches!(state.verdict(addr), Some(Verdict::Local { .. })));
        if let Some(link) = held {
            claims = true;
            if let Some(other) = slots.claim(addr, me, link) {
                wish.then.notices.push(notices::slot_stolen(me, addr, &other));
                wish.then.steals.push(other);
            }
        } else if is_given_up(state.verdict(addr)) && !state.is_on_nic(addr) {
            slots.clear(addr, me);
        }
    }
    // Whoever announces an address of the Service also sweeps up what is left of addresses that it has no more.
    slots.sweep(|addr, slot| live.contains(&addr) || !(claims || slot.node == me));
    let encoded = slots.encode();
    let differs = if claims { encoded.as_deref() != written } else { slots != before };
    if differs {
        wish.can_wait &= !claims;
        wish.annotations.push((key, encoded));
    }
}

/// Whether it is decided that this node does not announce an address and is not about to.
fn is_given_up(verdict: Option<&Verdict>) -> bool {
    !matches!(verdict, None | Some(Verdict::Local { .. } | Verdict::Waiting { .. } | Verdict::Leaving))
}

//! What an agent has on its desk, for whoever asks at the debug socket.

use std::collections::BTreeMap;

use purelb_core::moment::Moment;
use purelb_core::want::Verdict;
use serde_json::{Value, json};

use super::desk::Desk;

/// What the agent wants, what the kernel shows, who is alive, and what became of each address.
pub fn state(desk: &Desk, now: Moment) -> Value {
    let state = desk.state();
    let members = state.members();
    let live: BTreeMap<_, Vec<_>> =
        members.live().map(|(node, subnets)| (node, subnets.iter().map(ToString::to_string).collect())).collect();
    let verdicts: BTreeMap<_, _> = state
        .verdicts()
        .map(|(addr, verdict)| {
            let services: Vec<_> = state.services_of(addr).map(ToString::to_string).collect();
            (
                addr.to_string(),
                json!({"verdict": verdict_text(verdict), "services": services, "heldOn": state.held(addr)}),
            )
        })
        .collect();
    json!({
        "node": desk.settings().node,
        "ready": desk.is_ready(),
        "now": now,
        "members": {"live": live, "fence": members.fence(), "saw": members.acted_up_to()},
        "addresses": verdicts,
        "want": state.desired(),
        "have": state.links(),
        "plan": state.pending(now),
        "bgp": {
            "routes": state.routes().iter().map(|(net, groups)| (net.to_string(), groups)).collect::<BTreeMap<_, _>>(),
            "speaker": desk.speaker(),
        },
    })
}

fn verdict_text(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Local { link } => json!({"local": **link}),
        Verdict::Virtual { link } => json!({"virtual": **link}),
        Verdict::Elsewhere { node } => json!({"elsewhere": **node}),
        Verdict::Nowhere(reason) => json!({"nowhere": reason.name(), "sentence": reason.to_string()}),
        Verdict::Waiting { until } => json!({"waitingUntil": until}),
        Verdict::NoWinner => json!("noWinner"),
        Verdict::NoEndpoints => json!("noEndpoints"),
        Verdict::Fenced => json!("fenced"),
        Verdict::NoConfig => json!("noConfig"),
        Verdict::Leaving => json!("leaving"),
    }
}

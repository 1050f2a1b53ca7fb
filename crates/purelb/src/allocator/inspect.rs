//! What the allocator has on its desk, for whoever asks at the debug socket.

use std::collections::BTreeMap;

use purelb_core::addr::{Family, saturate};
use serde_json::{Value, json};

use super::desk::Desk;
pub use crate::http::{Questions, channel};

/// The state of an allocator that does not lead.
pub fn standby() -> Value {
    json!({"leading": false})
}

/// The book of the leader: every group, and every address with its holders.
pub fn leading(desk: &Desk, term: u64) -> Value {
    let mut groups = BTreeMap::new();
    for slot in desk.book().slots() {
        let held: BTreeMap<_, Vec<_>> = slot
            .pool
            .held()
            .map(|addr| (addr.to_string(), slot.pool.holders(addr).map(|holder| holder.to_string()).collect()))
            .collect();
        let size = [Family::V4, Family::V6].map(|family| saturate(slot.pool.size(family)));
        let group = json!({"namespace": slot.group.namespace, "sizeV4": size[0], "sizeV6": size[1], "held": held});
        groups.insert(slot.group.name.clone(), group);
    }
    let services: BTreeMap<_, _> = desk
        .book()
        .holdings()
        .map(|holding| {
            (holding.claim.service.to_string(), holding.addrs.iter().map(ToString::to_string).collect::<Vec<_>>())
        })
        .collect();
    let external: BTreeMap<_, _> = desk
        .external_holders()
        .map(|(service, groups)| (service.to_string(), groups.cloned().collect::<Vec<_>>()))
        .collect();
    json!({
        "leading": true,
        "term": term,
        "deciding": desk.is_deciding(),
        "groups": groups,
        "services": services,
        "external": external,
    })
}

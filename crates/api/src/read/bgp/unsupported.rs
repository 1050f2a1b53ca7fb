//! The fields of a BGPConfiguration that say something and have no effect.

use serde_json::Value;

use super::neighbor::family;
use crate::bgp_configuration::{AfiSafi, BGPConfigurationSpec, GracefulRestart};

/// Paths of the fields that have no effect, in the order in which people read them.
pub fn fields(spec: &BGPConfigurationSpec) -> Vec<String> {
    let mut found = Found(Vec::new());
    global(spec, &mut found);
    for (i, neighbor) in spec.neighbors.iter().enumerate() {
        let path = format!("spec.neighbors[{i}]");
        let interface = neighbor.config.neighbor_interface.as_deref().unwrap_or_default();
        found.note(&path, "config.neighborInterface", !interface.is_empty());
        found.value(&path, "config.vrf", neighbor.config.vrf.as_ref());
        families(&path, &neighbor.afi_safis, &mut found);
        helper(&path, neighbor.graceful_restart.as_ref(), &mut found);
        found.value(&path, "routeReflector", neighbor.route_reflector.as_ref());
        found.value(&path, "applyPolicy", neighbor.apply_policy.as_ref());
    }
    for (i, group) in spec.peer_groups.iter().enumerate() {
        let path = format!("spec.peerGroups[{i}]");
        families(&path, &group.afi_safis, &mut found);
        found.value(&path, "applyPolicy", group.apply_policy.as_ref());
    }
    rest(spec, &mut found);
    found.0
}

/// Collects paths.
struct Found(Vec<String>);

impl Found {
    fn note(&mut self, path: &str, name: &str, said: bool) {
        if said {
            self.0.push(format!("{path}.{name}"));
        }
    }

    fn value(&mut self, path: &str, name: &str, value: Option<&Value>) {
        self.note(path, name, value.is_some_and(says));
    }
}

/// Whether a value asks for anything: what is empty, off or zero does not.
fn says(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(on) => *on,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.get("enabled") != Some(&Value::Bool(false)) && fields.values().any(says),
    }
}

fn global(spec: &BGPConfigurationSpec, found: &mut Found) {
    let (path, global) = ("spec.global", &spec.global);
    found.note(path, "families", !global.families.is_empty());
    found.value(path, "useMultiplePaths", global.use_multiple_paths.as_ref());
    found.value(path, "routeSelectionOptions", global.route_selection_options.as_ref());
    found.value(path, "defaultRouteDistance", global.default_route_distance.as_ref());
    found.value(path, "confederation", global.confederation.as_ref());
    helper(path, global.graceful_restart.as_ref(), found);
    found.value(path, "applyPolicy", global.apply_policy.as_ref());
    found.value(path, "bindToDevice", global.bind_to_device.as_ref());
}

fn rest(spec: &BGPConfigurationSpec, found: &mut Found) {
    let vrf = spec.netlink_import.as_ref().and_then(|import| import.vrf.as_ref());
    found.value("spec", "netlinkImport.vrf", vrf);
    // Only what is switched on would have done anything.
    let export = spec.netlink_export.as_ref().filter(|export| export["enabled"] == Value::Bool(true));
    found.value("spec", "netlinkExport", export);
    found.value("spec", "dynamicNeighbors", spec.dynamic_neighbors.as_ref());
    found.value("spec", "vrfs", spec.vrfs.as_ref());
    found.value("spec", "policyDefinitions", spec.policy_definitions.as_ref());
    found.value("spec", "definedSets", spec.defined_sets.as_ref());
}

fn families(path: &str, written: &[AfiSafi], found: &mut Found) {
    for (i, entry) in written.iter().enumerate() {
        let path = format!("{path}.afiSafis[{i}]");
        found.note(&path, "family", entry.enabled != Some(false) && family(&entry.family).is_none());
        found.value(&path, "prefixLimit", entry.prefix_limit.as_ref());
        found.value(&path, "addPaths", entry.add_paths.as_ref());
    }
}

fn helper(path: &str, written: Option<&GracefulRestart>, found: &mut Found) {
    let said = written.is_some_and(|restart| restart.enabled && restart.helper_only == Some(true));
    found.note(path, "gracefulRestart.helperOnly", said);
}

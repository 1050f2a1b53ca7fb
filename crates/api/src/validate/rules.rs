//! What the CEL rules of the CRD mean, for objects that no API server has seen yet.
//!
//! Those that [`crate::read`] finds as well are left to it: it names the field.

use purelb_core::reason::Reason;

use super::Fault;
use super::notes::Notes;
use crate::service_group::ServiceGroupSpec;

/// Notes every rule that a group of the given version, defaulted by its schema, breaks.
pub fn check(spec: &ServiceGroupSpec, version: &str, notes: &mut Notes) {
    let sources =
        [("local", spec.local.is_some()), ("remote", spec.remote.is_some()), ("external", spec.external.is_some())];
    let written: Vec<_> = sources.into_iter().filter_map(|(name, there)| there.then_some(name)).collect();
    if spec.placement.is_some() {
        auto_is_local(&written, version, notes);
    } else {
        one_source(&written, notes);
        no_single_range(spec, notes);
    }
}

fn auto_is_local(written: &[&'static str], version: &str, notes: &mut Notes) {
    let Some(source_field) = written.iter().find(|name| **name != "local") else { return };
    notes.0.retain(|note| !matches!(note.fault, Fault::Known(Reason::PlacementContradicted { .. })));
    if version == "v1" {
        // Its author wrote no placement and cannot take it away.
        notes.error(format!("spec.{source_field}"), Fault::SourceInV1 { source_field });
    } else {
        notes.error("spec.placement", Reason::PlacementContradicted { source_field });
    }
}

fn one_source(written: &[&'static str], notes: &mut Notes) {
    let known = notes.0.iter().any(|note| matches!(note.fault, Fault::Known(Reason::NoSource)));
    if written.len() == 1 || known {
        return;
    }
    // The object is refused as a whole, so which source would have counted helps nobody.
    notes.0.retain(|note| !matches!(note.fault, Fault::Known(Reason::SourceIgnored { .. })));
    let found = if written.is_empty() { "none".to_owned() } else { written.join(" and ") };
    notes.error("spec", Fault::SourceCount { found });
}

fn no_single_range(spec: &ServiceGroupSpec, notes: &mut Notes) {
    let single = |local: &crate::service_group::LocalPools| {
        local.pool.is_some() || local.subnet.is_some() || local.aggregation.is_some()
    };
    if spec.local.as_ref().is_some_and(single) {
        notes.error("spec.local", Fault::SingleRangeInV2);
    }
}

//! Which form of a BGPConfiguration is in use: the one written now, or, if an edit broke it, the last that was valid.

use purelb_core::bgp::Configuration;

use super::{BgpObject, BgpReading, bgp};
use crate::bgp_configuration::{BGPConfiguration, BGPConfigurationSpec};
use crate::last_valid::LastValid;

/// Reads the form of a BGPConfiguration that is in use, and says whether it is an earlier one.
///
/// The problems and warnings are always those of the object as it is written now. Where it has problems and no earlier
/// form is known, what is usable of it is in use.
pub fn bgp_in_force(read: &BgpObject) -> (BgpReading, bool) {
    let mut now = bgp(read);
    if now.reading.problems.is_empty() {
        return (now, false);
    }
    let earlier = earlier(&read.object);
    let is_earlier = earlier.is_some();
    now.reading.value = earlier.or(now.reading.value);
    (now, is_earlier)
}

/// The form to keep in the object's status: the one written now if nothing is wrong with it, else the one kept so far.
///
/// A form with a password in it is not kept: passwords are in Secrets, or where their author wrote them, and nowhere else.
pub fn bgp_last_valid(read: &BgpObject) -> Option<LastValid> {
    let object = &read.object;
    let now = bgp(read).reading;
    if now.value.is_none() || !now.problems.is_empty() {
        return kept(object).cloned();
    }
    let spec = Some(&object.spec).filter(|spec| !has_password(spec))?;
    Some(LastValid {
        generation: object.metadata.generation.unwrap_or_default(),
        spec: serde_json::to_value(spec).ok()?,
    })
}

fn has_password(spec: &BGPConfigurationSpec) -> bool {
    let own = spec.neighbors.iter().map(|neighbor| &neighbor.config.auth_password);
    let shared = spec.peer_groups.iter().map(|group| &group.config.auth_password);
    own.chain(shared).flatten().any(|password| !password.0.is_empty())
}

fn kept(object: &BGPConfiguration) -> Option<&LastValid> {
    object.status.as_ref()?.last_valid.as_ref()
}

/// The form kept in the status; nothing if that cannot be read either, whoever wrote it.
fn earlier(object: &BGPConfiguration) -> Option<Configuration> {
    let spec: BGPConfigurationSpec = serde_json::from_value(kept(object)?.spec.clone()).ok()?;
    let earlier = BGPConfiguration { metadata: object.metadata.clone(), spec, status: None };
    let reading = bgp(&earlier.into()).reading;
    reading.value.filter(|_| reading.problems.is_empty())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn spec(router: &str) -> Value {
        json!({
            "global": {"asn": 64512},
            "neighbors": [{"config": {"neighborAddress": router, "peerAsn": 64513}}],
            "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
        })
    }

    fn object(spec: Value, last_valid: Value) -> BgpObject {
        let metadata = json!({"name": "default", "namespace": "home", "generation": 5});
        let mut object = json!({"metadata": metadata, "spec": spec});
        if !last_valid.is_null() {
            object["status"] = json!({"lastValid": last_valid});
        }
        serde_json::from_value(object).unwrap()
    }

    fn kept_form(spec: Value) -> Value {
        json!({"generation": 4, "spec": spec})
    }

    /// The routers in use.
    fn routers(read: &BgpObject) -> (Vec<String>, bool) {
        let (reading, earlier) = bgp_in_force(read);
        let neighbors = reading.reading.value.map(|value| value.neighbors).unwrap_or_default();
        (neighbors.iter().map(|neighbor| neighbor.address.to_string()).collect(), earlier)
    }

    #[test]
    fn a_valid_object_is_in_force_as_it_is_written() {
        let read = object(spec("192.0.2.1"), kept_form(spec("192.0.2.254")));
        assert_eq!(routers(&read), (vec!["192.0.2.1".to_owned()], false));
        assert_eq!(bgp_last_valid(&read).unwrap().generation, 5, "it is the next one to keep");
    }

    #[rstest]
    #[case::no_as("/global/asn", json!(0))]
    #[case::a_router_id_of_nothing("/global/routerID", json!("nonsense"))]
    #[case::a_neighbor_without_an_address("/neighbors/0/config/neighborAddress", json!("router"))]
    #[case::a_pattern_of_no_interface("/netlinkImport/interfaceList/0", json!("kube-lb[0"))]
    #[case::a_field_of_another_type("/netlinkImport", json!("kube-lb0"))]
    fn a_bad_edit_leaves_the_last_valid_form_in_force_whoever_restarts(#[case] pointer: &str, #[case] value: Value) {
        let mut broken = spec("192.0.2.254");
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = broken.pointer_mut(parent).unwrap();
        match parent.as_array_mut() {
            Some(items) => items[0] = value,
            None => parent[field] = value,
        }
        let before = object(spec("192.0.2.254"), json!(null));
        let kept = bgp_last_valid(&before).unwrap();
        let after = object(broken, serde_json::to_value(&kept).unwrap());
        let (reading, earlier) = bgp_in_force(&after);
        assert!(earlier && !reading.reading.problems.is_empty(), "the problems are those of the edit");
        assert_eq!(reading.reading.value, bgp_in_force(&before).0.reading.value);
        assert_eq!(bgp_last_valid(&after), Some(kept), "and the form stays");
    }

    #[rstest]
    #[case::none(json!(null))]
    #[case::broken_too(kept_form(spec("another router")))]
    #[case::of_no_known_shape(kept_form(json!({"neighbors": "?"})))]
    #[case::empty(json!({}))]
    fn without_an_earlier_form_the_usable_part_is_in_force(#[case] kept: Value) {
        let mut broken = spec("192.0.2.254");
        let wrong = json!({"config": {"neighborAddress": "router", "peerAsn": 64513}});
        broken["neighbors"].as_array_mut().unwrap().push(wrong);
        assert_eq!(routers(&object(broken, kept)), (vec!["192.0.2.254".to_owned()], false));
    }

    #[test]
    fn an_edit_that_adds_an_unnumbered_neighbor_and_a_router_is_in_force() {
        let mut edited = spec("192.0.2.254");
        let unnumbered = json!({"config": {"neighborInterface": "eth1", "peerAsn": 64513}});
        let other = json!({"config": {"neighborAddress": "192.0.2.253", "peerAsn": 64513}});
        edited["neighbors"].as_array_mut().unwrap().extend([unnumbered, other]);
        let read = object(edited, kept_form(spec("192.0.2.254")));
        assert_eq!(routers(&read), (vec!["192.0.2.254".to_owned(), "192.0.2.253".to_owned()], false));
    }

    #[test]
    fn a_password_that_is_written_in_the_object_is_not_copied_to_its_status() {
        let mut own = spec("192.0.2.254");
        own["neighbors"][0]["config"]["authPassword"] = json!("hunter2");
        let mut shared = spec("192.0.2.254");
        shared["peerGroups"] = json!([{"config": {"peerGroupName": "spines", "authPassword": "hunter2"}}]);
        for with_password in [own, shared] {
            assert_eq!(bgp_last_valid(&object(with_password, kept_form(spec("192.0.2.1")))), None);
        }
        let mut secured = spec("192.0.2.254");
        secured["neighbors"][0]["config"]["authPasswordSecretRef"] = json!({"name": "bgp", "key": "password"});
        assert!(bgp_last_valid(&object(secured, json!(null))).is_some(), "a Secret is only named");
    }
}

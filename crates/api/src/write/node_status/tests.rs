//! What a node's BGPNodeStatus says.

use std::collections::BTreeSet;
use std::time::Duration;

use purelb_core::bgp::RouterIdSource;
use purelb_core::bgp::status::{ImportReport, ImportedAddress, InterfaceReport, LocalRoute, SessionState};
use purelb_core::reason::{Problem, Reason};

use super::*;
use crate::schema;

fn neighbor_at(address: &str, state: SessionState) -> NeighborReport {
    let up = state == SessionState::Established;
    NeighborReport {
        address: address.parse().unwrap(),
        peer_as: 4_200_000_000,
        local_as: 64512,
        state,
        up_since: up.then_some(1_767_225_600),
        prefixes_sent: 2,
        prefixes_received: 1,
        description: "spine".to_owned(),
        last_error: if up { String::new() } else { "connection refused".to_owned() },
        admin_down: false,
    }
}

fn report(states: &[SessionState]) -> NodeReport {
    let address = |text: &str| ImportedAddress {
        address: text.parse().unwrap(),
        interface: "kube-lb0".to_owned(),
        advertised: true,
    };
    NodeReport {
        node: "node-1".to_owned(),
        router_id: Some(("192.0.2.1".parse().unwrap(), RouterIdSource::NodeIpv4)),
        asn: Some(64512),
        heartbeat: Duration::from_secs(60),
        neighbors: states.iter().zip(1..).map(|(state, i)| neighbor_at(&format!("192.0.2.{i}"), *state)).collect(),
        import: ImportReport {
            enabled: true,
            interfaces: vec![InterfaceReport { name: "kube-lb0".to_owned(), exists: true, up: true }],
            addresses: vec![address("10.1.2.3/24"), address("10.1.2.4/24")],
        },
        routes: vec![LocalRoute {
            prefix: "10.1.2.0/24".parse().unwrap(),
            advertised_to: BTreeSet::from(["192.0.2.1".parse().unwrap()]),
            communities: BTreeSet::from(["64512:100".to_owned()]),
        }],
        received: 1,
        problems: vec![],
        leaving: false,
    }
}

fn status(report: &NodeReport, previous: Option<&BGPNodeStatusStatus>, second: i64) -> BGPNodeStatusStatus {
    node_status(report, previous, Timestamp::from_second(second).unwrap())
}

fn told(status: &BGPNodeStatusStatus) -> (bool, &str, &str) {
    let condition = &status.conditions[0];
    (condition.status == "True", condition.reason.as_str(), condition.message.as_str())
}

#[test]
fn everything_a_node_reports_is_where_readers_look_for_it() {
    let written = serde_json::to_value(status(&report(&[SessionState::Established]), None, 1_767_225_660)).unwrap();
    let expected = json!({
        "nodeName": "node-1", "routerID": "192.0.2.1", "routerIDSource": "node-ipv4", "asn": 64512,
        "lastUpdated": "2026-01-01T00:01:00Z", "heartbeatSeconds": 60, "neighborCount": 1,
        "neighbors": [{
            "address": "192.0.2.1", "peerASN": 4_200_000_000_u32, "localASN": 64512, "state": "Established",
            "sessionUpSince": "2026-01-01T00:00:00Z", "prefixesSent": 2, "prefixesReceived": 1, "description": "spine",
        }],
        "netlinkImport": {
            "enabled": true, "interfaces": [{"name": "kube-lb0", "exists": true, "operState": "up"}],
            "importedAddresses": [
                {"address": "10.1.2.3/24", "interface": "kube-lb0", "inRIB": true},
                {"address": "10.1.2.4/24", "interface": "kube-lb0", "inRIB": true},
            ],
            "totalImported": 2,
        },
        "rib": {
            "localRoutes": [{
                "prefix": "10.1.2.0/24", "nextHop": "0.0.0.0", "advertisedTo": ["192.0.2.1"], "communities": ["64512:100"],
            }],
            "localRouteCount": 1, "receivedRouteCount": 1,
        },
        "netlinkExport": {"enabled": false, "totalExported": 0},
        "healthy": true,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "AllHealthy", "lastTransitionTime": "2026-01-01T00:01:00Z",
            "message": "1 neighbor(s) established, netlinkImport active",
        }],
    });
    assert_eq!(written, expected);
}

#[test]
fn what_is_written_fits_the_schema() {
    let crd = crate::crds().remove(3);
    let schema = crd.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
    let mut report = report(&[SessionState::Established, SessionState::Idle]);
    report.leaving = true;
    let mut object = node_status_object("node-1", "uid-1");
    object["status"] = json!(status(&report, None, 1));
    assert_eq!(schema::unknown(&schema, &object), [""; 0]);
    assert_eq!(schema::check(&schema, &object), []);
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "uid-1");
}

#[test]
fn a_node_that_is_not_well_says_everything_that_is_wrong() {
    let mut report = report(&[SessionState::Established, SessionState::Active]);
    report.import.addresses[1].advertised = false;
    let secret = Reason::SecretMissing { secret: "purelb-system/bgp".to_owned() };
    report.problems = vec![Problem::new("spec.neighbors[2].config.authPasswordSecretRef", secret)];
    let status = status(&report, None, 1);
    assert!(!status.healthy);
    let (ready, reason, sentence) = told(&status);
    assert_eq!((ready, reason), (false, "Degraded"));
    for words in [
        "1 of 2 neighbor(s) established",
        "neighbor 192.0.2.2 is Active (connection refused)",
        "10.1.2.4/24 on kube-lb0 is not advertised",
        "spec.neighbors[2].config.authPasswordSecretRef: Secret purelb-system/bgp does not exist",
    ] {
        assert!(sentence.contains(words), "{words} in {sentence}");
    }
    assert_eq!(serde_json::to_value(&status).unwrap().get("healthy"), None, "absent means no");
}

#[test]
fn a_neighbor_that_is_kept_down_is_not_missed() {
    let mut report = report(&[SessionState::Idle]);
    report.neighbors[0].admin_down = true;
    assert!(status(&report, None, 1).healthy);
}

#[test]
fn an_agent_that_ends_says_so() {
    let mut report = report(&[SessionState::Established]);
    report.leaving = true;
    let status = status(&report, None, 1);
    assert_eq!((status.healthy, told(&status).1), (false, "AgentShutdown"));
}

#[test]
fn long_lists_are_cut_and_the_counts_are_those_of_all() {
    let mut report = report(&[]);
    report.routes = (0..600)
        .map(|i| LocalRoute {
            prefix: format!("10.{}.{}.0/24", i / 256, i % 256).parse().unwrap(),
            advertised_to: BTreeSet::new(),
            communities: BTreeSet::new(),
        })
        .collect();
    report.import.addresses = vec![report.import.addresses[0].clone(); 501];
    let status = status(&report, None, 1);
    let (rib, import) = (status.rib.unwrap(), status.netlink_import.unwrap());
    assert_eq!((rib.local_routes.len(), rib.local_route_count, rib.truncated), (500, 600, true));
    assert_eq!((import.imported_addresses.len(), import.total_imported, import.truncated), (500, 501, true));
}

#[test]
fn a_patch_takes_away_what_is_no_longer_true() {
    let well = status(&report(&[SessionState::Established]), None, 1);
    let mut report = report(&[]);
    (report.router_id, report.routes) = (None, vec![]);
    report.import.addresses.clear();
    let empty = status(&report, Some(&well), 2);
    let patch = node_status_patch(Some(&well), &empty);
    let mut merged = json!({"status": well});
    json_patch::merge(&mut merged, &patch);
    assert_eq!(merged["status"], serde_json::to_value(&empty).unwrap());
    assert_eq!(merged["status"].get("routerID"), None);
    assert_eq!(empty.conditions[0].last_transition_time, well.conditions[0].last_transition_time, "still ready");
}

//! What the BGP half of the desk makes of configurations, Secrets and news of the speaker.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::registry::Registry;
use purelb_core::bgp::Password;
use purelb_core::members::Timing;
use serde_json::{Value, json};

use super::*;
use crate::agent::event::configuration_news;
use crate::agent::metrics::Metrics;

const ROUTER: &str = "192.0.2.254";

fn object(spec: &Value) -> Box<ConfigurationNews> {
    kept(spec, &Value::Null)
}

/// An object in whose status this form is kept.
fn kept(spec: &Value, last_valid: &Value) -> Box<ConfigurationNews> {
    let mut object = json!({
        "apiVersion": "bgp.purelb.io/v1", "kind": "BGPConfiguration",
        "metadata": {"name": "default", "namespace": "home", "uid": "1"}, "spec": spec,
    });
    if !last_valid.is_null() {
        object["status"] = json!({"lastValid": {"generation": 1, "spec": last_valid}});
    }
    Box::new(configuration_news(&serde_json::from_value(object).unwrap()))
}

fn spec_with(router: &str) -> Value {
    let mut spec = spec();
    spec["neighbors"][0]["config"]["neighborAddress"] = json!(router);
    spec
}

fn peers(bgp: &Bgp) -> Vec<String> {
    bgp.peers().map(|peer| peer.to_string()).collect()
}

/// The object is another now.
fn edit(bgp: &mut Bgp, news: Box<ConfigurationNews>) {
    assert!(bgp.take(Change::Here(news)));
    bgp.configure();
}

fn spec() -> Value {
    json!({
        "global": {"asn": 64512},
        "neighbors": [{"config": {"neighborAddress": ROUTER, "peerAsn": 64513}}],
        "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
    })
}

fn with_secret() -> Value {
    let mut spec = spec();
    spec["neighbors"][0]["config"]["authPasswordSecretRef"] = json!({"name": "router", "key": "password"});
    spec
}

/// A desk that knows its Node and this configuration.
fn desk(spec: &Value) -> Bgp {
    let mut bgp = Bgp::new("node-1", "home");
    let internal = vec!["192.0.2.1".parse().unwrap()];
    bgp.set_node(Some(&NodeFacts { name: "node-1".to_owned(), internal, ..NodeFacts::default() }));
    bgp.take(Change::Restarted);
    bgp.take(Change::Here(object(spec)));
    assert!(bgp.take(Change::Complete));
    bgp.configure();
    bgp
}

fn state() -> State {
    State::new("node-1", Timing { duration: Duration::from_secs(10), renew_deadline: Duration::from_secs(7) })
}

fn peer(state: SessionState, fault: Option<&str>) -> SpeakerNews {
    let news = PeerNews {
        state,
        since: Some(1_700_000_000),
        fault: fault.map(str::to_owned),
        kind: fault.map(|fault| fault.chars().take(4).collect()).unwrap_or_default(),
        limits: Vec::new(),
        restart_time: 0,
        told: Default::default(),
        heard: 0,
        flaps: 0,
        notification: None,
    };
    SpeakerNews { peers: [(ROUTER.parse().unwrap(), news)].into(), ..SpeakerNews::default() }
}

fn secret(found: &[(&str, &str)]) -> SecretNews {
    let entries: BTreeMap<_, _> = found.iter().map(|(key, text)| ((*key).to_owned(), Password::new(*text))).collect();
    let found = if found.is_empty() { BTreeMap::new() } else { [("router".to_owned(), entries)].into() };
    SecretNews { asked: ["router".to_owned()].into(), found, ..SecretNews::default() }
}

fn told(bgp: &mut Bgp) -> Vec<(&'static str, String)> {
    told_at(bgp, 0)
}

fn told_at(bgp: &mut Bgp, seconds: u64) -> Vec<(&'static str, String)> {
    let notices = bgp.notices(Moment(Duration::from_secs(seconds)));
    notices.into_iter().map(|(_, notice)| (notice.reason, notice.message)).collect()
}

fn reasons_at(bgp: &mut Bgp, seconds: u64) -> Vec<&'static str> {
    told_at(bgp, seconds).into_iter().map(|(reason, _)| reason).collect()
}

/// What a scrape shows of these metrics.
fn scrape(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

fn reasons(bgp: &mut Bgp) -> Vec<&'static str> {
    told(bgp).into_iter().map(|(reason, _)| reason).collect()
}

#[test]
fn a_session_whose_password_is_not_known_yet_waits_and_is_not_called_wrong() {
    let mut bgp = desk(&with_secret());
    assert!(bgp.speak(&state(), true).is_none() && reasons(&mut bgp).is_empty());
    assert_eq!(bgp.secrets_wanted(), Wanted { names: ["router".to_owned()].into(), anxious: true });
    bgp.set_secrets(secret(&[]));
    bgp.configure();
    assert_eq!(reasons(&mut bgp), ["RouterIDResolved", "SecretMissing"]);
    bgp.set_secrets(secret(&[("password", "open sesame")]));
    bgp.configure();
    let Some(Speak::Wish { wish, .. }) = bgp.speak(&state(), true) else { panic!("there is a session now") };
    assert_eq!(wish.peers[0].password, purelb_bgp::Secret::new("open sesame"));
    assert!(!format!("{wish:?}").contains("sesame"));
    bgp.hear(peer(SessionState::Established, None));
    assert!(!bgp.secrets_wanted().anxious, "all is well");
}

#[test]
fn a_wish_is_stated_when_it_is_another_and_taken_back_with_the_configuration() {
    let mut bgp = desk(&spec());
    assert!(matches!(bgp.speak(&state(), false), Some(Speak::Wish { wish, .. }) if !wish.complete));
    assert!(bgp.speak(&state(), false).is_none());
    assert!(matches!(bgp.speak(&state(), true), Some(Speak::Wish { wish, .. }) if wish.complete));
    assert_eq!(bgp.imported(), ["kube-lb0"]);
    assert!(bgp.take(Change::Gone(object(&spec()))));
    bgp.configure();
    assert!(matches!(bgp.speak(&state(), true), Some(Speak::Quiet)));
    assert!(bgp.speak(&state(), true).is_none() && bgp.imported().is_empty());
}

#[test]
fn a_configuration_that_becomes_unusable_stays_in_force_as_it_was() {
    let mut bgp = desk(&spec());
    let mut broken = spec();
    broken["global"]["asn"] = json!(0);
    assert!(bgp.take(Change::Here(object(&broken))));
    bgp.configure();
    assert_eq!(bgp.peers().count(), 1);
    assert_eq!(desk(&broken).peers().count(), 0, "one that never was usable is none");
}

#[test]
fn a_bad_edit_of_an_object_with_a_password_in_it_leaves_the_sessions_as_they_are() {
    let mut secured = spec();
    secured["neighbors"][0]["config"]["authPassword"] = json!("open sesame");
    let mut bgp = desk(&secured);
    let mut broken = secured.clone();
    broken["neighbors"][0]["timers"] = json!({"config": {"holdTime": 1}});
    edit(&mut bgp, object(&broken));
    assert_eq!(peers(&bgp), [ROUTER], "nothing is kept in the status, and yet the form is");
    edit(&mut bgp, object(&spec_with("192.0.2.253")));
    assert_eq!(peers(&bgp), ["192.0.2.253"], "what is mended counts");
}

#[test]
fn a_bad_edit_keeps_the_form_in_force_and_not_an_older_one_of_the_status() {
    let (first, second, broken) = (spec(), spec_with("192.0.2.253"), spec_with("nobody"));
    let mut bgp = desk(&first);
    edit(&mut bgp, kept(&second, &first));
    // No allocator runs, so that the status still has the first form.
    edit(&mut bgp, kept(&broken, &first));
    assert_eq!(peers(&bgp), ["192.0.2.253"]);
    let mut anew = desk(&broken);
    assert_eq!(anew.peers().count(), 0, "where nothing better was ever known, the usable part counts");
    let mut partly = spec_with("nobody");
    partly["neighbors"].as_array_mut().unwrap().push(spec()["neighbors"][0].clone());
    edit(&mut anew, object(&partly));
    assert_eq!(peers(&anew), [ROUTER], "also of the next edit");
}

#[test]
fn a_node_whose_only_neighbor_has_a_mistake_is_not_well() {
    let mut bgp = desk(&spec_with("nobody"));
    let report = bgp.report(&state(), Duration::from_secs(60), false);
    assert!(report.neighbors.is_empty() && !report.is_healthy());
    let said = report.problems[0].reason.to_string();
    assert!(said.contains("spec.neighbors[0].config.neighborAddress") && said.contains("nobody"), "{said}");
    assert_eq!(reasons(&mut bgp), ["RouterIDResolved"], "the object itself tells its author");
}

#[test]
fn a_node_that_no_neighbor_selects_is_told_so_and_is_well() {
    let mut unselected = spec();
    unselected["neighbors"][0]["nodeSelector"] = json!({"matchLabels": {"rack": "1"}});
    let mut bgp = desk(&unselected);
    assert!(bgp.speak(&state(), true).is_none());
    assert_eq!(reasons(&mut bgp), ["RouterIDResolved", "NoMatchingNeighbors"]);
    assert!(reasons(&mut bgp).is_empty(), "once");
    assert!(bgp.report(&state(), Duration::from_secs(60), false).is_healthy());
}

#[test]
fn a_session_that_falls_is_told_once_for_each_reason_until_it_is_up_again() {
    let mut bgp = desk(&spec());
    assert_eq!(reasons(&mut bgp), ["RouterIDResolved"]);
    bgp.hear(peer(SessionState::Established, None));
    assert!(reasons(&mut bgp).is_empty(), "what works needs no word");
    bgp.hear(peer(SessionState::Active, Some("hold timer expired")));
    let sentence = "Node node-1: the BGP session with 192.0.2.254 is down: hold timer expired";
    assert_eq!(told(&mut bgp), [("BgpSessionDown", sentence.to_owned())]);
    bgp.hear(peer(SessionState::Connect, Some("hold timer expired")));
    assert!(reasons(&mut bgp).is_empty());
    bgp.hear(peer(SessionState::Established, None));
    assert!(reasons_at(&mut bgp, 100).is_empty() && reasons_at(&mut bgp, 159).is_empty(), "it may fall again");
    assert_eq!(reasons_at(&mut bgp, 160), ["BgpSessionUp"]);
    assert!(reasons_at(&mut bgp, 300).is_empty());
    bgp.hear(peer(SessionState::Active, Some("hold timer expired")));
    assert_eq!(reasons_at(&mut bgp, 301), ["BgpSessionDown"]);
}

#[test]
fn a_router_that_resets_its_session_every_second_is_told_of_once() {
    let mut bgp = desk(&spec());
    assert_eq!(reasons(&mut bgp), ["RouterIDResolved"]);
    let mut said = Vec::new();
    for second in 0..500 {
        let mut up = peer(SessionState::Established, None);
        let router = up.peers.values_mut().next().unwrap();
        router.since = Some(second.try_into().unwrap());
        router.limits = vec!["the router does not speak IPv6".to_owned()];
        bgp.hear(up);
        said.extend(reasons_at(&mut bgp, second));
        bgp.hear(peer(SessionState::Active, Some(&format!("told: {second} bottles of beer"))));
        said.extend(reasons_at(&mut bgp, second));
    }
    assert_eq!(said, ["BgpSessionLimited", "BgpSessionDown"]);
    for kind in 0..500 {
        bgp.hear(peer(SessionState::Active, Some(&format!("{kind:04}"))));
        said.extend(reasons_at(&mut bgp, 500));
    }
    assert!(said.len() < 12, "kinds of fault are counted, too: {}", said.len());
}

#[test]
fn a_secret_that_could_not_be_read_keeps_its_session_waiting_and_no_other() {
    let mut spec = with_secret();
    spec["neighbors"][0]["config"]["authPasswordSecretRef"]["optional"] = json!(true);
    let other = json!({"config": {"neighborAddress": "192.0.2.253", "peerAsn": 64513}});
    spec["neighbors"].as_array_mut().unwrap().push(other);
    let mut bgp = desk(&spec);
    bgp.set_secrets(SecretNews { unread: ["router".to_owned()].into(), ..SecretNews::default() });
    bgp.configure();
    assert_eq!(reasons(&mut bgp), ["RouterIDResolved", "SecretUnread"]);
    assert_eq!(bgp.peers().map(|peer| peer.to_string()).collect::<Vec<_>>(), ["192.0.2.253"]);
    assert!(bgp.secrets_wanted().anxious, "it is read again soon");
    bgp.set_secrets(secret(&[]));
    bgp.configure();
    assert_eq!(bgp.peers().count(), 2, "now it is known that there is none");
}

#[test]
fn a_node_without_any_address_yet_waits_for_its_router_id() {
    let mut bgp = desk(&spec());
    let id = bgp.router_id();
    let bare = NodeFacts { name: "node-1".to_owned(), ..NodeFacts::default() };
    bgp.set_node(Some(&bare));
    bgp.configure();
    assert_eq!(bgp.router_id(), id, "one that had addresses keeps its name");
    let mut bgp = Bgp::new("node-1", "home");
    bgp.set_node(Some(&bare));
    bgp.take(Change::Restarted);
    bgp.take(Change::Here(object(&spec())));
    bgp.take(Change::Complete);
    bgp.configure();
    assert!(bgp.speak(&state(), true).is_none() && reasons(&mut bgp).is_empty());
    let at = |seconds| Moment(Duration::from_secs(seconds));
    assert!(!bgp.has_waited(at(100)) && bgp.waits_until() == Some(at(130)), "its kubelet may be about to write one");
    assert!(bgp.report_due(&state(), at(129)).0.is_none());
    assert!(bgp.has_waited(at(130)) && !bgp.has_waited(at(131)) && bgp.waits_until().is_none());
    let said = told_at(&mut bgp, 131);
    assert_eq!(said.len(), 1);
    assert!(said[0].0 == "RouterIDResolutionFailed" && said[0].1.contains("Node node-1 has no address"), "{said:?}");
    let report = bgp.report_due(&state(), at(132)).0.expect("it is reported");
    assert!(!report.is_healthy() && report.neighbors[0].last_error.contains("has no address"), "{report:?}");
    bgp.set_node(Some(&NodeFacts { internal: vec!["2001:db8::1".parse().unwrap()], ..bare }));
    bgp.configure();
    assert_eq!(bgp.router_id().map(|(_, source)| source), Some(RouterIdSource::HashFromNodeName));
    assert!(!bgp.has_waited(at(140)) && bgp.problems().is_empty(), "what is mended is not said any more");
}

#[test]
fn a_template_without_an_answer_is_told_under_the_name_it_always_had() {
    let mut spec = spec();
    spec["global"]["routerID"] = json!("${NODE_EXTERNAL_IP}");
    assert_eq!(reasons(&mut desk(&spec)), ["RouterIDResolutionFailed"]);
}

#[test]
fn a_port_that_is_taken_is_told_and_reported() {
    let mut bgp = desk(&spec());
    let deaf = Some("port 179 is taken by another program".to_owned());
    bgp.hear(SpeakerNews { deaf, ..peer(SessionState::Established, None) });
    assert_eq!(reasons(&mut bgp), ["RouterIDResolved", "BgpNotListening"]);
    let report = bgp.report(&state(), Duration::from_secs(60), false);
    assert!(!report.is_healthy());
    assert!(report.problems[0].reason.to_string().contains("port 179 is taken"));
}

#[test]
fn a_report_is_written_on_change_and_numbers_of_routers_are_none() {
    let at = |millis| Moment(Duration::from_millis(millis));
    let mut bgp = desk(&spec());
    let due = |bgp: &mut Bgp, millis| bgp.report_due(&state(), at(millis)).0.is_some();
    assert!(due(&mut bgp, 0));
    bgp.written(true, at(10));
    bgp.hear(peer(SessionState::Established, None));
    assert!(!due(&mut bgp, 500) && due(&mut bgp, 1000), "a second apart");
    bgp.written(true, at(1010));
    let mut news = peer(SessionState::Established, None);
    news.peers.values_mut().for_each(|peer| peer.heard = 900_000);
    bgp.hear(news);
    assert!(!due(&mut bgp, 5000) && due(&mut bgp, 61_000), "the heartbeat brings them");
}

#[test]
fn metrics_follow_sessions_whether_anything_is_reported_or_not() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry).bgp;
    let at = |seconds| Moment(Duration::from_secs(seconds));
    let mut silent = spec();
    silent["global"]["nodeStatus"] = json!({"enabled": false});
    let mut bgp = desk(&silent);
    let up = |state: i32| format!("purelb_bgp_session_up{{peer=\"{ROUTER}\"}} {state}\n");
    bgp.hear(peer(SessionState::Established, None));
    assert_eq!(bgp.count(&state(), &metrics, at(1)), None);
    assert!(scrape(&registry).contains(&up(1)));
    bgp.hear(peer(SessionState::Active, Some("hold timer expired")));
    assert_eq!(bgp.count(&state(), &metrics, at(1)), Some(at(2)), "not more than once a second");
    assert_eq!(bgp.count(&state(), &metrics, at(2)), None);
    assert!(scrape(&registry).contains(&up(0)));
    bgp.hear(peer(SessionState::Established, None));
    bgp.take(Change::Gone(object(&silent)));
    bgp.configure();
    bgp.count(&state(), &metrics, at(3));
    // The speaker ends after the configuration is gone.
    bgp.hear(SpeakerNews::default());
    bgp.count(&state(), &metrics, at(4));
    assert!(!scrape(&registry).contains("purelb_bgp_session_up{"), "nobody speaks any more");
}

#[test]
fn dashboards_find_the_metrics_of_bgp_by_their_names() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry).bgp;
    let mut bgp = desk(&spec());
    let mut news = peer(SessionState::Established, None);
    let router = news.peers.values_mut().next().unwrap();
    router.told = std::sync::Arc::new(["198.51.100.0/24".parse().unwrap(), "2001:db8::/64".parse().unwrap()].into());
    router.notification = Some("6/2".to_owned());
    bgp.hear(news);
    bgp.count(&state(), &metrics, Moment::default());
    metrics.status_written(Some((1.5, 700)));
    let shown = scrape(&registry);
    for line in [
        "k8gobgp_neighbors_total 1",
        "k8gobgp_neighbors_established_total 1",
        "k8gobgp_neighbors_active 0",
        "k8gobgp_neighbors_idle 0",
        "k8gobgp_neighbors_configured{name=\"default\",namespace=\"home\"} 1",
        "k8gobgp_neighbors_established{name=\"default\",namespace=\"home\"} 1",
        "k8gobgp_configuration_ready{name=\"default\",namespace=\"home\"} ",
        "k8gobgp_rib_route_count{family=\"ipv4_unicast\"} 0",
        "k8gobgp_rib_route_count{family=\"ipv6_unicast\"} 0",
        "k8gobgp_routes_advertised_total 2",
        "k8gobgp_routes_received_total 0",
        "k8gobgp_neighbor_routes_advertised{neighbor=\"192.0.2.254\",family=\"ipv4_unicast\"} 1",
        "k8gobgp_neighbor_routes_advertised{neighbor=\"192.0.2.254\",family=\"ipv6_unicast\"} 1",
        "k8gobgp_router_id_info{router_id=\"192.0.2.1\",source=\"node-ipv4\",node=\"node-1\",asn=\"64512\"} 1",
        "k8gobgp_router_id_source{source=\"node-ipv4\"} 1",
        "k8gobgp_router_id_resolution_total{result=\"success\"} 1",
        "k8gobgp_nodestatus_write_total{result=\"success\"} 1",
        "k8gobgp_nodestatus_last_successful_write_timestamp 1.5",
        "k8gobgp_nodestatus_object_size_bytes 700",
        "purelb_bgp_session_up{peer=\"192.0.2.254\"} 1",
        "purelb_bgp_session_flaps_total{peer=\"192.0.2.254\"} 0",
        "purelb_bgp_session_last_notification{peer=\"192.0.2.254\",code=\"6/2\"} 1",
        "purelb_bgp_not_listening 0",
    ] {
        assert!(shown.lines().any(|shown| shown.starts_with(line)), "{line} is missing in:\n{shown}");
    }
}

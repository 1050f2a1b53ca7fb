//! What the BGP half of the desk makes of configurations, Secrets and news of the speaker.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::registry::Registry;
use purelb_api::read::{self, BgpObject};
use purelb_core::bgp::Password;
use purelb_core::members::Timing;
use serde_json::{Value, json};

use super::*;
use crate::agent::metrics::Metrics;

const ROUTER: &str = "192.0.2.254";

fn object(spec: &Value) -> Box<ConfigurationNews> {
    let object = json!({
        "apiVersion": "bgp.purelb.io/v1", "kind": "BGPConfiguration",
        "metadata": {"name": "default", "namespace": "home", "uid": "1"}, "spec": spec,
    });
    let object: BgpObject = serde_json::from_value(object).unwrap();
    let configuration = read::bgp(&object).reading.value;
    Box::new(ConfigurationNews {
        key: ("home".to_owned(), "default".to_owned()),
        uid: "1".to_owned(),
        created: 1,
        leaving: false,
        configuration,
    })
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
    SecretNews { asked: ["router".to_owned()].into(), found }
}

fn told(bgp: &mut Bgp) -> Vec<(&'static str, String)> {
    bgp.notices().into_iter().map(|(_, notice)| (notice.reason, notice.message)).collect()
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
    assert_eq!(reasons(&mut bgp), ["BgpSessionUp"]);
    bgp.hear(peer(SessionState::Active, Some("hold timer expired")));
    assert_eq!(reasons(&mut bgp), ["BgpSessionDown"]);
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
    let metrics = Metrics::new(&mut Registry::default()).bgp;
    let at = |millis| Moment(Duration::from_millis(millis));
    let mut bgp = desk(&spec());
    let due = |bgp: &mut Bgp, millis| bgp.report_due(&state(), &metrics, at(millis)).0.is_some();
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

//! Mistakes in what holds for all nodes: LBNodeAgents and BGPConfigurations. What was right before stays in force.

use anyhow::Result;
use purelb_lab::Cluster;
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::makes::ADDRESSES;
use crate::mistakes::{all_refused, described, told};
use crate::purelb::{HOME, NODES, held_by};
use crate::site::room;
use crate::speaker::configuration;

fn agent(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "purelb.io/v2",
        "kind": "LBNodeAgent",
        "metadata": {"name": name, "namespace": HOME},
        "spec": spec,
    })
}

/// Nothing has changed for those who use the addresses.
async fn still_announced(cluster: &Cluster) -> Result<()> {
    for (address, length) in ADDRESSES {
        held_by(cluster, &format!("{address}/{length}"), &NODES).await?;
    }
    Ok(())
}

/// Applies an object whose mistake is told in its condition, and returns the sentence.
async fn noted(cluster: &Cluster, kind: &str, mistake: &str, object: &Value, reason: &str) -> Result<String> {
    cluster.apply(object).await?;
    let (home, name) = (&object["metadata"]["namespace"], &object["metadata"]["name"]);
    let line = [kind, "-n", home.as_str().unwrap_or_default(), name.as_str().unwrap_or_default()];
    let sentence = told(cluster, &line, reason).await?;
    let kind = object["kind"].as_str().unwrap_or_default();
    seen("12", &format!("{kind}: {mistake}, condition {reason}"), &sentence);
    Ok(sentence)
}

/// The objects here come and go beside the one of the manifests, which announces all the time.
pub async fn mistakes_in_an_lbnodeagent_are_told(cluster: &Cluster) -> Result<()> {
    let refusals = [
        (
            "eleven gratuitous ARPs",
            agent("greedy", &json!({"local": {"garpConfig": {"count": 11}}})),
            "should be less than or equal to 10",
        ),
        (
            "a lifetime before the beginning of time",
            agent("past", &json!({"local": {"addressConfig": {"localInterface": {"validLifetime": -1}}}})),
            "should be greater than or equal to 0",
        ),
        ("a misspelt field", agent("typo", &json!({"local": {"localinterface": "eth0"}})), "unknown field"),
    ];
    all_refused(cluster, "LBNodeAgent", &refusals).await?;

    let kind = "lbnodeagent";
    let selector = json!({"matchExpressions": [{"key": "edge", "operator": "Within", "values": ["yes"]}]});
    let odd = agent("odd", &json!({"local": {}, "nodeSelector": selector}));
    noted(cluster, kind, "a selector with an operator that there is not", &odd, "SelectorInvalid").await?;
    described(cluster, &[kind, "-n", HOME, "odd"], &["InvalidNodeSelector"]).await?;
    let second = agent("second", &json!({"local": {}}));
    let sentence = noted(cluster, kind, "a second one for all nodes", &second, "AgentShadowed").await?;
    assert!(sentence.contains("purelb-system/default takes precedence on every node"), "{sentence}");
    described(cluster, &[kind, "-n", HOME, "second"], &["ConfigIgnored"]).await?;
    cluster.kubectl(&["delete", kind, "-n", HOME, "odd", "second"]).await?;

    let pattern = |text: &str| agent("default", &json!({"local": {"localInterface": text}}));
    noted(cluster, kind, "a pattern that is none", &pattern("eth["), "InterfacePattern").await?;
    described(cluster, &[kind, "-n", HOME, "default"], &["ConfigError", "last good configuration stays in force"])
        .await?;
    still_announced(cluster).await?;
    cluster.apply(&pattern("default")).await?;
    told(cluster, &[kind, "-n", HOME, "default"], "Parsed").await?;
    Ok(())
}

fn named(name: &str, home: &str) -> Value {
    let mut object = configuration();
    object["metadata"] = json!({"name": name, "namespace": home});
    object
}

/// The same neighbors and one more, with a mistake.
fn with_neighbor(neighbor: Value) -> Value {
    let mut object = configuration();
    if let Some(all) = object["spec"]["neighbors"].as_array_mut() {
        all.push(neighbor);
    }
    object
}

/// The configuration that is in use keeps its sessions throughout.
pub async fn mistakes_in_a_bgpconfiguration_are_told(cluster: &Cluster) -> Result<()> {
    let kind = "bgpconfig";
    let (mut nameless, mut typo) = (named("nameless", HOME), named("typo", HOME));
    nameless["spec"]["global"] = json!({});
    typo["spec"]["neighbours"] = typo["spec"]["neighbors"].take();
    let mut prepends = named("prepends", HOME);
    prepends["spec"]["neighbors"][0]["advertise"] = json!({"prepend": 33});
    let refusals = [
        ("no AS", nameless, "spec.global.asn: Required value"),
        ("a misspelt field", typo, "unknown field \"spec.neighbours\""),
        ("an AS repeated 33 times", prepends, "should be less than or equal to 32"),
    ];
    all_refused(cluster, "BGPConfiguration", &refusals).await?;

    let elsewhere = "astray";
    room(cluster, elsewhere).await?;
    let outside = named("default", elsewhere);
    noted(cluster, kind, "a namespace nobody reads", &outside, "BgpConfigurationOutOfScope").await?;
    noted(cluster, kind, "a second one", &named("second", HOME), "BgpConfigurationIgnored").await?;
    cluster.kubectl(&["delete", kind, "-n", HOME, "second"]).await?;

    let neighbor = |address: &str| json!({"config": {"neighborAddress": address, "peerAsn": 64_999}});
    let mut hasty = neighbor("192.168.7.250");
    hasty["timers"] = json!({"config": {"holdTime": 2}});
    for (mistake, neighbor, reason) in [
        ("a neighbor that is no address", neighbor("192.168.7.300"), "AddressSyntax"),
        ("a hold time that RFC 4271 forbids", hasty, "HoldTimeInvalid"),
    ] {
        let sentence = noted(cluster, kind, mistake, &with_neighbor(neighbor), reason).await?;
        assert!(sentence.contains("spec.neighbors[2]") && sentence.ends_with("is in use"), "{sentence}");
    }
    let mut guarded = neighbor("192.168.7.250");
    guarded["config"]["authPasswordSecretRef"] = json!({"name": "nosuch", "key": "password"});
    cluster.apply(&with_neighbor(guarded)).await?;
    described(cluster, &["bgpns", "node1"], &["Secret purelb-system/nosuch does not exist"]).await?;
    let sentence = told(cluster, &["bgpns", "node1"], "Degraded").await?;
    seen("12", "BGPConfiguration: a Secret that does not exist, BGPNodeStatus", sentence);
    still_announced(cluster).await?;
    cluster.apply(&configuration()).await
}

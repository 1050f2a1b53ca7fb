//! What an operator writes: a BGPConfiguration, and what each node then reports about its sessions.

use std::net::IpAddr;

use anyhow::{Context, Result};
use purelb_lab::router::fabric::{Gate, HOME, NODES, Node, ROUTER_AS};
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};

use crate::story::Story;

const CONFIGURATIONS: &str = "/apis/bgp.purelb.io/v1/namespaces/purelb-system/configs";

/// One neighbor with short timers.
pub fn neighbor(address: IpAddr) -> Value {
    json!({
        "config": {"neighborAddress": address, "peerAsn": ROUTER_AS},
        "timers": {"config": {"holdTime": 9, "connectRetry": 2}},
    })
}

/// How often the session of a node with a neighbor fell, by the node's metrics.
pub fn flaps(node: &Node, neighbor: IpAddr) -> Result<u64> {
    let metrics = node.ask("/metrics")?;
    let name = format!("purelb_bgp_session_flaps_total{{peer=\"{neighbor}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
    value.with_context(|| format!("{} counts no flaps of {neighbor}", node.name()))?.parse().context("it is a number")
}

/// Each of these routers once in each family, changed as told.
pub fn neighbors(gates: &[Gate], change: impl Fn(&mut Value)) -> Vec<Value> {
    let addresses = gates.iter().flat_map(|gate| [gate.address("."), gate.address(":")]);
    let mut all: Vec<Value> = addresses.map(neighbor).collect();
    all.iter_mut().for_each(change);
    all
}

impl Story {
    /// Writes the BGPConfiguration `default`: what is on `kube-lb0` is advertised to these neighbors.
    pub async fn configure(&self, neighbors: Vec<Value>) -> Result<()> {
        let spec = json!({
            "global": {"asn": purelb_lab::router::fabric::NODE_AS},
            "neighbors": neighbors,
            "netlinkImport": {"enabled": true, "interfaceList": ["kube-lb0"]},
        });
        let path = format!("{CONFIGURATIONS}/default");
        if self.ground.get(&path).await.is_ok() {
            self.ground.patch(&path, PatchType::Merge, &json!({"spec": spec})).await?;
            return Ok(());
        }
        let object = json!({
            "apiVersion": "bgp.purelb.io/v1",
            "kind": "BGPConfiguration",
            "metadata": {"name": "default", "namespace": HOME},
            "spec": spec,
        });
        self.ground.create(CONFIGURATIONS, &object).await?;
        Ok(())
    }

    /// The report of a node, or null.
    pub async fn node_status(&self, node: &str) -> Result<Value> {
        match self.ground.get(&format!("/apis/bgp.purelb.io/v1/bgpnodestatuses/{node}")).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
            answer => Ok(answer?["status"].clone()),
        }
    }

    /// What a node reports of one neighbor, or null.
    pub async fn reported(&self, node: &str, neighbor: IpAddr) -> Result<Value> {
        let status = self.node_status(node).await?;
        let mut all = status["neighbors"].as_array().into_iter().flatten();
        let found = all.find(|one| one["address"] == neighbor.to_string().as_str());
        Ok(found.cloned().unwrap_or_default())
    }

    /// Waits until every node reports this many sessions, all of them up, and the routers agree.
    pub async fn established(&self, sessions: usize) -> Result<()> {
        self.until(&format!("every node reports {sessions} sessions, all up"), async |story| {
            for node in NODES {
                let status = story.node_status(node).await?;
                let all = status["neighbors"].as_array().cloned().unwrap_or_default();
                if all.len() != sessions || all.iter().any(|one| one["state"] != "Established") {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await?;
        for gate in self.gates() {
            for node in self.nodes() {
                for address in [node.v4, node.v6] {
                    gate.router()?
                        .wait_for(&format!("{address} is in session"), |router| router.is_established(address))?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a node's report says these words of a neighbor that is not in session.
    pub async fn says(&self, node: &str, neighbor: IpAddr, words: &str) -> Result<()> {
        let mut last = Value::Null;
        let said = self
            .until(&format!("{node} says {words:?} of {neighbor}"), async |story| {
                last = story.reported(node, neighbor).await?;
                Ok(last["state"] != "Established"
                    && last["lastError"].as_str().is_some_and(|text| text.contains(words)))
            })
            .await;
        said.with_context(|| format!("it says {last}"))
    }

    /// Waits until an Event somewhere has these words; returns it.
    pub async fn event(&self, words: &str) -> Result<Value> {
        let mut found = None;
        self.until(&format!("an Event says {words:?}"), async |story| {
            let events = story.ground.get("/api/v1/events").await?;
            let all = events["items"].as_array().cloned().unwrap_or_default();
            found = all.into_iter().find(|event| event["message"].as_str().is_some_and(|text| text.contains(words)));
            Ok(found.is_some())
        })
        .await?;
        found.context("an Event was just there")
    }
}

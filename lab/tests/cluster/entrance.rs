//! By which node traffic came in, as the Pods saw it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use purelb_lab::cluster::addresses;

use crate::purelb::NODES;

/// How many of these answers came in by each node.
///
/// With externalTrafficPolicy Cluster a Pod sees the node that let its client in: by the node's address on the segment,
/// or on the wire to the Pod if both are on one node.
pub fn entrances(answers: &[String]) -> Result<BTreeMap<&'static str, usize>> {
    let mut all = BTreeMap::new();
    for answer in answers {
        *all.entry(entrance(answer).with_context(|| format!("no node sent {answer:?}"))?).or_default() += 1;
    }
    Ok(all)
}

fn entrance(answer: &str) -> Option<&'static str> {
    let seen: IpAddr = answer.split_whitespace().nth(2)?.parse().ok()?;
    let is_of = |number: u8| {
        let ((v4, v6), (wire, _)) = (addresses::node(number), addresses::pod(number, 1));
        [v4.into(), v6.into(), IpAddr::from(wire)].contains(&seen)
    };
    (1..).zip(NODES).find(|(number, _)| is_of(*number)).map(|(_, name)| name)
}

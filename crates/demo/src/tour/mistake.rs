//! Step 5: an edit with a mistake in it: the sentence it gets, and who suffers from it (nobody).

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Value, json};

use super::{at, family, virtual_addresses};
use crate::ask::ask_often;
use crate::show::{Look, Show, demand};
use crate::site::Site;

const GROUP: &str = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/remotedual";

pub fn show(site: &mut Site, show: &mut Show) -> Result<()> {
    show.line("The group as it was once published; look at the end of its first range:");
    show.types("grep pool: reversed-range.yaml")?;
    show.types("kubectl apply -f reversed-range.yaml")?;
    let told = show.until("the group says that it is not valid", || valid(site, "False"))?;
    show.types(
        "kubectl get sg remotedual -n purelb-system \\\n    \
         -o jsonpath='{.status.conditions[?(@.type==\"Valid\")].message}{\"\\n\"}'",
    )?;
    demand(told.contains("172.32.100.225-172.30.100.229"), "the sentence names the range", &told)?;
    show.line("The last valid form stays in force. A client behind the router got answers to");
    let mut answered = BTreeMap::new();
    for address in virtual_addresses(site)? {
        let answers = ask_often(&site.client, at(address), 50)?;
        show.line(&format!("  {} of 50 requests to {address}", answers.len()));
        answered.insert(family(address), answers.len());
    }
    show.types("kubectl apply -f remotedual.yaml")?;
    show.until("the group says that it is valid", || valid(site, "True"))?;
    show.fact("sentence", told);
    show.fact("answered", json!(answered));
    Ok(())
}

/// The sentence of the condition, once it has this status.
fn valid(site: &Site, status: &str) -> Result<Look<String>> {
    let group = site.cluster.get(GROUP)?.unwrap_or_default();
    let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == "Valid" && condition["status"] == status);
    let message = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();
    Ok(found.map(message).ok_or_else(|| format!("its status is {}", group["status"])))
}

//! Step 5: an edit with a mistake in it: the sentence it gets, and who suffers from it (nobody).

use anyhow::{Context, Result};
use serde_json::Value;

use super::{at, virtual_addresses};
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
    let all = virtual_addresses(site)?;
    let answers = ask_often(&site.client, at(*all.first().context("there are two")?), 50)?;
    show.line(&format!("The last valid form stays in force: {} of 50 requests answered.", answers.len()));
    show.types("kubectl apply -f remotedual.yaml")?;
    show.until("the group says that it is valid", || valid(site, "True"))?;
    show.fact("sentence", told);
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

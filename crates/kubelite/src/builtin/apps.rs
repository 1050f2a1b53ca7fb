//! DaemonSets and Deployments. Nobody runs them here: they say what should run, and others report what does.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use serde_json::{Value, json};

use super::cluster::complete_pod;
use super::typed;
use crate::kinds::Served;
use crate::object::{carry, map_at, map_of};
use crate::openapi::Schemas;
use crate::rules::{Ground, Rules};
use crate::status::Cause;

/// DaemonSets start without a single pod.
pub(crate) struct DaemonSetRules;

impl Rules for DaemonSetRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut set = typed::<DaemonSet>(with_spec(body))?;
        complete(&mut set, "updateStrategy", &json!({"maxSurge": 0, "maxUnavailable": 1}));
        let status = map_at(&mut set, "status");
        for count in ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"] {
            status.entry(count).or_insert(json!(0));
        }
        Ok(set)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<DaemonSet>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        let none = json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        });
        map_of(new).insert("status".into(), none);
        count_template(new, 1);
        selector_faults(new)
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        let before = old["metadata"]["annotations"][GENERATION].as_str().and_then(|it| it.parse::<u64>().ok());
        let changed = old["spec"]["template"] != new["spec"]["template"];
        count_template(new, before.unwrap_or(1) + u64::from(changed));
        update(old, new)
    }
}

/// How often the template of a DaemonSet has changed: an old field that is still shown as an annotation.
const GENERATION: &str = "deprecated.daemonset.template.generation";

fn count_template(set: &mut Value, generation: u64) {
    let annotations = map_at(set, "metadata").entry("annotations").or_insert_with(|| json!({}));
    map_of(annotations).insert(GENERATION.into(), json!(generation.to_string()));
}

/// Deployments want one replica unless they say otherwise.
pub(crate) struct DeploymentRules;

impl Rules for DeploymentRules {
    fn decode(&self, _served: &Served, body: Value) -> Result<Value, String> {
        let mut deployment = typed::<Deployment>(with_spec(body))?;
        complete(&mut deployment, "strategy", &json!({"maxSurge": "25%", "maxUnavailable": "25%"}));
        let spec = map_at(&mut deployment, "spec");
        spec.entry("replicas").or_insert(json!(1));
        spec.entry("progressDeadlineSeconds").or_insert(json!(600));
        map_at(&mut deployment, "status");
        Ok(deployment)
    }

    fn describe(&self, _served: &Served, schemas: &mut Schemas) -> String {
        schemas.typed::<Deployment>()
    }

    fn create(&self, _ground: &Ground<'_>, _served: &Served, new: &mut Value) -> Vec<Cause> {
        map_of(new).insert("status".into(), json!({}));
        selector_faults(new)
    }

    fn update(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        update(old, new)
    }
}

/// An empty spec is faulty, and not misshapen.
fn with_spec(mut body: Value) -> Value {
    let spec = map_at(&mut body, "spec");
    spec.entry("selector").or_insert(json!({}));
    spec.entry("template").or_insert(json!({}));
    body
}

/// Fills in what a workload does not say.
fn complete(workload: &mut Value, strategy: &str, pace: &Value) {
    let spec = map_at(workload, "spec");
    spec.entry("revisionHistoryLimit").or_insert(json!(10));
    let chosen = map_of(spec.entry(strategy).or_insert(json!({})));
    let rolling = chosen.entry("type").or_insert(json!("RollingUpdate")) == "RollingUpdate";
    if rolling {
        let chosen = map_of(chosen.entry("rollingUpdate").or_insert(json!({})));
        for (field, default) in pace.as_object().into_iter().flatten() {
            chosen.entry(field.clone()).or_insert_with(|| default.clone());
        }
    }
    let template = spec.entry("template").or_insert(json!({}));
    map_at(template, "metadata");
    complete_pod(map_at(template, "spec"));
}

fn update(old: &Value, new: &mut Value) -> Vec<Cause> {
    carry(old, new, "status");
    let changed = old["spec"]["selector"] != new["spec"]["selector"];
    let fault = || Cause::invalid("spec.selector", &new["spec"]["selector"], "field is immutable");
    changed.then(fault).into_iter().chain(selector_faults(new)).collect()
}

/// A workload must select the pods of its own template, and nothing but them would be too little.
fn selector_faults(workload: &Value) -> Vec<Cause> {
    let selector = &workload["spec"]["selector"];
    let wanted = selector["matchLabels"].as_object();
    if wanted.is_none_or(|labels| labels.is_empty()) && selector["matchExpressions"].is_null() {
        let rule = "empty selector is invalid for workloads";
        return vec![Cause::invalid("spec.selector", selector, rule)];
    }
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    if wanted.into_iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
        let rule = "`selector` does not match template `labels`";
        return vec![Cause::invalid("spec.template.metadata.labels", labels, rule)];
    }
    Vec::new()
}

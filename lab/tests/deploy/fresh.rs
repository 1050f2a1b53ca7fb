//! A fresh install, as the API server understands it.

use anyhow::{Context, Result};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Way, container, shipped};

const HOME: &str = "purelb-system";

/// A pod of this workload, as its controller would create it.
fn pod(workload: &Value) -> Value {
    let template = &workload["spec"]["template"];
    let mut metadata = template["metadata"].clone();
    metadata["name"] = json!("trial");
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

/// What the API server says to a pod in this namespace, without creating it.
async fn trial(cluster: &Cluster, workload: &Value, namespace: &str) -> Result<String> {
    cluster.send(&["create", "-n", namespace, "--dry-run=server", "-f", "-"], &pod(workload).to_string()).await
}

/// What ordinary pods may not do and this one asks for, in the words of the refusal.
fn causes(refusal: &str) -> Result<Vec<&str>> {
    let (_, causes) =
        refusal.split_once("\"baseline:latest\": ").with_context(|| format!("another refusal: {refusal}"))?;
    Ok(causes.trim().split("), ").map(|cause| cause.split(" (").next().unwrap_or_default()).collect())
}

#[tokio::test]
async fn the_allocator_lives_under_the_strictest_pod_security_and_the_agent_asks_for_three_things() -> Result<()> {
    let cluster = Cluster::with_our_kinds().await?;
    cluster.apply(Way::Client, &shipped("install.yaml")).await?;
    cluster.kubectl(&["apply", "--validate=strict", "-k", &shipped("samples-bgp")]).await?;
    let allocator = cluster.get(&["-n", HOME, "deployment/allocator"]).await?;
    let agent = cluster.get(&["-n", HOME, "daemonset/lbnodeagent"]).await?;
    trial(&cluster, &allocator, HOME).await?;
    trial(&cluster, &agent, HOME).await?;

    for level in ["restricted", "baseline"] {
        cluster.kubectl(&["create", "namespace", level]).await?;
        cluster.kubectl(&["label", "namespace", level, &format!("pod-security.kubernetes.io/enforce={level}")]).await?;
    }
    trial(&cluster, &allocator, "restricted").await?;
    let refused = trial(&cluster, &agent, "baseline").await.err().context("an agent is more than an ordinary pod")?;
    assert_eq!(causes(&refused.to_string())?, ["non-default capabilities", "host namespaces", "hostPort"]);
    Ok(())
}

/// What the agent may do on its node, as the API server understood it.
fn rights(capabilities: &Value) -> Value {
    json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "runAsUser": 0,
        "runAsGroup": 0,
        "capabilities": {"drop": ["ALL"], "add": capabilities},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// What scripts, monitoring and the kubelet go by: labels, annotations, the named port, probes; and where it may run.
fn others_find_it(workload: &Value, component: &str) -> Result<()> {
    let labels = json!({"app": "purelb", "component": component});
    let template = &workload["spec"]["template"];
    assert_eq!(workload["metadata"]["name"], component);
    for found in
        [&workload["metadata"]["labels"], &template["metadata"]["labels"], &workload["spec"]["selector"]["matchLabels"]]
    {
        assert_eq!(*found, labels, "the labels of the {component}");
    }
    let scraped = json!({"prometheus.io/scrape": "true", "prometheus.io/port": "7472"});
    assert_eq!(template["metadata"]["annotations"], scraped, "the annotations of the {component}'s pods");
    assert_eq!(template["spec"]["serviceAccountName"], component);
    assert_eq!(template["spec"]["nodeSelector"], json!({"kubernetes.io/os": "linux"}));
    let tolerated = ["control-plane", "master"].map(
        |role| json!({"key": format!("node-role.kubernetes.io/{role}"), "operator": "Exists", "effect": "NoSchedule"}),
    );
    assert_eq!(template["spec"]["tolerations"], json!(tolerated), "the {component} runs on control-plane nodes");

    let container = container(workload)?;
    assert_eq!(container["name"], component);
    let monitoring = &container["ports"][0];
    assert_eq!((&monitoring["name"], &monitoring["containerPort"]), (&json!("monitoring"), &json!(7472)));
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let asked = &container[probe]["httpGet"];
        assert_eq!((&asked["path"], &asked["port"]), (&json!(path), &json!("monitoring")), "{component}: {probe}");
    }
    Ok(())
}

/// Every object of an install that has a place says whose it is.
async fn all_are_labelled(cluster: &Cluster, install: &str) -> Result<()> {
    let list = cluster.get(&["-f", &shipped(install)]).await?;
    for object in list["items"].as_array().context("an install is several objects")? {
        assert_eq!(object["metadata"]["labels"]["app"], "purelb", "{} {}", object["kind"], object["metadata"]["name"]);
    }
    Ok(())
}

/// Name and version of every object of an install.
async fn versions(cluster: &Cluster, install: &str) -> Result<Vec<(Value, Value)>> {
    let mut list = cluster.get(&["-f", &shipped(install)]).await?;
    let objects = list["items"].as_array_mut().context("an install is several objects")?;
    let metadata = objects.iter_mut().map(|object| object["metadata"].take());
    Ok(metadata.map(|mut metadata| (metadata["name"].take(), metadata["resourceVersion"].take())).collect())
}

#[rstest]
#[case("install.yaml", Way::Client, json!(["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"]), json!([7472, 179]))]
#[case("install-nobgp.yaml", Way::Server, json!(["NET_ADMIN", "NET_RAW"]), json!([7472]))]
#[tokio::test]
async fn a_fresh_cluster_takes_the_install_in_one_go_and_again(
    #[case] install: &str,
    #[case] way: Way,
    #[case] capabilities: Value,
    #[case] ports: Value,
) -> Result<()> {
    let cluster = Cluster::bare().await?;
    cluster.learn(&["-f", &shipped(&install.replace("install", "install-crds"))]).await?;
    cluster.apply(way, &shipped(install)).await?;
    let before = versions(&cluster, install).await?;
    cluster.apply(way, &shipped(install)).await?;
    assert_eq!(versions(&cluster, install).await?, before, "applied again, it changes nothing");
    all_are_labelled(&cluster, install).await?;

    let agent = cluster.get(&["-n", HOME, "daemonset/lbnodeagent"]).await?;
    let allocator = cluster.get(&["-n", HOME, "deployment/allocator"]).await?;
    for (workload, component) in [(&agent, "lbnodeagent"), (&allocator, "allocator")] {
        others_find_it(workload, component)?;
    }
    assert_eq!(
        (&allocator["spec"]["replicas"], &allocator["spec"]["strategy"]["type"]),
        (&json!(2), &json!("Recreate"))
    );
    let container = container(&agent)?;
    assert_eq!(container["securityContext"], rights(&capabilities));
    let taken = container["ports"].as_array().into_iter().flatten().map(|port| port["containerPort"].clone());
    assert_eq!(taken.collect::<Value>(), ports);
    Ok(())
}

//! What becomes of Pods: readiness, restarts, ends.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use purelb_lab::Cluster;
use serde_json::json;

use crate::site::{SOON, cluster, fetch, pod, ready, room, url};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_not_ready_is_no_endpoint_until_it_is_again() -> Result<()> {
    let story = "pods::a_pod_that_is_not_ready_is_no_endpoint_until_it_is_again";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "readiness";
            room(cluster, home).await?;
            cluster.apply(&pod(home, "echo", &json!({}))).await?;
            cluster
                .apply(&json!({
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": "echo", "namespace": home},
                    "spec": {"selector": {"app": "echo"}, "ports": [{"port": 80, "targetPort": "http"}]},
                }))
                .await?;
            let address = ready(cluster, home, "echo").await?;
            let node = &cluster.nodes[0].namespace;
            let toggle = || fetch(node, &url(&address, 8080, "/hang"));
            let endpoint = async |cluster: &Cluster, wanted: bool| -> Result<bool> {
                let slices = cluster.object(&["endpointslices", "-n", home]).await?;
                let endpoint = &slices["items"][0]["endpoints"][0];
                Ok(endpoint["addresses"][0] == json!(address) && endpoint["conditions"]["ready"] == json!(wanted))
            };
            cluster.until("it is an endpoint", SOON, async |cluster| endpoint(cluster, true).await).await?;
            toggle()?;
            cluster.until("it is none", SOON, async |cluster| endpoint(cluster, false).await).await?;
            toggle()?;
            cluster.until("it is one again", SOON, async |cluster| endpoint(cluster, true).await).await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_done_its_work_says_so_and_one_that_fails_starts_again() -> Result<()> {
    let story = "pods::a_pod_that_has_done_its_work_says_so_and_one_that_fails_starts_again";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "ends";
            room(cluster, home).await?;
            for (name, policy, word) in [("works", "Never", "--version"), ("fails", "Always", "--nonsense")] {
                let mut object = pod(home, name, &json!({}));
                object["spec"]["restartPolicy"] = json!(policy);
                object["spec"]["containers"] =
                    json!([{"name": "tool", "image": "echo", "command": ["/unshare", word]}]);
                cluster.apply(&object).await?;
            }
            let status = async |cluster: &Cluster, name: &str| -> Result<serde_json::Value> {
                Ok(cluster.object(&["pod", "-n", home, name]).await?["status"].take())
            };
            let done = async |cluster: &Cluster| Ok(status(cluster, "works").await?["phase"] == "Succeeded");
            cluster.until("the work is done", SOON, done).await?;
            let again = async |cluster: &Cluster| {
                let container = status(cluster, "fails").await?["containerStatuses"][0].take();
                Ok(container["restartCount"].as_u64() >= Some(2)
                    && container["lastState"]["terminated"]["exitCode"] == 1)
            };
            cluster.until("it was started again, twice", SOON, again).await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_ends_when_it_is_told_to_or_when_its_time_is_over() -> Result<()> {
    let story = "pods::a_pod_ends_when_it_is_told_to_or_when_its_time_is_over";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "grace";
            room(cluster, home).await?;
            let (mut obeys, mut ignores) = (pod(home, "obeys", &json!({})), pod(home, "ignores", &json!({})));
            obeys["spec"]["terminationGracePeriodSeconds"] = json!(100);
            // The first process of a container that does not listen for SIGTERM never gets it.
            ignores["spec"]["containers"] =
                json!([{"name": "deaf", "image": "echo", "command": ["/unshare", "--fork", "/echo"]}]);
            ignores["spec"]["terminationGracePeriodSeconds"] = json!(3);
            for object in [&obeys, &ignores] {
                cluster.apply(object).await?;
            }
            for name in ["obeys", "ignores"] {
                ready(cluster, home, name).await?;
            }
            let asked = Instant::now();
            cluster.kubectl(&["delete", "pod", "-n", home, "obeys", "--timeout=90s"]).await?;
            assert!(asked.elapsed() < Duration::from_secs(60), "it did not use its 100 s: {:?}", asked.elapsed());
            let asked = Instant::now();
            cluster.kubectl(&["delete", "pod", "-n", home, "ignores", "--timeout=90s"]).await?;
            assert!(asked.elapsed() >= Duration::from_secs(3), "it had its three seconds: {:?}", asked.elapsed());
            let logs = cluster.logs().join(format!("{home}_obeys_echo.0.log"));
            let log = std::fs::read_to_string(logs).context("its log is kept")?;
            assert!(log.contains("told to end"), "{log}");
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_lab_cannot_do_is_told_in_the_pods_status() -> Result<()> {
    let story = "pods::what_the_lab_cannot_do_is_told_in_the_pods_status";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "refusals";
            room(cluster, home).await?;
            let mut nameless = pod(home, "nameless", &json!({}));
            nameless["spec"]["containers"][0]["image"] = json!("registry.example/nothing:1");
            cluster.apply(&nameless).await?;
            cluster.apply(&pod(home, "root", &json!({"runAsNonRoot": true}))).await?;
            for (name, reason, words) in [
                ("nameless", "ErrImagePull", "has no image registry.example/nothing:1"),
                ("root", "CreateContainerConfigError", "runAsNonRoot"),
            ] {
                let told = async |cluster: &Cluster| {
                    let pod = cluster.object(&["pod", "-n", home, name]).await?;
                    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
                    let message = waiting["message"].as_str().unwrap_or_default();
                    Ok(waiting["reason"] == reason && message.contains(words))
                };
                cluster.until(&format!("{name} waits because of {reason}"), SOON, told).await?;
            }
            Ok(())
        })
        .await
}

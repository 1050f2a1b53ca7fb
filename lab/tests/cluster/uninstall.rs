//! PureLB is uninstalled as the documentation says, with a node that is down meanwhile: nothing of it is left.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use purelb_lab::Cluster;
use purelb_lab::cluster::{Node, Proxy};
use purelb_lab::tested::seen;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::past::{nothing_denied, shipped};
use crate::purelb::{HOME, assigned, group, install, kinds_gone, service, shown};
use crate::site::{SECOND, SOON, fetch, fresh, room};

const ROOM: &str = "shop";
const NEAR: &str = "192.168.7.200";
const FAR: &str = "172.38.0.1";
/// The node that is down.
const DOWN: &str = "node3";

/// What `ip` shows of a node besides its Pods: interfaces, addresses, routes of all tables.
fn footprint(node: &Node) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for link in node.namespace.ip(&["-j", "addr"])?.as_array().into_iter().flatten() {
        let name = link["ifname"].as_str().unwrap_or_default();
        all.insert(format!("link {name}"));
        for entry in link["addr_info"].as_array().into_iter().flatten() {
            all.insert(format!("{name} {}/{}", entry["local"], entry["prefixlen"]));
        }
    }
    for family in ["-4", "-6"] {
        for route in
            node.namespace.ip(&["-j", family, "route", "show", "table", "all"])?.as_array().into_iter().flatten()
        {
            let part = |key: &str| route[key].to_string();
            all.insert(["type", "dst", "gateway", "dev", "table"].map(part).join(" "));
        }
    }
    // Pods come and go.
    Ok(all.into_iter().filter(|line| !line.contains("pod")).collect())
}

/// Waits until a node is as it was.
async fn restored(cluster: &Cluster, node: &Node, before: &BTreeSet<String>) -> Result<()> {
    let same = async |_: &Cluster| {
        let after = footprint(node)?;
        let more: Vec<_> = after.difference(before).collect();
        let less: Vec<_> = before.difference(&after).collect();
        ensure!(more.is_empty() && less.is_empty(), "{} has {more:?} more and {less:?} less", node.name);
        Ok(true)
    };
    cluster.until(&format!("{} is as it was", node.name), SOON, same).await
}

/// What the page says in a block that comes after these words.
fn said(after: &str, fence: &str) -> Result<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/install.md");
    let text = fs::read_to_string(page)?;
    let (_, rest) = text.split_once(after).with_context(|| format!("the page does not say {after:?}"))?;
    let (_, rest) = rest.split_once(fence).context("there is no such block")?;
    Ok(rest.split_once("```").context("the block ends")?.0.to_owned())
}

/// The Pod that the documentation has for a node that was down.
fn cleanup() -> Result<Value> {
    let pod: Value = serde_saphyr::from_str(&said("### A node that is down", "```yaml\n# cleanup.yaml\n")?)?;
    ensure!(pod["spec"]["nodeName"] == DOWN, "the example is about {}", pod["spec"]["nodeName"]);
    Ok(pod)
}

/// Commands of the page, typed beside `deploy` until one fails.
fn typed(cluster: &Cluster, folder: &Path, script: &str) -> Result<Command> {
    let kubectl = cluster.plane.programs().path("kubectl");
    let first = kubectl.parent().context("kubectl is in a folder")?;
    let path = format!("{}:{}", first.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("timeout");
    shell.args([&SOON.as_secs().to_string(), "bash", "-e", "-o", "pipefail", "-c", script]);
    shell.current_dir(folder).env("PATH", path).env("KUBECONFIG", cluster.plane.kubeconfig());
    Ok(shell)
}

async fn at_work(cluster: &Cluster) -> Result<()> {
    install(cluster, "default").await?;
    room(cluster, ROOM).await?;
    let pool = |pool: &str, subnet: &str, aggregation: &str| json!({"local": {"v4pools": [{"pool": pool, "subnet": subnet, "aggregation": aggregation}]}});
    cluster.apply(&group("near", &pool("192.168.7.200-192.168.7.209", "192.168.7.0/24", "default"))).await?;
    cluster.apply(&group("far", &pool("172.38.0.1-172.38.0.9", "172.38.0.0/24", "/32"))).await?;
    for (name, address) in [("near", NEAR), ("far", FAR)] {
        cluster.apply(&service(ROOM, name, "nothing", name, &["IPv4"])).await?;
        assert_eq!(assigned(cluster, ROOM, name).await?, [address]);
    }
    let announced = async |cluster: &Cluster| {
        let everywhere = cluster.nodes.iter().map(|node| shown(node, "kube-lb0")).collect::<Result<Vec<_>>>()?;
        let somewhere = cluster.nodes.iter().map(|node| shown(node, "eth0")).collect::<Result<Vec<_>>>()?.concat();
        let here = somewhere.contains(&format!("{NEAR}/24"));
        Ok(here && everywhere.iter().all(|shown| shown.contains(&format!("{FAR}/32"))))
    };
    cluster.until("both addresses are announced", SOON, announced).await
}

/// As the documentation says for a cluster of which one node is down.
async fn uninstall(cluster: &Cluster, folder: &Path) -> Result<()> {
    let mut all = typed(cluster, folder, &said("## Uninstall", "```sh\n")?)?.spawn()?;
    let going = async |cluster: &Cluster| {
        let agents = cluster.object(&["daemonset/lbnodeagent", "-n", HOME]).await?;
        Ok(!agents["metadata"]["deletionTimestamp"].is_null())
    };
    cluster.until("the agents are told to go", SOON, going).await?;
    let forget = said("### A node that is down", "```sh\n")?;
    ensure!(typed(cluster, folder, &forget)?.status().await?.success(), "{forget}");
    let (typed, gone) = tokio::join!(all.wait(), kinds_gone(cluster));
    gone?;
    ensure!(typed?.success(), "the commands of the page failed");
    Ok(())
}

/// What was kept comes back when PureLB does.
async fn restored_objects(cluster: &Cluster, folder: &Path) -> Result<()> {
    cluster.kubectl(&["apply", "-f", &shipped("install-crds.yaml").display().to_string()]).await?;
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]).await?;
    cluster.kubectl(&["create", "namespace", HOME]).await?;
    let restore = said("If PureLB is to come back", "```sh\n")?;
    ensure!(typed(cluster, folder, &restore)?.status().await?.success(), "{restore}");
    let back = cluster.kubectl(&["get", "servicegroups,lbnodeagents", "-n", HOME, "-o", "name"]).await?;
    let mut back: Vec<&str> = back.lines().collect();
    back.sort_unstable();
    assert_eq!(back, ["lbnodeagent.purelb.io/default", "servicegroup.purelb.io/far", "servicegroup.purelb.io/near"]);
    Ok(())
}

/// What the cluster still knows of PureLB: nothing but the Services of its users.
async fn forgotten(cluster: &Cluster) -> Result<()> {
    let kinds = "crd,namespaces,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,leases,configmaps,\
                 deployments,daemonsets,poddisruptionbudgets,pods";
    let left = cluster.kubectl(&["get", kinds, "-A", "-o", "name"]).await?;
    let left: Vec<&str> = left.lines().filter(|name| name.contains("purelb")).collect();
    ensure!(left.is_empty(), "the cluster still has {left:?}");
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].metadata}"]).await?;
    ensure!(!nodes.contains("purelb"), "the Nodes still speak of PureLB: {nodes}");
    for (name, address) in [("near", NEAR), ("far", FAR)] {
        let service = cluster.object(&["service", "-n", ROOM, name]).await?;
        let kept = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        ensure!(kept == address, "a Service keeps what it shows: {kept}");
        ensure!(service["metadata"]["finalizers"].is_null(), "and can be deleted: {service}");
    }
    cluster.kubectl(&["delete", "service", "-n", ROOM, "near", "far", "--timeout=30s"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_on_any_node_when_it_is_uninstalled() -> Result<()> {
    let story = "uninstall::nothing_is_left_on_any_node_when_it_is_uninstalled";
    let _alone = SECOND.lock().await;
    let cluster = fresh(None, Proxy::Nftables).await?;
    let folder = tempfile::tempdir()?;
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy"), folder.path().join("deploy"))?;
    cluster
        .prove(story, async |cluster| {
            // As in small clusters, where every node is one: without its tolerations PureLB would be nowhere.
            let taint = "node-role.kubernetes.io/control-plane:NoSchedule";
            cluster.kubectl(&["taint", "nodes", "--all", taint]).await?;
            let before = cluster.nodes.iter().map(footprint).collect::<Result<Vec<_>>>()?;
            at_work(cluster).await?;
            let down = cluster.node(DOWN)?;
            down.plug.cut()?;
            uninstall(cluster, folder.path()).await?;
            for (node, before) in cluster.nodes.iter().zip(&before).filter(|(node, _)| node.name != DOWN) {
                restored(cluster, node, before).await?;
            }

            down.plug.mend()?;
            let ended = async |_: &Cluster| Ok(fetch(&down.namespace, "http://127.0.0.1:7472/healthz").is_err());
            cluster.until("the agent of the node that was down has ended", SOON, ended).await?;
            let left = shown(down, "kube-lb0")?;
            ensure!(left == [format!("{FAR}/32")], "there is something to clean up: {left:?}");
            cluster.apply(&cleanup()?).await?;
            let done = "--for=jsonpath={.status.phase}=Succeeded";
            let timeout = format!("--timeout={}s", SOON.as_secs());
            cluster.kubectl(&["wait", "-n", "kube-system", "pod/purelb-cleanup", done, &timeout]).await?;
            cluster.kubectl(&["delete", "pod", "-n", "kube-system", "purelb-cleanup"]).await?;
            for (node, before) in cluster.nodes.iter().zip(&before) {
                restored(cluster, node, before).await?;
            }
            forgotten(cluster).await?;
            nothing_denied(cluster)?;
            restored_objects(cluster, folder.path()).await?;
            seen("9", "links, addresses and routes left on three nodes, one of them down meanwhile", "none");
            seen("9", "objects of PureLB left in the cluster", "none");
            Ok(())
        })
        .await
}

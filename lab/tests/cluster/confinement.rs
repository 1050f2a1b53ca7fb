//! What a Pod may not do is refused to it by the kernel, as on a node with a container runtime. Seen from inside.

use anyhow::{Context, Result};
use purelb_lab::net::Namespace;
use serde_json::{Value, json};

use crate::site::{cluster, fetch, pod, ready, room, url};

/// A Pod as it sees itself.
struct Inside<'a> {
    from: &'a Namespace,
    address: String,
}

impl Inside<'_> {
    fn ask(&self, path: &str) -> Result<String> {
        fetch(self.from, &url(&self.address, 8080, path))
    }

    /// A line of `/proc/1/status`, of the first process of the container.
    fn status(&self, line: &str) -> Result<String> {
        let text = self.ask("/file?/proc/1/status")?;
        let found = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
        Ok(found.with_context(|| format!("there is no {line}"))?.trim().replace('\t', " "))
    }
}

/// What the shipped manifests ask for.
fn strict(capabilities: &Value) -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": capabilities,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_pod_has_what_its_manifest_says_and_nothing_else() -> Result<()> {
    let story = "confinement::an_agents_pod_has_what_its_manifest_says_and_nothing_else";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "strict";
            room(cluster, home).await?;
            cluster
                .apply(&pod(home, "agent", &strict(&json!({"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]}))))
                .await?;
            let address = ready(cluster, home, "agent").await?;
            let inside = Inside { from: &cluster.nodes[0].namespace, address };
            for line in ["CapPrm", "CapEff", "CapBnd"] {
                assert_eq!(inside.status(line)?, "0000000000003000", "{line}");
            }
            for line in ["CapInh", "CapAmb"] {
                assert_eq!(inside.status(line)?, "0000000000000000", "{line}");
            }
            assert_eq!((inside.status("NoNewPrivs")?.as_str(), inside.status("Seccomp")?.as_str()), ("1", "2"));
            assert_eq!(inside.status("Uid")?, "0 0 0 0");
            for path in ["/file", "/etc/hosts", "/proc/sys/net/ipv4/ip_forward", "/sys/class/net/eth0/mtu"] {
                let refusal = inside.ask(&format!("/write?{path}"))?;
                assert!(refusal.contains("Read-only file system"), "{path}: {refusal}");
            }
            assert!(inside.ask("/file?/proc/sys/net/ipv4/ip_forward")?.starts_with(['0', '1']), "it can be read");
            let token = inside.ask("/file?/var/run/secrets/kubernetes.io/serviceaccount/token")?;
            assert_eq!(token.split('.').count(), 3, "a token of its ServiceAccount: {token}");
            assert_eq!(inside.ask("/file?/var/run/secrets/kubernetes.io/serviceaccount/namespace")?, home);
            assert!(
                inside.ask("/file?/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")?.starts_with("-----BEGIN")
            );
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_not_root_has_no_capability_at_all() -> Result<()> {
    let story = "confinement::a_user_who_is_not_root_has_no_capability_at_all";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "nobody";
            room(cluster, home).await?;
            let mut security = strict(&json!({"drop": ["ALL"]}));
            security["runAsUser"] = json!(65534);
            security["runAsGroup"] = json!(65534);
            cluster.apply(&pod(home, "allocator", &security)).await?;
            let address = ready(cluster, home, "allocator").await?;
            let inside = Inside { from: &cluster.nodes[0].namespace, address };
            assert_eq!(inside.status("Uid")?, "65534 65534 65534 65534");
            assert_eq!(inside.status("Gid")?, "65534 65534 65534 65534");
            for line in ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"] {
                assert_eq!(inside.status(line)?, "0000000000000000", "{line}");
            }
            Ok(())
        })
        .await
}

/// Both Pods have the capability that `mount` and `unshare` need. Only the filter differs.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_filter_refuses_mount_and_unshare() -> Result<()> {
    let story = "confinement::the_default_filter_refuses_mount_and_unshare";
    cluster()
        .await?
        .prove(story, async |cluster| {
            let home = "filters";
            room(cluster, home).await?;
            let (mount, unshare) = ("/run?/mount&-t&tmpfs&none&/dev/shm", "/run?/unshare&--net&/unshare&--version");
            for (name, profile) in [("confined", "RuntimeDefault"), ("free", "Unconfined")] {
                let security = json!({"capabilities": {"add": ["SYS_ADMIN"]}, "seccompProfile": {"type": profile}});
                cluster.apply(&pod(home, name, &security)).await?;
            }
            let inside = async |name: &str| -> Result<Inside<'_>> {
                Ok(Inside { from: &cluster.nodes[0].namespace, address: ready(cluster, home, name).await? })
            };
            let (confined, free) = (inside("confined").await?, inside("free").await?);
            for pod in [&confined, &free] {
                let held = u64::from_str_radix(&pod.status("CapEff")?, 16)?;
                assert_eq!(held >> 21 & 1, 1, "both have SYS_ADMIN");
            }
            let refusal = confined.ask(unshare)?;
            assert!(refusal.contains("unshare failed: Operation not permitted"), "{refusal}");
            let refusal = confined.ask(mount)?;
            assert!(refusal.contains("permission denied") && !refusal.contains("status: 0"), "{refusal}");
            for attempt in [unshare, mount] {
                let done = free.ask(attempt)?;
                assert!(done.contains("exit status: 0"), "{done}");
            }
            Ok(())
        })
        .await
}

//! A proof that fails explains itself, whichever way it fails.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use purelb_lab::Cluster;
use serde_json::Value;

use crate::purelb::{NODES, installed};

const STORY: &str = "evidence::a_proof_that_fails_or_panics_leaves_its_evidence";

/// The folder that an error names. It is removed with this value: it is no evidence of a real failure.
struct Kept(PathBuf);

impl Kept {
    fn named_by(error: &anyhow::Error) -> Result<Self> {
        let text = format!("{error:#}");
        let named = text.lines().find_map(|line| line.trim().strip_prefix("evidence: "));
        Ok(Self(named.with_context(|| format!("no folder is named: {text}"))?.trim().into()))
    }

    fn read(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = self.0.join(path);
        let bytes = fs::read(&path).with_context(|| format!("there is no {}", path.display()))?;
        ensure!(!bytes.is_empty(), "{} is empty", path.display());
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What a node showed, as `ip -j` says it.
    fn shown(&self, node: &str, file: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.read(Path::new(node).join(file))?)?)
    }

    /// The files whose names begin and end so.
    fn find(&self, begin: &str, end: &str) -> Result<Vec<String>> {
        let names = fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<Result<Vec<_>>>()?;
        Ok(names.into_iter().filter(|name| name.starts_with(begin) && name.ends_with(end)).collect())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Everything that somebody needs who was not there.
fn explains(error: &anyhow::Error, reason: &str) -> Result<()> {
    let text = format!("{error:#}");
    ensure!(text.contains(reason), "the reason is lost: {text}");
    let again = text.lines().find_map(|line| line.trim().strip_prefix("again: ")).unwrap_or_default();
    ensure!(again.trim().starts_with("eval \"$(scripts/setup)\"") && again.ends_with(STORY), "again: {again}");
    ensure!(again.contains("--test cluster -- --exact "), "again: {again}");
    let bundle = std::env::var("PURELB_BUNDLE").unwrap_or_default();
    ensure!(again.contains(&bundle), "it would not run the image {bundle}: {again}");

    let kept = Kept::named_by(error)?;
    for node in NODES {
        let has = |links: &Value, name: &str| links.as_array().into_iter().flatten().any(|one| one["ifname"] == name);
        ensure!(has(&kept.shown(node, "addresses.json")?, "eth0"), "{node} has no addresses");
        for routes in ["routes.json", "routes6.json"] {
            let routes = kept.shown(node, routes)?;
            ensure!(routes.as_array().is_some_and(|routes| !routes.is_empty()), "{node} has no routes");
        }
        ensure!(kept.read(Path::new(node).join("nft.txt"))?.contains("kube-proxy"), "{node} has no rules");
        let bird = kept.find(&format!("{node}_router-"), "bird.1.log")?;
        ensure!(!bird.is_empty(), "no log of the routing software on {node}");
    }
    let pcap = kept.find("lan.pcap", "")?;
    ensure!(!pcap.is_empty(), "no capture of the segment");
    for program in ["lbnodeagent", "allocator"] {
        let logs = kept.find(&format!("purelb-system_{program}"), "")?;
        ensure!(!logs.is_empty(), "no log of the {program}");
        ensure!(kept.read(&logs[0])?.contains("\"level\""), "{} is no log", logs[0]);
    }
    ensure!(!kept.find("router_router-", "bird.1.log")?.is_empty(), "no log of the router");
    ensure!(kept.read("purelb.yaml")?.contains("LBNodeAgent"), "no objects of PureLB");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proof_that_fails_or_panics_leaves_its_evidence() -> Result<()> {
    let cluster = installed().await?;
    let fails = async |_: &Cluster| -> Result<()> { bail!("the sky is green") };
    let error = cluster.prove(STORY, fails).await.expect_err("it failed");
    explains(&error, "the sky is green")?;
    let panics = async |_: &Cluster| -> Result<()> { panic!("the {} is yellow", "grass") };
    let error = cluster.prove(STORY, panics).await.expect_err("it panicked");
    explains(&error, "it panicked: the grass is yellow")
}

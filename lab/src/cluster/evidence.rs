//! What is kept of a proof that failed, so that the failure explains itself.

use std::any::Any;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, anyhow};
use futures::FutureExt;

use super::Cluster;

/// What is asked in every network: the file it goes to, and the command.
const QUESTIONS: [(&str, &str); 6] = [
    ("addresses.json", "ip -j addr"),
    ("routes.json", "ip -j route show table all"),
    ("routes6.json", "ip -6 -j route show table all"),
    ("neighbours.json", "ip -j neigh"),
    ("nft.txt", "nft list ruleset"),
    ("sockets.txt", "ss -tunap"),
];
/// What is asked of the cluster. The kinds of BGP by themselves: kubectl shows nothing at all if one kind is not there.
const OBJECTS: [(&str, &str); 5] = [
    ("objects.yaml", "get nodes,pods,deployments,daemonsets,services,endpointslices,leases -A -o yaml"),
    ("purelb.yaml", "get servicegroups,lbnodeagents -A -o yaml"),
    ("bgp.yaml", "get configs.bgp.purelb.io,bgpnodestatuses.bgp.purelb.io -A -o yaml"),
    ("events.txt", "get events -A --sort-by=.lastTimestamp"),
    ("pods.txt", "get pods -A -o wide"),
];

impl Cluster {
    /// Runs a proof on this cluster. When it fails or panics, everything worth seeing is kept in one folder, and the error
    /// names it and the command to run just this proof again.
    ///
    /// # Errors
    /// What the proof failed with.
    pub async fn prove<T>(&self, name: &str, proof: impl AsyncFnOnce(&Self) -> Result<T>) -> Result<T> {
        // Nothing of what the proof had is looked at afterwards.
        let outcome = AssertUnwindSafe(proof(self)).catch_unwind().await;
        let error = match outcome {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => error,
            Err(panic) => anyhow!("it panicked: {}", words(&*panic)),
        };
        let kept = self.keep_evidence(name).await;
        let kept = kept.map_or_else(|error| format!("could not be kept: {error:#}"), |path| path.display().to_string());
        Err(error.context(format!("{name} failed\n  evidence: {kept}\n  again:    {}\n", again(name))))
    }

    /// Writes logs, addresses, routes, rules, objects and the traffic on the nodes' segment to a new folder.
    ///
    /// # Errors
    /// When it cannot be written. What cannot be asked any more is left out.
    pub async fn keep_evidence(&self, name: &str) -> Result<PathBuf> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/evidence");
        fs::create_dir_all(&target)?;
        let name = name.replace(|letter: char| !letter.is_alphanumeric(), "-");
        let stamp = jiff::Timestamp::now().as_millisecond();
        let folder = target.canonicalize()?.join(format!("{name}-{stamp}"));
        fs::create_dir(&folder).context("cannot make a folder for the evidence")?;
        for place in self.places() {
            let own = folder.join(place.name());
            fs::create_dir_all(&own)?;
            for (file, question) in QUESTIONS {
                let (program, arguments) = question.split_once(' ').context("a program and its arguments")?;
                let output = place.command(program).args(arguments.split(' ')).stdin(Stdio::null()).output()?;
                fs::write(own.join(file), [output.stdout, output.stderr].concat())?;
            }
        }
        for (file, question) in OBJECTS {
            let answer = self.kubectl(&question.split(' ').collect::<Vec<_>>()).await;
            fs::write(folder.join(file), answer.unwrap_or_else(|error| format!("{error:#}")))?;
        }
        self.keep_files(&folder)?;
        Ok(folder)
    }

    fn keep_files(&self, folder: &Path) -> Result<()> {
        let control = self.plane.place();
        let mut files: Vec<PathBuf> = listed(&self.logs())?;
        files.extend(listed(&self.folder)?.into_iter().filter(|path| path.display().to_string().contains("lan.pcap")));
        let programs = ["etcd", "kube-apiserver", "kube-apiserver.again", "kube-controller-manager", "kube-scheduler"];
        files.extend(programs.map(|program| control.log(program)));
        files.push(control.audit_log());
        for file in files {
            if let Some(name) = file.file_name() {
                // One that is gone meanwhile is no evidence.
                let _ = fs::copy(&file, folder.join(name));
            }
        }
        Ok(())
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

/// The command that runs just one proof, with the program that this one ran.
fn again(name: &str) -> String {
    let bundle = std::env::var_os("PURELB_BUNDLE").map(|bundle| format!("PURELB_BUNDLE={} ", bundle.display()));
    let bundle = bundle.unwrap_or_default();
    format!(
        "eval \"$(scripts/setup)\" && {bundle}cargo test -p purelb-lab --test cluster -- --exact --nocapture {name}"
    )
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(entries.filter(|path| path.is_file()).collect())
}

//! What is kept of a proof that failed, so that the failure explains itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};

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
/// What is asked of the cluster.
const OBJECTS: [(&str, &str); 4] = [
    ("objects.yaml", "get nodes,pods,deployments,daemonsets,services,endpointslices,leases -A -o yaml"),
    ("purelb.yaml", "get servicegroups,lbnodeagents -A -o yaml"),
    ("events.txt", "get events -A --sort-by=.lastTimestamp"),
    ("pods.txt", "get pods -A -o wide"),
];

impl Cluster {
    /// Runs a proof on this cluster. When it fails, everything worth seeing is kept in one folder, and the error names it
    /// and the command to run just this proof again.
    ///
    /// # Errors
    /// What the proof failed with.
    pub async fn prove(&self, name: &str, proof: impl AsyncFnOnce(&Self) -> Result<()>) -> Result<()> {
        let Err(error) = proof(self).await else { return Ok(()) };
        let kept = self.keep_evidence(name).await;
        let kept = kept.map_or_else(|error| format!("could not be kept: {error:#}"), |path| path.display().to_string());
        let again = format!("cargo test -p purelb-lab --test cluster -- --exact --nocapture {name}");
        Err(error.context(format!("{name} failed\n  evidence: {kept}\n  again:    {again}\n")))
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
        if let Some(router) = &self.router {
            fs::write(folder.join("router.log"), router.log())?;
        }
        Ok(())
    }
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(entries.filter(|path| path.is_file()).collect())
}

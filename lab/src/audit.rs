//! Which rights the manifests grant, and which of them PureLB was seen to use: from `deploy/` and from audit logs.
//!
//! With the environment variable `PURELB_AUDIT` every API server of the lab leaves its audit log in the folder that it
//! names; [`judge`] compares what is there after a run with what the manifests grant.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The environment variable that names the folder in which a run collects audit logs.
pub const FOLDER: &str = "PURELB_AUDIT";
/// Where it is installed: by our manifests, and by those of 0.13.
const HOMES: [&str; 2] = ["purelb-system", "purelb"];
/// Who plays the programs of older releases says so.
const REFERENCE: &str = "reference";
/// The kinds of the built-in BGP speaker.
const BGP: &str = "bgp.purelb.io";
/// The manifests for clusters without it.
const WITHOUT_BGP: [&str; 2] = ["install-nobgp.yaml", "upgrade-from-0.13.yaml"];

/// One thing that an account may do or has done. The same words in manifests and logs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The ServiceAccount, without its namespace.
    pub account: String,
    /// `get`, `list` and so on.
    pub verb: String,
    /// The API group; empty for the oldest.
    pub group: String,
    /// The resource, with a subresource after a slash.
    pub resource: String,
    /// The one object that the right is about, if it is about one.
    pub name: Option<String>,
    /// Only in the namespace that it is installed in.
    pub at_home: bool,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, verb, group, resource, name, at_home } = self;
        write!(f, "{account} may {verb} {resource}")?;
        if !group.is_empty() {
            write!(f, ".{group}")?;
        }
        if let Some(name) = name {
            write!(f, " {name}")?;
        }
        if *at_home { write!(f, " in its namespace") } else { Ok(()) }
    }
}

/// One request of an account of PureLB.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// What was asked for; the name of the object is there if the request has one.
    pub right: Right,
    /// Whether the API server said that it is not allowed.
    pub denied: bool,
    /// Whether the API server said that there is no such thing, or that it does not have the kind.
    pub missing: bool,
    /// Whether a program of an older release asked.
    pub reference: bool,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Verdict {
    /// How many rights there are.
    pub granted: usize,
    /// Rights that nobody has used.
    pub unused: BTreeSet<Right>,
    /// Rights to the kinds of BGP that manifests without it grant, and nobody has used in a cluster without these kinds.
    pub unused_without_bgp: BTreeSet<Right>,
    /// What today's programs asked for and no manifest grants.
    pub denied: BTreeSet<Right>,
    /// What a manifest grants and they were denied all the same: a test was installing or removing the manifests, or took
    /// a right away. Proofs of a whole cluster say for themselves that nothing at all was denied there.
    pub not_in_force: BTreeSet<Right>,
}

/// Compares the manifests in `deploy` with the logs in `folder`.
///
/// A right that older releases also need is used only if today's program uses it: what only an upgrade grants, for as long
/// as old and new run side by side, is for the older ones to use. Manifests without BGP grant no more than those with it; a
/// right to the kinds of BGP counts there only if it was used where these kinds are missing.
///
/// # Errors
/// When a manifest or a log cannot be read, or there is no log of both programs.
pub fn judge(deploy: &Path, folder: &Path) -> Result<Verdict> {
    let mut requests = BTreeSet::new();
    for entry in fs::read_dir(folder).with_context(|| format!("no audit logs in {}", folder.display()))? {
        requests.extend(read(&fs::read_to_string(entry?.path())?));
    }
    for account in ["allocator", "lbnodeagent"] {
        let heard = requests.iter().any(|request| request.right.account == account && !request.reference);
        ensure!(heard, "the logs in {} know no {account}: were the tests run?", folder.display());
    }
    let today = granted(&deploy.join("install.yaml"))?;
    let upgrade = granted(&deploy.join("upgrade-from-0.17.yaml"))?;
    let used = |right: &Right, reference: bool| {
        requests
            .iter()
            .any(|request| request.reference == reference && !request.denied && covers(right, &request.right))
    };
    let unused = today.iter().filter(|right| !used(right, false));
    let unused = unused.chain(upgrade.difference(&today).filter(|right| !used(right, true)));
    let unused = unused.cloned().collect();
    let mut unused_without_bgp = BTreeSet::new();
    for name in WITHOUT_BGP {
        let rights = granted(&deploy.join(name))?;
        let more: Vec<String> = rights.difference(&today).map(ToString::to_string).collect();
        ensure!(more.is_empty(), "{name} grants what install.yaml does not: {more:?}");
        let asked =
            |right: &Right| requests.iter().any(|one| !one.reference && one.missing && covers(right, &one.right));
        unused_without_bgp.extend(rights.into_iter().filter(|right| right.group == BGP && !asked(right)));
    }
    let denied = requests.iter().filter(|request| request.denied && !request.reference);
    let denied = denied.map(|request| request.right.clone());
    let (not_in_force, denied) = denied.partition(|asked| today.iter().any(|right| covers(right, asked)));
    Ok(Verdict { granted: today.union(&upgrade).count(), unused, unused_without_bgp, denied, not_in_force })
}

/// Every right that the roles of a manifest give to an account.
///
/// # Errors
/// When it cannot be read.
pub fn granted(manifest: &Path) -> Result<BTreeSet<Right>> {
    let text = fs::read_to_string(manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let objects =
        text.split("\n---\n").map(|part| Ok(serde_saphyr::from_str(part)?)).collect::<Result<Vec<Value>>>()?;
    let mut rights = BTreeSet::new();
    for binding in objects.iter().filter(|object| object["roleRef"].is_object()) {
        let is_meant = |object: &&Value| {
            object["kind"] == binding["roleRef"]["kind"] && object["metadata"]["name"] == binding["roleRef"]["name"]
        };
        let role = objects.iter().find(is_meant).context("a binding names a role that is not there")?;
        for account in texts(&binding["subjects"], |subject| &subject["name"]) {
            rights.extend(list(&role["rules"]).flat_map(|rule| of_rule(&account, rule, role["kind"] == "Role")));
        }
    }
    ensure!(!rights.is_empty(), "{} grants nothing", manifest.display());
    Ok(rights)
}

fn of_rule(account: &str, rule: &Value, at_home: bool) -> Vec<Right> {
    let words = |key: &str| texts(&rule[key], |word| word);
    let names: Vec<Option<String>> = match words("resourceNames") {
        names if names.is_empty() => vec![None],
        names => names.into_iter().map(Some).collect(),
    };
    let mut rights = Vec::new();
    for group in words("apiGroups") {
        for resource in words("resources") {
            for verb in words("verbs") {
                rights.extend(names.iter().map(|name| Right {
                    account: account.to_owned(),
                    verb: verb.clone(),
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    at_home,
                }));
            }
        }
    }
    rights
}

/// The requests of PureLB's accounts in an audit log. A last line that is not complete yet is left out.
#[must_use]
pub fn read(log: &str) -> BTreeSet<Request> {
    log.lines().filter_map(|line| request(&serde_json::from_str(line).ok()?)).collect()
}

fn request(entry: &Value) -> Option<Request> {
    let account = entry["user"]["username"].as_str()?.strip_prefix("system:serviceaccount:")?;
    let (namespace, account) = account.split_once(':').filter(|(namespace, _)| HOMES.contains(namespace))?;
    let object = entry["objectRef"].as_object()?;
    let word = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let resource = match word("subresource") {
        none if none.is_empty() => word("resource"),
        subresource => format!("{}/{subresource}", word("resource")),
    };
    let right = Right {
        account: account.to_owned(),
        verb: entry["verb"].as_str()?.to_owned(),
        group: word("apiGroup"),
        resource,
        name: Some(word("name")).filter(|name| !name.is_empty()),
        at_home: word("namespace") == namespace,
    };
    let reference = entry["userAgent"] == REFERENCE;
    let code = &entry["responseStatus"]["code"];
    Some(Request { right, denied: *code == 403, missing: *code == 404, reference })
}

/// Whether a right is what allows this.
fn covers(right: &Right, asked: &Right) -> bool {
    let same = (&right.account, &right.verb, &right.group, &right.resource)
        == (&asked.account, &asked.verb, &asked.group, &asked.resource);
    same && (!right.at_home || asked.at_home) && (right.name.is_none() || right.name == asked.name)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn texts(value: &Value, part: impl Fn(&Value) -> &Value) -> Vec<String> {
    list(value).filter_map(|one| part(one).as_str().map(str::to_owned)).collect()
}

/// Where an API server should leave its audit log, if a run collects them.
#[must_use]
pub fn kept_log() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(FOLDER)?);
    let name = tempfile::Builder::new().suffix(".log").tempfile_in(folder).ok()?;
    name.into_temp_path().keep().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MANIFEST: &str = "
kind: Role
metadata: {name: seats}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list, patch], resourceNames: [purelb-allocator]}
---
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [''], resources: [services, services/status], verbs: [list]}
---
kind: RoleBinding
roleRef: {kind: Role, name: seats}
subjects: [{kind: ServiceAccount, name: allocator}]
---
kind: ClusterRoleBinding
roleRef: {kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: lbnodeagent}]
";

    fn line(account: &str, verb: &str, object: &Value, code: u16, agent: &str) -> String {
        let user = format!("system:serviceaccount:purelb-system:{account}");
        json!({
            "user": {"username": user}, "verb": verb, "objectRef": object, "userAgent": agent,
            "responseStatus": {"code": code},
        })
        .to_string()
            + "\n"
    }

    /// The rights of BGP, for manifests without it.
    const LOOKING: &str = "
---
kind: ClusterRole
metadata: {name: looking}
rules:
- {apiGroups: [bgp.purelb.io], resources: [configs], verbs: [list, watch]}
---
kind: ClusterRoleBinding
roleRef: {kind: ClusterRole, name: looking}
subjects: [{kind: ServiceAccount, name: allocator}]
";

    fn stage(logs: &str) -> Result<Verdict> {
        staged(logs, MANIFEST, MANIFEST)
    }

    fn staged(logs: &str, with: &str, without: &str) -> Result<Verdict> {
        let (deploy, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
        for name in ["install.yaml", "upgrade-from-0.17.yaml"] {
            fs::write(deploy.path().join(name), with)?;
        }
        for name in WITHOUT_BGP {
            fs::write(deploy.path().join(name), without)?;
        }
        fs::write(folder.path().join("1.log"), logs)?;
        judge(deploy.path(), folder.path())
    }

    #[test]
    fn a_right_that_nobody_uses_and_a_request_that_is_denied_are_named() -> Result<()> {
        let lease = json!({"resource": "leases", "apiGroup": "coordination.k8s.io", "name": "purelb-allocator",
            "namespace": "purelb-system"});
        let other = json!({"resource": "leases", "apiGroup": "coordination.k8s.io", "name": "another",
            "namespace": "purelb-system"});
        let (services, secrets) = (json!({"resource": "services"}), json!({"resource": "secrets", "namespace": "x"}));
        let verdict = stage(
            &[
                line("allocator", "patch", &lease, 200, "rust"),
                line("allocator", "list", &other, 200, "rust"),
                line("lbnodeagent", "list", &services, 200, "rust"),
                line("lbnodeagent", "get", &secrets, 403, "rust"),
                line("lbnodeagent", "list", &services, 403, "rust"),
            ]
            .concat(),
        )?;
        let words = |all: Vec<String>| all.join("; ");
        let unused = words(verdict.unused.iter().map(ToString::to_string).collect());
        assert_eq!(
            unused,
            "allocator may list leases.coordination.k8s.io purelb-allocator in its namespace; \
             lbnodeagent may list services/status"
        );
        let denied = words(verdict.denied.iter().map(ToString::to_string).collect());
        assert_eq!((verdict.granted, denied.as_str()), (4, "lbnodeagent may get secrets"));
        let not_in_force = words(verdict.not_in_force.iter().map(ToString::to_string).collect());
        assert_eq!(not_in_force, "lbnodeagent may list services");
        Ok(())
    }

    #[test]
    fn what_only_an_older_release_does_is_no_use_of_todays_rights() -> Result<()> {
        let services = json!({"resource": "services"});
        let ours =
            line("allocator", "list", &services, 200, "rust") + &line("lbnodeagent", "get", &services, 200, "rust");
        let verdict = stage(&(ours + &line("lbnodeagent", "list", &services, 200, REFERENCE)))?;
        assert!(verdict.unused.iter().any(|right| right.to_string() == "lbnodeagent may list services"));
        Ok(())
    }

    #[test]
    fn without_bgp_a_right_to_its_kinds_counts_only_where_they_are_missing() -> Result<()> {
        let configs = json!({"resource": "configs", "apiGroup": BGP});
        let services = json!({"resource": "services"});
        let both = format!("{}{}", MANIFEST.trim_end(), LOOKING);
        let there =
            line("allocator", "watch", &configs, 200, "rust") + &line("lbnodeagent", "list", &services, 200, "rust");
        let logs = there + &line("allocator", "list", &configs, 404, "rust");
        let verdict = staged(&logs, &both, &both)?;
        let left: Vec<String> = verdict.unused_without_bgp.iter().map(ToString::to_string).collect();
        assert_eq!(left, ["allocator may watch configs.bgp.purelb.io"]);
        let error = staged(&logs, MANIFEST, &both).expect_err("it grants more").to_string();
        assert!(error.contains("install-nobgp.yaml grants what install.yaml does not"), "{error}");
        Ok(())
    }

    #[test]
    fn a_run_without_a_program_says_nothing_of_its_rights() {
        assert!(stage("").is_err_and(|error| error.to_string().contains("know no allocator")));
    }
}

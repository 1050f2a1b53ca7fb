//! What the server tells clients about itself: versions, groups and resources.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::kinds::{Registry, Resource, Served, bucket};
use crate::status::Refusal;

/// The Kubernetes version whose behaviour the server follows.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3+kubelite", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// `/api`
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    })
}

/// `/apis`
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = group_versions(registry).iter().map(|(name, versions)| describe(name, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`
pub(crate) fn group(registry: &Registry, name: &str) -> Result<Value, Refusal> {
    let groups = group_versions(registry);
    let versions = groups.get(name).ok_or(Refusal::UnknownPath)?;
    let mut answer = describe(name, versions);
    answer["kind"] = json!("APIGroup");
    answer["apiVersion"] = json!("v1");
    Ok(answer)
}

fn describe(name: &str, versions: &[String]) -> Value {
    let entry = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let entries: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": name, "versions": entries, "preferredVersion": entries.first()})
}

/// All groups but the core one, each with its versions, the preferred one first.
fn group_versions(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for served in registry.all().flat_map(|it| &it.served).filter(|served| !served.group.is_empty()) {
        let versions = groups.entry(served.group.clone()).or_default();
        if !versions.contains(&served.version) {
            versions.push(served.version.clone());
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
    }
    groups
}

/// Kubernetes' order of versions: stable before beta before alpha, higher numbers first.
fn rank(version: &str) -> (u8, u64, u64) {
    let number = |text: &str| text.parse::<u64>().ok();
    let rest = version.strip_prefix('v').unwrap_or_default();
    for (level, word) in [(2, "beta"), (1, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return (level, number(major).unwrap_or(0), number(minor).unwrap_or(0));
        }
    }
    number(rest).map_or((0, 0, 0), |major| (3, major, 0))
}

/// `/api/v1` and `/apis/GROUP/VERSION`
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Result<Value, Refusal> {
    let mut entries = Vec::new();
    for resource in registry.all() {
        if let Some(served) = resource.served.iter().find(|it| it.group == group && it.version == version) {
            entries.extend(entry(resource, served));
        }
    }
    if entries.is_empty() {
        return Err(unknown(registry, group));
    }
    let group_version = Served { group: group.into(), version: version.into(), ..Served::default() }.api_version();
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}))
}

/// A path into a built-in group gets a proper answer, any other plain text, as on the real server.
pub(crate) fn unknown(registry: &Registry, group: &str) -> Refusal {
    let built_in = registry.all().filter(|it| !it.traits.custom).flat_map(|it| &it.served);
    if built_in.into_iter().any(|served| served.group == group) {
        Refusal::UnknownResource
    } else {
        Refusal::UnknownPath
    }
}

fn entry(resource: &Resource, served: &Served) -> Vec<Value> {
    let mut verbs = if resource.traits.custom {
        vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    } else {
        vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    };
    verbs.retain(|verb| *verb != "deletecollection" || resource.bucket != bucket::NAMESPACES);
    let mut main = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs,
    });
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let status = json!({
        "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": ["get", "patch", "update"],
    });
    if served.status { vec![main, status] } else { vec![main] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_are_preferred() {
        let mut versions = ["v1alpha1", "v2", "v1beta2", "v10", "foo"];
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        assert_eq!(versions, ["v10", "v2", "v1beta2", "v1alpha1", "foo"]);
    }

    #[test]
    fn built_in_resources_are_listed_with_their_subresources() {
        let registry = Registry::new();
        let core = resources(&registry, "", "v1").expect("the core group");
        let names: Vec<&str> =
            core["resources"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
        assert!(
            names.contains(&"services") && names.contains(&"services/status") && !names.contains(&"secrets/status")
        );
        assert!(resources(&registry, "nope.io", "v1").is_err());
        assert_eq!(group(&registry, "events.k8s.io").expect("served")["preferredVersion"]["version"], "v1");
    }
}

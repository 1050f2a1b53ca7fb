//! PureLB's own ServiceGroup: defaults, pruning, two API versions of one object, the status subresource.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, contains, invalid, refused, version};
use super::manifest::{condition, flat, group, local_v4, patch_of};

const V1: &str = "purelb.io/v1";
const V2: &str = "purelb.io/v2";

/// A group written as v1 is automatic, in both versions; one written as v2 is not.
pub async fn only_v1_groups_are_automatic(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let old = ground.create(&ground.group(V1, "servicegroups"), &group("v1", "old", local_v4())).await?;
    let new = ground.create(&ground.group(V2, "servicegroups"), &group("v2", "new", local_v4())).await?;
    assert_eq!((&old["apiVersion"], &old["spec"]["placement"]), (&json!(V1), &json!("Auto")));
    assert_eq!((&new["apiVersion"], &new["spec"]["placement"]), (&json!(V2), &Value::Null));
    let old = ground.get(&ground.group(V2, "servicegroups/old")).await?;
    assert_eq!((&old["apiVersion"], &old["spec"]["placement"]), (&json!(V2), &json!("Auto")));
    let mut said = local_v4();
    said["placement"] = json!("Auto");
    let said = ground.create(&ground.group(V2, "servicegroups"), &group("v2", "said", said)).await?;
    assert_eq!(said["spec"]["placement"], "Auto", "a v2 author may say so");
    let list = ground.get(&ground.group(V1, "servicegroups")).await?;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ServiceGroupList"), &json!(V1)));
    let versions: Vec<&Value> =
        list["items"].as_array().into_iter().flatten().map(|item| &item["apiVersion"]).collect();
    assert_eq!(versions, [V1, V1, V1], "a list is all of one version");
    Ok(())
}

/// What the schema knows a default for is there, also inside.
pub async fn defaults_are_filled_in(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let all = ground.group(V2, "servicegroups");
    let local = ground.create(&all, &group("v2", "local", local_v4())).await?;
    let wanted = json!({
        "enforceNamespaces": false,
        "namespaceDefault": false,
        "local": {
            "skipIPv6DAD": false,
            "multiPool": false,
            "balancePools": false,
            "v4pools": [{"subnet": "192.0.2.0/24", "pool": "192.0.2.10-192.0.2.20"}],
        },
    });
    assert_eq!(local["spec"], wanted);
    let external = json!({"external": {"provider": "netbox", "announce": "remote"}});
    let external = ground.create(&all, &group("v2", "external", external)).await?;
    assert_eq!(external["spec"]["external"]["socket"], "/var/run/purelb/ipam.sock");
    let old = ground.create(&ground.group(V1, "servicegroups"), &group("v1", "old", local_v4())).await?;
    assert_eq!(old["spec"]["enforceNamespaces"], false, "in v1 as well: the rules look at it");
    Ok(())
}

/// Fields that the schema does not know are not stored, and strict clients are told.
pub async fn unknown_fields_are_pruned(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let all = ground.group(V2, "servicegroups");
    let mut spec = local_v4();
    spec["nope"] = json!(1);
    spec["local"]["v4Pool"] = json!({"subnet": "192.0.2.0/24", "pool": "192.0.2.0/24"});
    let strict = format!("{all}?fieldValidation=Strict");
    refused(ground.create(&strict, &group("v2", "default", spec.clone())).await, 400, "BadRequest")?;
    let created = ground.create(&all, &group("v2", "default", spec)).await?;
    assert!(created["spec"]["nope"].is_null() && created["spec"]["local"]["v4Pool"].is_null(), "{created}");
    Ok(())
}

/// Each form that v1 ever had is stored as it is written.
pub async fn every_v1_form_is_stored_as_written(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let range = json!({"subnet": "192.0.2.0/24", "pool": "192.0.2.10-192.0.2.20", "aggregation": "default"});
    let six = json!({"subnet": "fc00:370:155::/64", "pool": "fc00:370:155:0:8000::/126", "aggregation": "/128"});
    for (name, spec) in [
        ("lists", json!({"local": {"v4pools": [range], "v6pools": [six]}})),
        ("single", json!({"local": {"v4pool": range, "v6pool": six}})),
        ("one-range", json!({"local": range})),
        ("no-slash", json!({"local": {"subnet": "192.0.2.0/24", "pool": "192.0.2.0/24", "aggregation": "32"}})),
        ("netbox", json!({"netbox": {"url": "http://netbox/", "tenant": "ipam-purelb", "aggregation": "default"}})),
        ("both", json!({"local": {"v4pool": range}, "netbox": {"url": "http://netbox/"}})),
        ("flat", flat()),
        ("empty", json!({})),
        (
            "reversed",
            json!({"local": {"v4pools": [{"subnet": "172.32.100.0/24", "pool": "172.32.100.225-172.30.100.229"}]}}),
        ),
    ] {
        let created = ground.create(&ground.group(V1, "servicegroups"), &group("v1", name, spec.clone())).await?;
        let through_v2 = ground.get(&ground.group(V2, &format!("servicegroups/{name}"))).await?;
        for stored in [&created, &through_v2] {
            assert!(contains(&stored["spec"], &spec), "{name}: {spec} became {}", stored["spec"]);
            assert_eq!(stored["spec"]["placement"], "Auto");
        }
        let status = ground.group(V2, &format!("servicegroups/{name}/status"));
        let written = ground.patch(&status, PatchType::Merge, &judgement("True")).await?;
        assert_eq!(written["status"]["conditions"][0]["status"], "True", "the allocator can report on {name}");
    }
    Ok(())
}

fn judgement(valid: &str) -> Value {
    json!({"status": {"allocatedIPv4": 0, "allocatedIPv6": 0, "conditions": [condition("Valid", valid)]}})
}

/// The status door takes status only, the front door everything but.
pub async fn status_and_spec_have_doors_of_their_own(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let mut wish = group("v2", "default", local_v4());
    wish["status"] = judgement("True")["status"].clone();
    let created = ground.create(&ground.group(V2, "servicegroups"), &wish).await?;
    assert!(created["status"].is_null(), "nobody is born with a status");
    let (front, side) = (ground.group(V2, "servicegroups/default"), ground.group(V2, "servicegroups/default/status"));

    let mut patch = judgement("True");
    patch["spec"] = json!({"namespaces": ["a"]});
    patch["metadata"] = json!({"labels": {"smuggled": "yes"}, "annotations": {"smuggled": "yes"}});
    let patched = ground.patch(&side, PatchType::Merge, &patch).await?;
    assert_eq!(patched["spec"], created["spec"]);
    assert!(patched["metadata"]["labels"].is_null() && patched["metadata"]["annotations"].is_null());
    assert_eq!(patched["status"]["conditions"][0]["type"], "Valid");
    assert_eq!(patched["metadata"]["generation"], 1);

    let patched = ground.patch(&front, PatchType::Merge, &json!({"status": {"allocatedIPv4": 7}})).await?;
    assert_eq!(patched["status"]["allocatedIPv4"], 0);
    Ok(())
}

/// The generation counts changes of the spec, and of nothing else.
pub async fn the_generation_counts_changes_of_the_spec(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let created = ground.create(&ground.group(V2, "servicegroups"), &group("v2", "default", local_v4())).await?;
    assert_eq!(created["metadata"]["generation"], 1);
    let (front, side) = (ground.group(V2, "servicegroups/default"), ground.group(V2, "servicegroups/default/status"));
    for (path, patch, generation) in [
        (&front, json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (&side, judgement("False"), 1),
        (&front, json!({"spec": {"namespaces": ["a"]}}), 2),
        (&front, json!({"spec": {"namespaces": ["a"]}}), 2),
        (&front, json!({"spec": {"enforceNamespaces": true}}), 3),
    ] {
        let patched = ground.patch(path, PatchType::Merge, &patch).await?;
        assert_eq!(patched["metadata"]["generation"], generation, "after {patch}");
    }
    Ok(())
}

/// A status is written on the version it was decided on, and must be valid itself.
pub async fn a_group_status_conflicts_and_is_checked(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let created = ground.create(&ground.group(V2, "servicegroups"), &group("v2", "default", local_v4())).await?;
    let side = ground.group(V2, "servicegroups/default/status");
    let mut patch = patch_of(&created, judgement("True"));
    let first = ground.patch(&side, PatchType::Merge, &patch).await?;
    patch["status"]["allocatedIPv4"] = json!(1);
    refused(ground.patch(&side, PatchType::Merge, &patch).await, 409, "Conflict")?;
    let negative = json!({"status": {"availableIPv4": -1}});
    invalid(ground.patch(&side, PatchType::Merge, &negative).await, "status.availableIPv4")?;
    let largest = json!({"status": {"availableIPv6": i64::MAX}});
    let largest = ground.patch(&side, PatchType::Merge, &largest).await?;
    assert_eq!(largest["status"]["availableIPv6"], i64::MAX);
    let again = ground.patch(&side, PatchType::Merge, &judgement("True")).await?;
    assert_eq!(version(&again)?, version(&largest)?, "the same judgement again is no write");
    assert!(version(&largest)? > version(&first)?);
    Ok(())
}

/// A replacement must say which version it replaces.
pub async fn a_group_is_replaced_with_its_version_only(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let created = ground.create(&ground.group(V2, "servicegroups"), &group("v2", "default", local_v4())).await?;
    let path = ground.group(V2, "servicegroups/default");
    let mut wish = created.clone();
    wish["spec"]["namespaces"] = json!(["a"]);
    let replaced = ground.replace(&path, &wish).await?;
    assert_eq!(replaced["spec"]["namespaces"], json!(["a"]));
    refused(ground.replace(&path, &wish).await, 409, "Conflict")?;
    wish["metadata"]["resourceVersion"].take();
    invalid(ground.replace(&path, &wish).await, "metadata.resourceVersion")?;
    Ok(())
}

/// A watch through one version sees what is written through the other, in its own words.
pub async fn a_watch_sees_writes_through_the_other_version(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let mut watch = ground.watch(&ground.group(V2, "servicegroups"), "").await?;
    ground.create(&ground.group(V1, "servicegroups"), &group("v1", "old", local_v4())).await?;
    let seen = watch.expect("ADDED", "old").await?;
    assert_eq!((&seen["apiVersion"], &seen["spec"]["placement"]), (&json!(V2), &json!("Auto")));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    ground.patch(&ground.group(V1, "servicegroups/old"), PatchType::Merge, &label).await?;
    let seen = watch.expect("MODIFIED", "old").await?;
    assert_eq!(seen["apiVersion"], V2);
    ground.delete(&ground.group(V1, "servicegroups/old")).await?;
    watch.expect("DELETED", "old").await?;
    Ok(())
}

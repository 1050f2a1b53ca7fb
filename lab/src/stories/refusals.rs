//! What the CRDs refuse.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, invalid, refused};
use super::manifest::{agent, flat, group, local_v4};

fn range(aggregation: &str) -> Value {
    json!({"subnet": "192.0.2.0/24", "pool": "192.0.2.10-192.0.2.20", "aggregation": aggregation})
}

async fn refuse(ground: &Ground, kind: &str, spec: Value, field: &str) -> Result<()> {
    let all = ground.group(&format!("purelb.io/{kind}"), "servicegroups");
    let answer = ground.create(&all, &group(kind, "wrong", spec.clone())).await;
    invalid(answer, field).map(drop).with_context(|| format!("{kind} group with {spec}"))
}

/// In v2 a group has exactly one source.
pub async fn a_v2_group_has_exactly_one_source(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let pools = local_v4()["local"].clone();
    let external = json!({"provider": "netbox", "announce": "local"});
    for spec in [
        json!({}),
        json!({"local": pools, "remote": pools}),
        json!({"local": pools, "external": external}),
        json!({"remote": pools, "external": external}),
        json!({"netbox": {"url": "http://netbox/"}}),
        json!({"subnet": "172.22.0.0/24", "pool": "172.22.0.10-172.22.0.25"}),
    ] {
        refuse(ground, "v2", spec, "spec").await?;
    }
    refuse(ground, "v2", json!({"local": {"subnet": "192.0.2.0/24", "pool": "192.0.2.0/24"}}), "spec").await?;
    let nothing = json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": {"name": "wrong"}});
    invalid(ground.create(&ground.group("purelb.io/v2", "servicegroups"), &nothing).await, "spec")?;
    Ok(())
}

/// Automatic placement goes with local pools only.
pub async fn automatic_placement_goes_with_local_only(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let pools = local_v4()["local"].clone();
    let external = json!({"provider": "netbox", "announce": "local"});
    refuse(ground, "v2", json!({"placement": "Auto", "remote": pools}), "spec").await?;
    refuse(ground, "v2", json!({"placement": "Auto", "external": external}), "spec").await?;
    refuse(ground, "v1", json!({"remote": pools}), "spec").await?;
    refuse(ground, "v2", json!({"placement": "Sideways", "local": pools}), "spec.placement").await?;
    Ok(())
}

/// Enforcing, or being the default of, no namespaces at all is surely a slip.
pub async fn namespace_rules_need_namespaces(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    for field in ["enforceNamespaces", "namespaceDefault"] {
        for namespaces in [Value::Null, json!([])] {
            let mut spec = local_v4();
            spec[field] = json!(true);
            if namespaces.is_array() {
                spec["namespaces"] = namespaces;
            }
            refuse(ground, "v2", spec, "spec").await?;
        }
    }
    let mut spec = local_v4();
    spec["namespaces"] = json!(["Not_A_Name"]);
    refuse(ground, "v2", spec, "spec.namespaces[0]").await?;
    let mut spec = local_v4();
    spec["namespaces"] = json!(["a"]);
    spec["enforceNamespaces"] = json!(true);
    ground.create(&ground.group("purelb.io/v2", "servicegroups"), &group("v2", "right", spec)).await?;
    Ok(())
}

/// The two ways to choose among pools exclude each other.
pub async fn multi_pool_and_balance_pools_exclude_each_other(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    for source in ["local", "remote"] {
        let mut pools = local_v4()["local"].clone();
        pools["multiPool"] = json!(true);
        pools["balancePools"] = json!(true);
        refuse(ground, "v2", json!({source: pools}), &format!("spec.{source}")).await?;
    }
    Ok(())
}

/// Aggregation is `default` or a prefix length that its family has; v1 takes whatever 0.13 took.
pub async fn aggregation_fits_its_family(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    for aggregation in ["", "32", "/7", "/33", "/64", "/08", "Default"] {
        refuse(ground, "v2", json!({"local": {"v4pool": range(aggregation)}}), "spec.local.v4pool.aggregation").await?;
        let lists = json!({"remote": {"v4pools": [range("default"), range(aggregation)]}});
        refuse(ground, "v2", lists, "spec.remote.v4pools[1].aggregation").await?;
    }
    refuse(ground, "v2", json!({"local": {"v6pool": range("/129")}}), "spec.local.v6pool.aggregation").await?;
    for (index, (version, spec)) in [
        ("v2", json!({"local": {"v4pools": [range("default"), range("/8"), range("/32")]}})),
        ("v2", json!({"remote": {"v6pools": [range("default"), range("/8"), range("/64"), range("/128")]}})),
        ("v1", json!({"local": {"v4pools": [range(""), range("32"), range("/33")]}})),
    ]
    .into_iter()
    .enumerate()
    {
        let all = ground.group(&format!("purelb.io/{version}"), "servicegroups");
        ground.create(&all, &group(version, &format!("right-{index}"), spec)).await?;
    }
    Ok(())
}

/// Fields that must be there, and types that must be right.
pub async fn missing_and_mistyped_fields_are_refused(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    for (spec, field) in [
        (json!({"local": {"v4pools": [{"subnet": "192.0.2.0/24"}]}}), "spec.local.v4pools[0].pool"),
        (json!({"local": {"v4pools": [{"pool": "192.0.2.0/24"}]}}), "spec.local.v4pools[0].subnet"),
        (json!({"local": {"v4pools": {}}}), "spec.local.v4pools"),
        (json!({"local": {"multiPool": "yes"}}), "spec.local.multiPool"),
        (json!({"external": {"announce": "local"}}), "spec.external.provider"),
        (json!({"external": {"provider": "netbox"}}), "spec.external.announce"),
        (json!({"external": {"provider": "", "announce": "local"}}), "spec.external.provider"),
        (json!({"external": {"provider": "netbox", "announce": "Local"}}), "spec.external.announce"),
    ] {
        refuse(ground, "v2", spec, field).await?;
    }
    let all = ground.group("purelb.io/v2", "lbnodeagents");
    for (spec, field) in [
        (json!({"local": {"garpConfig": {"count": 0}}}), "spec.local.garpConfig.count"),
        (json!({"local": {"garpConfig": {"count": 11}}}), "spec.local.garpConfig.count"),
        (
            json!({"local": {"addressConfig": {"localInterface": {"validLifetime": -1}}}}),
            "spec.local.addressConfig.localInterface.validLifetime",
        ),
    ] {
        invalid(ground.create(&all, &agent("v2", "wrong", spec)).await, field)?;
    }
    Ok(())
}

/// A group that was written as v2 is edited as v2: an edit through v1 would make it automatic unasked.
pub async fn a_v2_group_is_not_edited_as_v1(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    ground.create(&ground.group("purelb.io/v2", "servicegroups"), &group("v2", "default", local_v4())).await?;
    let path = ground.group("purelb.io/v1", "servicegroups/default");
    let patch = json!({"spec": {"namespaces": ["a"]}});
    let status = refused(ground.patch(&path, PatchType::Merge, &patch).await, 422, "Invalid")?;
    ensure!(status.message.contains("v2"), "the sentence says where to edit it: {}", status.message);
    let mut whole = ground.get(&path).await?;
    whole["spec"]["namespaces"] = json!(["a"]);
    refused(ground.replace(&path, &whole).await, 422, "Invalid")?;
    let through_v2 = ground.group("purelb.io/v2", "servicegroups/default");
    let edited = ground.patch(&through_v2, PatchType::Merge, &patch).await?;
    assert!(edited["spec"]["placement"].is_null());
    ground.delete(&path).await?;
    Ok(())
}

/// A group that was written as v1 is edited through either version and stays automatic.
pub async fn a_v1_group_is_edited_through_both_versions(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    ground.create(&ground.group("purelb.io/v1", "servicegroups"), &group("v1", "default", local_v4())).await?;
    for (version, pool) in [("v1", "192.0.2.30-192.0.2.40"), ("v2", "192.0.2.50-192.0.2.60")] {
        let path = ground.group(&format!("purelb.io/{version}"), "servicegroups/default");
        let patch = json!({"spec": {"local": {"v4pools": [{"subnet": "192.0.2.0/24", "pool": pool}]}}});
        let edited = ground.patch(&path, PatchType::Merge, &patch).await?;
        assert_eq!(edited["spec"]["local"]["v4pools"][0]["pool"], pool);
        assert_eq!(edited["spec"]["placement"], "Auto");
    }
    Ok(())
}

/// The group in PureLB's earliest documentation has a name that Kubernetes refuses; in lower case it is accepted.
pub async fn a_group_name_in_capitals_is_refused(ground: &Ground) -> Result<()> {
    ground.install_crds().await?;
    let all = ground.group("purelb.io/v1", "servicegroups");
    invalid(ground.create(&all, &group("v1", "VirtualAddressRange", flat())).await, "metadata.name")?;
    ground.create(&all, &group("v1", "virtualaddressrange", flat())).await?;
    Ok(())
}

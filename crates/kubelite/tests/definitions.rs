//! Custom resources: PureLB's own, and what happens when a definition changes or goes.

use anyhow::{Context as _, Result};
use futures::TryStreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams};
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use purelb_kubelite::Kubelite;
use serde_json::{Value, json};

async fn install(client: &Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in purelb_api::crds() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    Ok(())
}

fn groups(client: &Client, version: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("purelb.io", version, "ServiceGroup");
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "servicegroups"))
}

fn group(version: &str, name: &str, spec: Value) -> DynamicObject {
    let object = json!({
        "apiVersion": format!("purelb.io/{version}"), "kind": "ServiceGroup", "metadata": {"name": name}, "spec": spec,
    });
    serde_json::from_value(object).expect("a group")
}

fn pool() -> Value {
    json!({"v4pools": [{"pool": "192.0.2.0/28", "subnet": "192.0.2.0/24", "aggregation": "default"}]})
}

fn refusal(outcome: Result<impl std::fmt::Debug, kube::Error>) -> (u16, String) {
    match outcome {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("should have been refused: {other:?}"),
    }
}

#[tokio::test]
async fn purelb_groups_live_in_both_versions_at_once() -> Result<()> {
    let client = Kubelite::new().client();
    install(&client).await?;
    let (v1, v2) = (groups(&client, "v1"), groups(&client, "v2"));
    v1.create(&PostParams::default(), &group("v1", "old", json!({"local": pool()}))).await?;
    v2.create(&PostParams::default(), &group("v2", "new", json!({"local": pool()}))).await?;
    let placement =
        async |api: &Api<DynamicObject>, name| api.get(name).await.map(|it| it.data["spec"]["placement"].clone());
    assert_eq!(placement(&v2, "old").await?, "Auto", "v1 groups are automatic, also for v2 readers");
    assert_eq!(placement(&v2, "new").await?, Value::Null);
    assert_eq!(v1.list(&ListParams::default()).await?.items.len(), 2);

    let touch = Patch::Merge(json!({"metadata": {"labels": {"edited": "true"}}}));
    let (code, message) = refusal(v1.patch("new", &PatchParams::default(), &touch).await);
    assert_eq!(code, 422);
    assert!(message.contains("edit it as v2"), "{message}");
    v2.patch("new", &PatchParams::default(), &touch).await?;
    Ok(())
}

#[tokio::test]
async fn the_status_of_a_group_has_its_own_door_and_generation_counts_the_spec() -> Result<()> {
    let client = Kubelite::new().client();
    install(&client).await?;
    let v2 = groups(&client, "v2");
    v2.create(&PostParams::default(), &group("v2", "web", json!({"local": pool()}))).await?;
    let patch = json!({
        "metadata": {"labels": {"lost": "yes"}}, "status": {"allocatedIPv4": 1, "allocatedIPv6": 0},
        "spec": {"remote": {}},
    });
    let web = v2.patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    assert_eq!(web.data["status"]["allocatedIPv4"], 1);
    assert_eq!((web.labels().len(), &web.data["spec"]["remote"]), (0, &Value::Null));
    assert_eq!(web.metadata.generation, Some(1));
    let patch = json!({"spec": {"namespaces": ["shop"]}, "status": {"allocatedIPv4": 9}});
    let web = v2.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    assert_eq!((web.metadata.generation, &web.data["status"]["allocatedIPv4"]), (Some(2), &json!(1)));
    Ok(())
}

#[tokio::test]
async fn a_definition_takes_its_objects_along_and_ends_their_watches() -> Result<()> {
    let client = Kubelite::new().client();
    install(&client).await?;
    let v2 = groups(&client, "v2");
    v2.create(&PostParams::default(), &group("v2", "web", json!({"local": pool()}))).await?;
    let mut watch = Box::pin(v2.watch(&WatchParams::default(), "0").await?);
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    definitions.delete("servicegroups.purelb.io", &DeleteParams::default()).await?;
    let mut told = Vec::new();
    while let Some(event) = watch.try_next().await? {
        told.push(match event {
            WatchEvent::Added(it) => format!("added {}", it.name_any()),
            WatchEvent::Deleted(it) => format!("deleted {}", it.name_any()),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(told, ["added web", "deleted web"]);
    assert_eq!(refusal(v2.get("web").await).0, 404);
    Ok(())
}

#[tokio::test]
async fn a_stored_version_must_stay_until_it_is_migrated() -> Result<()> {
    let client = Kubelite::new().client();
    install(&client).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "servicegroups.purelb.io";
    let mut old = definitions.get(name).await?;
    for version in &mut old.spec.versions {
        version.storage = version.name == "v1";
    }
    let mut current = definitions.replace(name, &PostParams::default(), &old).await?;
    assert_eq!(current.status.as_ref().and_then(|it| it.stored_versions.clone()), Some(vec!["v2".into(), "v1".into()]));
    current.spec.versions.retain(|version| version.name == "v1");
    let (code, message) = refusal(definitions.replace(name, &PostParams::default(), &current).await);
    assert_eq!(code, 422);
    assert!(message.contains("status.storedVersions[0]"), "{message}");
    let patch = Patch::Merge(json!({"status": {"storedVersions": ["v1"]}}));
    let patched = definitions.patch_status(name, &PatchParams::default(), &patch).await?;
    current.metadata.resource_version = patched.metadata.resource_version;
    definitions.replace(name, &PostParams::default(), &current).await?;
    let gone = groups(&client, "v2").list(&ListParams::default()).await;
    assert!(gone.is_err(), "v2 is no longer served");
    Ok(())
}

#[tokio::test]
async fn definitions_that_make_no_sense_are_refused_with_the_field() -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(Kubelite::new().client());
    let thing = |schema: Value| {
        json!({
            "metadata": {"name": "things.example.org"},
            "spec": {
                "group": "example.org", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        })
    };
    let mut protected = thing(json!({"type": "object"}));
    protected["metadata"]["name"] = json!("leases.coordination.k8s.io");
    protected["spec"]["group"] = json!("coordination.k8s.io");
    protected["spec"]["names"] = json!({"plural": "leases", "kind": "Lease"});
    let mut misnamed = thing(json!({"type": "object"}));
    misnamed["metadata"]["name"] = json!("things");
    for (definition, field) in [
        (protected, "metadata.annotations[api-approved.kubernetes.io]"),
        (misnamed, "metadata.name"),
        (thing(json!({"type": "string"})), "openAPIV3Schema.type"),
        (thing(json!({"type": "object", "properties": {"a": {}}})), "properties[a].type"),
        (thing(json!({"type": "object", "properties": {"a": {"type": "array"}}})), "properties[a].items"),
        (
            thing(json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}})),
            "properties[a].default",
        ),
        (
            thing(json!({"type": "object", "x-kubernetes-validations": [{"rule": "self."}]})),
            "x-kubernetes-validations[0].rule",
        ),
    ] {
        let definition = serde_json::from_value(definition)?;
        let (code, message) = refusal(definitions.create(&PostParams::default(), &definition).await);
        assert_eq!(code, 422);
        assert!(message.contains(field), "{field} not in {message}");
    }
    definitions.create(&PostParams::default(), &serde_json::from_value(thing(json!({"type": "object"})))?).await?;
    let accepted = definitions.get("things.example.org").await?;
    let conditions = accepted.status.and_then(|it| it.conditions).context("conditions")?;
    assert!(conditions.iter().any(|it| it.type_ == "Established" && it.status == "True"));
    Ok(())
}

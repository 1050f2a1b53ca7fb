//! Objects that others, or older releases, left in an odd state: they harm nobody but themselves.

use anyhow::Result;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, HOME};

async fn send(cluster: &Cluster, request: http::request::Builder, body: &Value) -> Result<Value> {
    let request = request.body(serde_json::to_vec(body)?)?;
    Ok(cluster.client.request::<Value>(request).await?)
}

#[tokio::test]
async fn a_condition_without_a_time_hides_no_service_and_is_kept_as_it_is() -> Result<()> {
    let cluster = Cluster::new().await?;
    cluster.local("default", "10.0.0.8/30").await?;
    cluster.service("odd", json!({})).await?;
    let foreign = json!({"type": "somebody.else/Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": null});
    let path = "/api/v1/namespaces/test/services/odd/status";
    let patch = http::Request::patch(path).header("content-type", "application/merge-patch+json");
    send(&cluster, patch, &json!({"status": {"conditions": [foreign]}})).await?;
    let allocator = cluster.allocator();
    cluster.service("plain", json!({})).await?;
    for name in ["odd", "plain"] {
        cluster
            .until(&format!("{name} is served"), async || {
                let path = format!("/api/v1/namespaces/test/services/{name}");
                let shown = send(&cluster, http::Request::get(path), &json!(null)).await?;
                Ok((!shown["status"]["loadBalancer"]["ingress"].is_null()).then_some(()))
            })
            .await?;
    }
    let shown = send(&cluster, http::Request::get("/api/v1/namespaces/test/services/odd"), &json!(null)).await?;
    assert_eq!(shown["status"]["conditions"][0], foreign);
    assert_eq!(shown["status"]["conditions"][1]["type"], "purelb.io/AddressAssigned");
    allocator.stop().await
}

/// Takes every rule out of a schema, as if the CRD were from before there were any.
fn loosen(schema: &mut Value) {
    *schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
}

#[tokio::test]
async fn a_group_that_an_old_crd_let_in_hides_no_other_group() -> Result<()> {
    let cluster = Cluster::new().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client.clone());
    let strict = crds.get("servicegroups.purelb.io").await?;
    let mut loose = serde_json::to_value(&strict)?;
    for version in loose["spec"]["versions"].as_array_mut().into_iter().flatten() {
        loosen(&mut version["schema"]["openAPIV3Schema"]);
    }
    let versions = json!({"spec": {"versions": loose["spec"]["versions"]}});
    crds.patch("servicegroups.purelb.io", &PatchParams::default(), &Patch::Merge(&versions)).await?;
    for (name, spec) in [("text", json!("text")), ("odd", json!({"namespaces": "text", "local": 7}))] {
        let metadata = json!({"name": name, "namespace": HOME});
        let object = json!({"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": metadata, "spec": spec});
        let path = format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups");
        send(&cluster, http::Request::post(path).header("content-type", "application/json"), &object).await?;
    }
    cluster.local("default", "10.0.0.8/30").await?;
    let allocator = cluster.allocator();
    cluster.service("web", json!({})).await?;
    cluster.has("web", &["10.0.0.8"]).await?;
    cluster
        .until("the odd group says what is odd", async || {
            let path = format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups/odd");
            let shown = send(&cluster, http::Request::get(path), &json!(null)).await?;
            let reason = shown["status"]["conditions"][0]["reason"].clone();
            Ok((reason == "FieldUnreadable").then_some(()))
        })
        .await?;
    allocator.stop().await
}

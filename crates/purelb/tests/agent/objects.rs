//! The objects of a town: what users, operators and controllers write.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use purelb_api::annotations;
use serde_json::{Value, json};

use crate::town::{HOME, Town};

impl Town {
    pub async fn create(&self, plural: &str, object: Value) -> Result<()> {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let kind = object["kind"].as_str().unwrap_or_default();
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            None => Api::all_with(self.client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
        };
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    pub async fn group(&self, version: &str, name: &str, spec: Value) -> Result<()> {
        let metadata = json!({"name": name, "namespace": HOME});
        let api = format!("purelb.io/{version}");
        self.create(
            "servicegroups",
            json!({"apiVersion": api, "kind": "ServiceGroup", "metadata": metadata, "spec": spec}),
        )
        .await
    }

    /// The local group `default` in the LAN's subnets.
    pub async fn local_group(&self) -> Result<()> {
        let v4 = json!([{"pool": "192.168.7.100-192.168.7.199", "subnet": "192.168.7.0/24"}]);
        let v6 = json!([{"pool": "fd00:7::100-fd00:7::1ff", "subnet": "fd00:7::/64"}]);
        self.group("v2", "default", json!({"local": {"v4pools": v4, "v6pools": v6}})).await
    }

    /// A remote group.
    pub async fn remote_group(&self, name: &str, aggregation: &str) -> Result<()> {
        let v4 = json!([{"pool": "172.30.0.0/24", "subnet": "172.30.0.0/24", "aggregation": aggregation}]);
        self.group("v2", name, json!({"remote": {"v4pools": v4}})).await
    }

    pub async fn node_agent(&self, name: &str, spec: Value) -> Result<()> {
        let metadata = json!({"name": name, "namespace": HOME});
        self.create(
            "lbnodeagents",
            json!({"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": metadata, "spec": spec}),
        )
        .await
    }

    pub async fn patch_node_agent(&self, name: &str, spec: Value) -> Result<()> {
        let agents: Api<purelb_api::LBNodeAgent> = Api::namespaced(self.client.clone(), HOME);
        agents.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    pub async fn service(&self, name: &str, annotations: Value, extra: Value) -> Result<()> {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        for (field, value) in extra.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        let metadata = json!({"name": name, "namespace": "test", "annotations": annotations});
        self.create("services", json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
            .await
    }

    pub async fn delete_service(&self, name: &str) -> Result<()> {
        self.services().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn patch_service(&self, name: &str, patch: Value) -> Result<()> {
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Writes the one EndpointSlice of a Service: on which nodes it has a ready endpoint.
    pub async fn endpoints(&self, service: &str, nodes: &[&str]) -> Result<()> {
        let endpoints: Vec<_> = nodes
            .iter()
            .enumerate()
            .map(|(i, node)| json!({"addresses": [format!("10.1.0.{}", i + 1)], "nodeName": node, "conditions": {"ready": true}}))
            .collect();
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
            "metadata": {"name": format!("{service}-1"), "namespace": "test", "labels": {"kubernetes.io/service-name": service}},
        });
        let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> = Api::namespaced(self.client.clone(), "test");
        let name = format!("{service}-1");
        if slices.get_opt(&name).await?.is_some() {
            slices
                .patch(&name, &PatchParams::default(), &Patch::Merge(json!({"endpoints": slice["endpoints"]})))
                .await?;
            return Ok(());
        }
        self.create("endpointslices", slice).await
    }

    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "test")
    }

    pub async fn shown(&self, name: &str) -> Result<Value> {
        Ok(serde_json::to_value(self.services().get(name).await?)?)
    }

    pub async fn leases(&self) -> Result<Vec<Lease>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), HOME);
        let mut found = leases.list(&ListParams::default()).await?.items;
        found.retain(|lease| {
            lease.metadata.name.as_ref().is_some_and(|name| name.starts_with(annotations::LEASE_PREFIX))
        });
        Ok(found)
    }

    /// Reason and message of the Events about an object.
    pub async fn events(&self, about: &str) -> Result<Vec<(String, String)>> {
        let events: Api<Event> = Api::all(self.client.clone());
        let mut found = events.list(&ListParams::default()).await?.items;
        found.retain(|event| event.involved_object.name.as_deref() == Some(about));
        Ok(found
            .into_iter()
            .map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect())
    }
}

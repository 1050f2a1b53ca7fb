//! The server as the daemons meet it: through an ordinary Kubernetes client.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::events::{EventType, Recorder, Reporter};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Resource as _, ResourceExt as _};
use purelb_kubelite::Kubelite;
use serde_json::json;

fn service(name: &str, spec: serde_json::Value) -> Service {
    let mut object = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    serde_json::from_value(object).expect("a service")
}

fn cluster_ips(service: &Service) -> Vec<IpAddr> {
    let ips = service.spec.iter().flat_map(|spec| spec.cluster_ips.iter().flatten());
    ips.map(|ip| ip.parse().expect("an address")).collect()
}

#[tokio::test]
async fn one_patch_gives_a_service_its_address_annotation_and_condition() -> Result<()> {
    let services: Api<Service> = Api::default_namespaced(Kubelite::new().client());
    let created = services.create(&PostParams::default(), &service("web", json!({"type": "LoadBalancer"}))).await?;
    let patch = json!({
        "metadata": {"resourceVersion": created.resource_version(), "annotations": {"purelb.io/allocated-by": "PureLB"}},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": [{
            "type": "purelb.io/AddressAssigned", "status": "True", "reason": "Assigned", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    services.patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let web = services.get("web").await?;
    assert_eq!(web.annotations()["purelb.io/allocated-by"], "PureLB");
    let status = web.status.context("a status")?;
    let ingress = &status.load_balancer.context("a load balancer")?.ingress.context("an address")?[0];
    assert_eq!((ingress.ip.as_deref(), ingress.ip_mode.as_deref()), (Some("192.0.2.1"), Some("VIP")));
    assert_eq!(status.conditions.context("conditions")?[0].type_, "purelb.io/AddressAssigned");

    let again = services.patch_status("web", &PatchParams::default(), &Patch::Merge(&patch)).await;
    assert!(matches!(again, Err(kube::Error::Api(status)) if status.code == 409), "decided on an old version");
    Ok(())
}

#[tokio::test]
async fn cluster_addresses_are_unique_and_return_when_the_service_goes() -> Result<()> {
    let server = Kubelite::builder().service_ranges(["10.9.0.0/29".parse()?, "fd09::/125".parse()?]).build();
    let services: Api<Service> = Api::default_namespaced(server.client());
    let mut seen = Vec::new();
    for i in 0..5 {
        let wish = service(&format!("s{i}"), json!({"ipFamilyPolicy": "RequireDualStack"}));
        seen.extend(cluster_ips(&services.create(&PostParams::default(), &wish).await?));
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len()), (10, 10), "five addresses of each family, none twice");

    let wish = service("more", json!({"clusterIP": seen[0].to_string()}));
    let refused = services.create(&PostParams::default(), &wish).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 422), "held by another service");
    for held in services.list(&ListParams::default()).await? {
        if cluster_ips(&held).contains(&seen[0]) {
            services.delete(&held.name_any(), &DeleteParams::default()).await?;
        }
    }
    assert_eq!(cluster_ips(&services.create(&PostParams::default(), &wish).await?), [seen[0]]);
    Ok(())
}

#[tokio::test]
async fn a_watcher_follows_services_of_type_load_balancer_only() -> Result<()> {
    let services: Api<Service> = Api::default_namespaced(Kubelite::new().client());
    services.create(&PostParams::default(), &service("early", json!({"type": "LoadBalancer"}))).await?;
    let config = watcher::Config::default().fields("spec.type=LoadBalancer");
    let mut events = Box::pin(watcher(services.clone(), config));
    let mut told = Vec::new();
    while !matches!(told.last(), Some(watcher::Event::InitDone)) {
        told.push(events.try_next().await?.context("a watch")?);
    }
    assert!(matches!(&told[1], watcher::Event::InitApply(it) if it.name_any() == "early"), "{told:?}");

    services.create(&PostParams::default(), &service("quiet", json!({}))).await?;
    let patch = json!({"spec": {"type": "LoadBalancer"}});
    services.patch("quiet", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let patch = json!({"spec": {"type": "ClusterIP"}});
    services.patch("early", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    let next = events.try_next().await?;
    assert!(matches!(&next, Some(watcher::Event::Apply(it)) if it.name_any() == "quiet"), "{next:?}");
    let next = events.try_next().await?;
    assert!(matches!(&next, Some(watcher::Event::Delete(it)) if it.name_any() == "early"), "{next:?}");
    Ok(())
}

#[tokio::test]
async fn a_watcher_may_ask_for_metadata_only() -> Result<()> {
    let services: Api<PartialObjectMeta<Service>> = Api::all(Kubelite::new().client());
    let seen = watcher(services, watcher::Config::default()).applied_objects().boxed().try_next().await?;
    let seen = seen.context("the kubernetes service")?;
    assert_eq!((seen.name_any().as_str(), seen.labels().len()), ("kubernetes", 2));
    Ok(())
}

#[tokio::test]
async fn an_event_recorded_for_a_service_is_found_beside_it() -> Result<()> {
    let client = Kubelite::new().client();
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let web = services.create(&PostParams::default(), &service("web", json!({}))).await?;
    let recorder = Recorder::new(client.clone(), Reporter::from("purelb.io/allocator"));
    let event = kube::runtime::events::Event {
        type_: EventType::Normal,
        reason: "AddressAssigned".into(),
        note: Some("192.0.2.1".into()),
        action: "Assign".into(),
        secondary: None,
    };
    recorder.publish(&event, &web.object_ref(&())).await?;
    let events: Api<Event> = Api::default_namespaced(client);
    let found = events.list(&ListParams::default().fields("involvedObject.name=web,reason=AddressAssigned")).await?;
    assert_eq!(found.items.len(), 1);
    assert_eq!(found.items[0].message.as_deref(), Some("192.0.2.1"));
    Ok(())
}

#[tokio::test]
async fn a_namespace_takes_everything_in_it_along_but_waits_for_finalizers() -> Result<()> {
    let client = Kubelite::new().client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let shop = Namespace {
        metadata: ObjectMeta { name: Some("shop".into()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &shop).await?;
    let services: Api<Service> = Api::namespaced(client, "shop");
    services.create(&PostParams::default(), &service("plain", json!({}))).await?;
    let mut held = service("held", json!({}));
    held.finalizers_mut().push("purelb.io/test".into());
    services.create(&PostParams::default(), &held).await?;

    namespaces.delete("shop", &DeleteParams::default()).await?;
    let left: Vec<String> = services.list(&ListParams::default()).await?.iter().map(|it| it.name_any()).collect();
    assert_eq!(left, ["held"]);
    let refused = services.create(&PostParams::default(), &service("late", json!({}))).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403), "the namespace is going");

    let patch = json!({"metadata": {"finalizers": null}});
    services.patch("held", &PatchParams::default(), &Patch::Merge(&patch)).await?;
    assert!(namespaces.get_opt("shop").await?.is_none(), "the last object was the last reason to stay");
    Ok(())
}

#[tokio::test]
async fn nodes_and_pods_report_through_their_status() -> Result<()> {
    let client = Kubelite::new().client();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "n1"}}))?).await?;
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(&status)).await?;
    let status = json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}});
    let node = nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(&status)).await?;
    assert_eq!(node.status.and_then(|status| status.conditions).map(|it| it.len()), Some(2));

    let pods: Api<Pod> = Api::default_namespaced(client);
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let patch = json!({"spec": {"nodeName": "n2"}});
    let refused = pods.patch("p", &PatchParams::default(), &Patch::Merge(&patch)).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 422), "a pod stays on its node");
    assert_eq!(pods.list(&ListParams::default().fields("spec.nodeName=n1,status.phase=Pending")).await?.items.len(), 1);
    Ok(())
}

#[tokio::test]
async fn clones_share_one_server_and_time_is_an_argument() -> Result<()> {
    let server = Kubelite::builder().clock(|| "2026-05-04T03:02:01.9Z".parse().expect("a time")).build();
    let services: Api<Service> = Api::default_namespaced(server.client());
    services.create(&PostParams::default(), &service("web", json!({}))).await?;
    let twin: Api<Service> = Api::default_namespaced(server.clone().client());
    let created = twin.get("web").await?.creation_timestamp().context("a time")?;
    assert_eq!(created.0.to_string(), "2026-05-04T03:02:01Z");
    Ok(())
}

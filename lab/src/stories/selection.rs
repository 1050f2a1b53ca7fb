//! Lists: pages, label selectors, field selectors.

use anyhow::Result;
use serde_json::json;

use super::ground::{Ground, names, refused, text};
use super::manifest::{config_map, event, labelled, service};

/// A long list comes in pages of one and the same moment.
pub async fn a_list_comes_in_pages_of_one_moment(ground: &Ground) -> Result<()> {
    let all = ground.core("configmaps");
    for name in ["a", "b", "c", "d", "e"] {
        ground.create(&all, &config_map(name)).await?;
    }
    let first = ground.get(&format!("{all}?limit=2")).await?;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);

    ground.create(&all, &config_map("bb")).await?;
    ground.delete(&ground.core("configmaps/d")).await?;
    let token = text(&first["metadata"]["continue"])?;
    let second = ground.get(&format!("{all}?limit=2&continue={token}")).await?;
    assert_eq!(names(&second), ["c", "d"], "what happened between the pages is not seen");
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);

    let token = text(&second["metadata"]["continue"])?;
    let third = ground.get(&format!("{all}?limit=2&continue={token}")).await?;
    assert_eq!(names(&third), ["e"]);
    let meta = &third["metadata"];
    assert!(meta["continue"].is_null() && meta["remainingItemCount"].is_null(), "the last page says so: {meta}");
    assert_eq!(names(&ground.get(&all).await?), ["a", "b", "bb", "c", "e"]);
    Ok(())
}

/// Labels select by equality, by sets and by existence.
pub async fn labels_select_by_equality_sets_and_existence(ground: &Ground) -> Result<()> {
    let all = ground.core("configmaps");
    for (name, labels) in [
        ("a", json!({"app": "web", "tier": "front"})),
        ("b", json!({"app": "web", "tier": "back"})),
        ("c", json!({"app": "api"})),
        ("d", json!({})),
    ] {
        ground.create(&all, &labelled(name, labels)).await?;
    }
    for (selector, selected) in [
        ("app%3Dweb", "a b"),
        ("app%3D%3Dweb", "a b"),
        ("app!%3Dweb", "c d"),
        ("app%20in%20(web,api)", "a b c"),
        ("app%20notin%20(web)", "c d"),
        ("app", "a b c"),
        ("!app", "d"),
        ("app%3Dweb,tier%3Dfront", "a"),
        ("app,!tier", "c"),
        ("app%20in%20(web),tier%20notin%20(front,middle)", "b"),
        ("app%3D", ""),
        ("", "a b c d"),
    ] {
        let list = ground.get(&format!("{all}?labelSelector={selector}")).await?;
        assert_eq!(names(&list).join(" "), selected, "labelSelector={selector}");
    }
    Ok(())
}

/// Fields select by name, by namespace and, for Services, by type.
pub async fn fields_select_by_name_namespace_and_type(ground: &Ground) -> Result<()> {
    let all = ground.core("services");
    for (name, kind) in [("inside", "ClusterIP"), ("outside", "LoadBalancer"), ("port", "NodePort")] {
        ground.create(&all, &service(name, kind)).await?;
    }
    for (selector, selected) in [
        ("spec.type%3DLoadBalancer", "outside"),
        ("spec.type!%3DLoadBalancer", "inside port"),
        ("spec.type%3DLoadBalancer,metadata.name%3Doutside", "outside"),
        ("spec.type%3DLoadBalancer,metadata.name%3Dport", ""),
        ("metadata.name%3Dport", "port"),
        ("metadata.name!%3Dport", "inside outside"),
        (&format!("metadata.namespace%3D{}", ground.namespace), "inside outside port"),
        ("metadata.namespace%3Dnowhere", ""),
    ] {
        let list = ground.get(&format!("{all}?fieldSelector={selector}")).await?;
        assert_eq!(names(&list).join(" "), selected, "fieldSelector={selector}");
    }
    let everywhere =
        format!("/api/v1/services?fieldSelector=spec.type%3DLoadBalancer,metadata.namespace%3D{}", ground.namespace);
    assert_eq!(names(&ground.get(&everywhere).await?), ["outside"], "across all namespaces");
    refused(ground.get(&format!("{all}?fieldSelector=spec.nope%3D1")).await, 400, "BadRequest")?;
    Ok(())
}

/// Pods select by node and phase, Events by what they are about, Secrets by type.
pub async fn other_kinds_have_fields_of_their_own(ground: &Ground) -> Result<()> {
    let pod = |name: &str, node: &str| {
        let spec = json!({"nodeName": node, "containers": [{"name": "web", "image": "web"}]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    };
    ground.create(&ground.core("pods"), &pod("here", "node-1")).await?;
    ground.create(&ground.core("pods"), &pod("there", "node-2")).await?;
    let here = ground.get(&ground.core("pods?fieldSelector=spec.nodeName%3Dnode-1,status.phase%3DPending")).await?;
    assert_eq!(names(&here), ["here"]);

    ground.create(&ground.core("events"), &event(&ground.namespace, "assigned")).await?;
    let about = ground.core("events?fieldSelector=involvedObject.kind%3DService,involvedObject.name%3Dweb");
    assert_eq!(names(&ground.get(&about).await?), ["assigned"]);
    let other = ground.core("events?fieldSelector=involvedObject.name%3Dother");
    assert!(names(&ground.get(&other).await?).is_empty());
    let reason = ground.core("events?fieldSelector=reason%3DAddressAssigned,type%3DNormal");
    assert_eq!(names(&ground.get(&reason).await?), ["assigned"]);

    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password"}, "type": "purelb.io/bgp"});
    ground.create(&ground.core("secrets"), &secret).await?;
    let typed = ground.core("secrets?fieldSelector=type%3Dpurelb.io%2Fbgp");
    assert_eq!(names(&ground.get(&typed).await?), ["password"]);
    Ok(())
}

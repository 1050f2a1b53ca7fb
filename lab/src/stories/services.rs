//! Services: what the API server fills in, changes along and refuses.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, invalid, text};
use super::manifest::{load_balancer, service};

/// A LoadBalancer gets a cluster address and a node port.
pub async fn a_load_balancer_gets_cluster_address_and_node_port(ground: &Ground) -> Result<()> {
    let web = ground.create(&ground.core("services"), &service("web", "LoadBalancer")).await?;
    let spec = &web["spec"];
    let address = text(&spec["clusterIP"])?;
    assert!(address.starts_with("10.96."), "{address} is in the first range of the cluster");
    assert_eq!(spec["clusterIPs"], json!([address]));
    for (field, value) in [
        ("ipFamilies", json!(["IPv4"])),
        ("ipFamilyPolicy", json!("SingleStack")),
        ("sessionAffinity", json!("None")),
        ("externalTrafficPolicy", json!("Cluster")),
        ("internalTrafficPolicy", json!("Cluster")),
        ("allocateLoadBalancerNodePorts", json!(true)),
    ] {
        assert_eq!(spec[field], value, "spec.{field}");
    }
    let port = &spec["ports"][0];
    assert_eq!((&port["protocol"], &port["targetPort"]), (&json!("TCP"), &json!(80)));
    let node_port = port["nodePort"].as_u64().unwrap_or_default();
    assert!((30000..=32767).contains(&node_port), "node port {node_port}");
    assert_eq!(web["status"], json!({"loadBalancer": {}}));

    assert!(web["metadata"]["generation"].is_null(), "nothing counts the changes of a Service's spec");

    let other = ground.create(&ground.core("services"), &service("other", "LoadBalancer")).await?;
    assert_ne!(other["spec"]["clusterIP"], spec["clusterIP"]);
    assert_ne!(other["spec"]["ports"][0]["nodePort"], port["nodePort"]);
    Ok(())
}

/// Without node ports, if so wished.
pub async fn node_ports_can_be_declined(ground: &Ground) -> Result<()> {
    let wish = load_balancer("web", json!({"allocateLoadBalancerNodePorts": false}));
    let web = ground.create(&ground.core("services"), &wish).await?;
    assert!(web["spec"]["ports"][0]["nodePort"].is_null());
    Ok(())
}

/// A ClusterIP Service has what it needs and no more.
pub async fn a_cluster_service_has_no_outside_fields(ground: &Ground) -> Result<()> {
    let inside = ground.create(&ground.core("services"), &service("inside", "ClusterIP")).await?;
    for field in ["externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort", "loadBalancerClass"]
    {
        assert!(inside["spec"][field].is_null(), "spec.{field} of {inside}");
    }
    assert!(inside["spec"]["ports"][0]["nodePort"].is_null());
    let mut unsaid = service("unsaid", "");
    unsaid["spec"]["type"].take();
    let unsaid = ground.create(&ground.core("services"), &unsaid).await?;
    assert_eq!(unsaid["spec"]["type"], "ClusterIP");
    Ok(())
}

/// A headless Service has the address None.
pub async fn a_headless_service_has_no_address(ground: &Ground) -> Result<()> {
    let mut wish = service("web", "ClusterIP");
    wish["spec"]["clusterIP"] = json!("None");
    let web = ground.create(&ground.core("services"), &wish).await?;
    assert_eq!((&web["spec"]["clusterIP"], &web["spec"]["clusterIPs"]), (&json!("None"), &json!(["None"])));
    assert_eq!(web["spec"]["ipFamilies"], json!(["IPv4"]));
    let balanced = load_balancer("outside", json!({"clusterIP": "None"}));
    invalid(ground.create(&ground.core("services"), &balanced).await, "spec.clusterIPs[0]")?;
    Ok(())
}

/// A cluster address may be asked for, if it is free and in range; a deleted Service gives it back.
pub async fn a_cluster_address_can_be_asked_for(ground: &Ground) -> Result<()> {
    let all = ground.core("services");
    let first = ground.create(&all, &service("first", "LoadBalancer")).await?;
    let same = |name: &str| load_balancer(name, json!({"clusterIP": first["spec"]["clusterIP"]}));
    invalid(ground.create(&all, &same("second")).await, "spec.clusterIPs")?;
    let outside = load_balancer("outside", json!({"clusterIP": "192.0.2.1"}));
    invalid(ground.create(&all, &outside).await, "spec.clusterIPs")?;
    let moved = json!({"spec": {"clusterIP": "10.96.255.250", "clusterIPs": ["10.96.255.250"]}});
    let answer = ground.patch(&ground.core("services/first"), PatchType::Merge, &moved).await;
    invalid(answer, "spec.clusterIPs[0]")?;
    ground.delete(&ground.core("services/first")).await?;
    ground.create(&all, &same("second")).await?;
    Ok(())
}

/// Local traffic policy needs a port for health checks, which goes with it.
pub async fn local_traffic_policy_has_a_health_check_port(ground: &Ground) -> Result<()> {
    let wish = load_balancer("web", json!({"externalTrafficPolicy": "Local"}));
    let web = ground.create(&ground.core("services"), &wish).await?;
    let port = web["spec"]["healthCheckNodePort"].as_u64().unwrap_or_default();
    assert!((30000..=32767).contains(&port), "health check port {port}");
    let cluster = json!({"spec": {"externalTrafficPolicy": "Cluster"}});
    let web = ground.patch(&ground.core("services/web"), PatchType::Merge, &cluster).await?;
    assert!(web["spec"]["healthCheckNodePort"].is_null());
    Ok(())
}

/// From LoadBalancer to ClusterIP: address, class and node ports go; annotations stay.
pub async fn leaving_the_type_clears_what_belongs_to_it(ground: &Ground) -> Result<()> {
    let mut wish = load_balancer("web", json!({"loadBalancerClass": "purelb.io/purelb"}));
    wish["metadata"]["annotations"] = json!({"purelb.io/allocated-by": "PureLB"});
    let created = ground.create(&ground.core("services"), &wish).await?;
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    ground.patch(&ground.core("services/web/status"), PatchType::Merge, &ingress).await?;

    let away = json!({"spec": {"type": "ClusterIP"}});
    let web = ground.patch(&ground.core("services/web"), PatchType::Merge, &away).await?;
    for field in ["loadBalancerClass", "allocateLoadBalancerNodePorts", "externalTrafficPolicy"] {
        assert!(web["spec"][field].is_null(), "spec.{field} of {web}");
    }
    assert!(web["spec"]["ports"][0]["nodePort"].is_null());
    assert_eq!(web["status"], json!({"loadBalancer": {}}), "the API server itself empties the ingress");
    assert_eq!(web["spec"]["clusterIP"], created["spec"]["clusterIP"]);
    assert_eq!(web["metadata"]["annotations"], json!({"purelb.io/allocated-by": "PureLB"}));
    Ok(())
}

/// The class of a LoadBalancer is chosen once.
pub async fn the_class_of_a_load_balancer_is_immutable(ground: &Ground) -> Result<()> {
    let path = ground.core("services/web");
    let class = |name: Value| json!({"spec": {"loadBalancerClass": name}});
    ground
        .create(&ground.core("services"), &load_balancer("web", json!({"loadBalancerClass": "purelb.io/purelb"})))
        .await?;
    let other = ground.patch(&path, PatchType::Merge, &class(json!("purelb.io/purelbv2"))).await;
    invalid(other, "spec.loadBalancerClass")?;
    invalid(ground.patch(&path, PatchType::Merge, &class(Value::Null)).await, "spec.loadBalancerClass")?;

    ground.create(&ground.core("services"), &service("bare", "LoadBalancer")).await?;
    let later = ground.patch(&ground.core("services/bare"), PatchType::Merge, &class(json!("purelb.io/purelb"))).await;
    invalid(later, "spec.loadBalancerClass")?;
    let mut inside = service("inside", "ClusterIP");
    inside["spec"]["loadBalancerClass"] = json!("purelb.io/purelb");
    invalid(ground.create(&ground.core("services"), &inside).await, "spec.loadBalancerClass")?;
    let turned = json!({"spec": {"type": "ClusterIP"}});
    ground.patch(&path, PatchType::Merge, &turned).await?;
    let back = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "purelb.io/purelbv2"}});
    ground.patch(&path, PatchType::Merge, &back).await?;
    Ok(())
}

/// Ports are there, in range, and told apart.
pub async fn ports_are_checked(ground: &Ground) -> Result<()> {
    for (ports, field) in [
        (json!([]), "spec.ports"),
        (json!([{"port": 0}]), "spec.ports[0].port"),
        (json!([{"port": 65536}]), "spec.ports[0].port"),
        (json!([{"port": 80}, {"port": 81}]), "spec.ports[0].name"),
        (json!([{"name": "a", "port": 80}, {"name": "a", "port": 81}]), "spec.ports[1].name"),
        (json!([{"name": "a", "port": 80}, {"name": "b", "port": 80}]), "spec.ports[1]"),
        (json!([{"port": 80, "protocol": "ICMP"}]), "spec.ports[0].protocol"),
    ] {
        let wish = load_balancer("web", json!({"ports": ports}));
        invalid(ground.create(&ground.core("services"), &wish).await, field)?;
    }
    let both = json!([{"name": "tcp", "port": 53}, {"name": "udp", "port": 53, "protocol": "UDP"}]);
    let dns = ground.create(&ground.core("services"), &load_balancer("dns", json!({"ports": both}))).await?;
    assert_eq!(dns["spec"]["ports"].as_array().map(Vec::len), Some(2));
    Ok(())
}

/// Types and policies are those that exist.
pub async fn types_and_policies_are_checked(ground: &Ground) -> Result<()> {
    for (field, value) in [
        ("type", "Balancer"),
        ("externalTrafficPolicy", "Nearby"),
        ("internalTrafficPolicy", "Nearby"),
        ("sessionAffinity", "Always"),
        ("ipFamilyPolicy", "TripleStack"),
    ] {
        let wish = load_balancer("web", json!({field: value}));
        invalid(ground.create(&ground.core("services"), &wish).await, &format!("spec.{field}"))?;
    }
    Ok(())
}

/// A Service is named as a DNS label, without dots.
pub async fn a_service_name_has_no_dots(ground: &Ground) -> Result<()> {
    for name in ["web.example", "Web", &"x".repeat(64)] {
        invalid(ground.create(&ground.core("services"), &service(name, "LoadBalancer")).await, "metadata.name")?;
    }
    ground.create(&ground.core("services"), &service("web-1", "LoadBalancer")).await?;
    ground.create(&ground.core("services"), &service("1-web", "LoadBalancer")).await?;
    Ok(())
}

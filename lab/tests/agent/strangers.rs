//! What is not ours is not touched.

use anyhow::Result;
use purelb_lab::stories::PatchType;
use serde_json::{Value, json};

use crate::groups;
use crate::local_addresses::ranking;
use crate::site::HOME;
use crate::story::Story;

/// Writes an address into a Service's status, as another load balancer would.
async fn write_ingress(story: &Story, name: &str, addresses: &[&str]) -> Result<()> {
    let ingress: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
    let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    let path = story.ground.core(&format!("services/{name}/status"));
    story.ground.patch(&path, PatchType::Merge, &status).await?;
    Ok(())
}

/// A Service announced now shows that every agent has seen what was written before.
async fn caught_up(story: &Story) -> Result<()> {
    story.group("later", groups::remote(["/32", "/128"])).await?;
    let addresses = story.service("later", "later", json!({})).await?;
    story.everywhere(addresses[0], 32).await?;
    story.delete("later").await?;
    story.held(addresses[0], &[]).await?;
    story.held(addresses[1], &[]).await?;
    story.ground.delete(&format!("/apis/purelb.io/v2/namespaces/{HOME}/servicegroups/later")).await?;
    Ok(())
}

#[tokio::test]
async fn i03_b3_another_load_balancers_service_is_left_alone() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "foreign"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other", "ports": [{"port": 80}]},
    });
    story.ground.create(&story.ground.core("services"), &service).await?;
    write_ingress(&story, "foreign", &["192.168.7.77", "172.22.0.77"]).await?;
    caught_up(&story).await?;
    for address in ["192.168.7.77", "172.22.0.77"] {
        assert_eq!(story.holders(address.parse()?)?, []);
    }
    story.close().await
}

#[tokio::test]
async fn i08_addresses_of_kube_proxy_are_never_removed() -> Result<()> {
    let story = Story::begin().await?;
    for node in &story.site().nodes {
        // What kube-proxy in IPVS mode makes, with a kind of link that every kernel of the lab has.
        node.namespace.batch(
            "link add kube-ipvs0 type ifb\nlink set kube-ipvs0 arp off\n\
             addr add 172.22.0.10/32 dev kube-ipvs0\naddr add 192.168.7.100/32 dev kube-ipvs0\n",
        )?;
    }
    story.group("remote", groups::remote(["/32", "/128"])).await?;
    story.group("local", groups::local()).await?;
    let far = story.service("far", "remote", json!({})).await?[0];
    let near = story.service("near", "local", json!({})).await?[0];
    assert_eq!((far.to_string(), near.to_string()), ("172.22.0.10".to_owned(), "192.168.7.100".to_owned()));
    let ours = |story: &Story, address| -> Result<usize> {
        Ok(story.holders(address)?.iter().filter(|(_, interface, _)| interface != "kube-ipvs0").count())
    };
    story.until("every node has the one", async |story| Ok(ours(story, far)? == 3)).await?;
    story.until("one node has the other", async |story| Ok(ours(story, near)? == 1)).await?;
    story.delete("far").await?;
    story.delete("near").await?;
    story.until("we have withdrawn both", async |story| Ok(ours(story, far)? == 0 && ours(story, near)? == 0)).await?;
    for node in &story.site().nodes {
        assert_eq!(node.on("kube-ipvs0")?, ["172.22.0.10/32".to_owned(), "192.168.7.100/32".to_owned()].into());
        node.namespace.batch("link del kube-ipvs0\n")?;
    }
    story.close().await
}

#[tokio::test]
async fn an_operators_own_address_on_our_interface_stays() -> Result<()> {
    let story = Story::begin().await?;
    caught_up(&story).await?;
    for node in &story.site().nodes {
        node.namespace.batch("addr add 10.99.0.1/32 dev kube-lb0\naddr add 192.168.7.200/24 dev eth0\n")?;
    }
    caught_up(&story).await?;
    for node in &story.site().nodes {
        assert!(node.on("kube-lb0")?.contains("10.99.0.1/32"));
        assert!(node.on("eth0")?.contains("192.168.7.200/24"));
        node.namespace.batch("addr del 10.99.0.1/32 dev kube-lb0\naddr del 192.168.7.200/24 dev eth0\n")?;
    }
    story.close().await
}

#[tokio::test]
async fn i16_a_pool_over_the_nodes_gives_their_addresses_to_nobody() -> Result<()> {
    let story = Story::begin().await?;
    let mut group = groups::local();
    group["spec"]["local"]["v4pools"][0]["pool"] = json!("192.168.7.10-192.168.7.14");
    group["spec"]["local"]["v6pools"][0]["pool"] = json!("fd00:7::10-fd00:7::14");
    story.group("greedy", group).await?;
    let mut given = Vec::new();
    for name in ["one", "two"] {
        given.extend(story.service(name, "greedy", json!({})).await?.iter().map(ToString::to_string));
    }
    given.sort();
    assert_eq!(given, ["192.168.7.10", "192.168.7.14", "fd00:7::10", "fd00:7::14"]);
    story.close().await
}

/// Gives this node address to a Service as an allocator that knows no better would, and takes it away again.
async fn claim(story: &Story, address: &str, reason: Option<&str>) -> Result<()> {
    let shown = |story: &Story| -> Result<Vec<Value>> {
        let nodes = story.site().nodes.iter();
        nodes.map(|node| node.namespace.ip(&["-j", "addr", "show", "dev", "eth0"])).collect()
    };
    let before = shown(story)?;
    let annotations = json!({"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "local"});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "greedy", "annotations": annotations},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/other", "ports": [{"port": 80}]},
    });
    story.ground.create(&story.ground.core("services"), &service).await?;
    write_ingress(story, "greedy", &[address]).await?;
    if let Some(reason) = reason {
        story.event("greedy", reason, address).await?;
    }
    caught_up(story).await?;
    assert_eq!(shown(story)?, before, "{address} is announced");
    story.delete("greedy").await?;
    caught_up(story).await?;
    assert_eq!(shown(story)?, before, "{address} is withdrawn");
    Ok(())
}

#[tokio::test]
async fn i16_a_node_that_is_elected_for_its_own_address_refuses_and_keeps_it() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    for (address, node) in [("192.168.7.11", "node-a"), ("192.168.7.13", "node-c")] {
        assert_eq!(ranking(address.parse()?)[0], node);
        claim(&story, address, Some("AddressReserved")).await?;
    }
    story.close().await
}

#[tokio::test]
async fn i16_no_node_takes_the_address_of_another() -> Result<()> {
    let story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    for address in ["192.168.7.12", "fd00:7::11", "fd00:7::12", "fd00:7::13"] {
        claim(&story, address, None).await?;
    }
    story.close().await
}

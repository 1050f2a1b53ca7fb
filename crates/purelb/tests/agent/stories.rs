//! Failover, restart, configuration, outages, endpoints: what an operator lives through.

use std::time::Duration;

use anyhow::Result;
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::DeleteParams;
use purelb::agent::stop::OnStop;
use purelb_core::addr::Family;
use serde_json::json;
use tokio::time::Instant;

use crate::line::Weather;
use crate::town::{HOME, TIMING, Town};

/// A town with one Service on a local address, and who holds it.
pub async fn with_local(nodes: u8) -> Result<(Town, std::net::IpAddr, usize)> {
    let town = Town::running(nodes).await?;
    town.local_group().await?;
    town.service("web", json!({}), json!({"ipFamilyPolicy": "SingleStack"})).await?;
    let addr = town.address("web", Family::V4).await?;
    let holder = town.holder(addr).await?;
    Ok((town, addr, holder))
}

/// A town with one Service on a virtual address.
pub async fn with_virtual(nodes: u8) -> Result<Town> {
    let town = Town::running(nodes).await?;
    town.remote_group("edge", "/32").await?;
    town.service("web", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    town.everywhere(&["172.30.0.0/32"]).await?;
    Ok(town)
}

#[tokio::test(start_paused = true)]
async fn b22_a_killed_owner_loses_its_address_before_another_takes_it() -> Result<()> {
    let (mut town, addr, first) = with_local(3).await?;
    town.told("web", "AnnouncingLocal", &addr.to_string()).await?;
    let (name, killed) = (town.nodes[first].name.clone(), Instant::now());
    town.kill(first);
    town.until("nobody holds it", async |town| Ok(town.holders_of(addr).is_empty().then_some(()))).await?;
    let tick = Duration::from_millis(10);
    assert!(killed.elapsed() <= TIMING.renew_deadline + tick, "the kernel takes it off: {:?}", killed.elapsed());
    let second = town.holder(addr).await?;
    println!("a killed owner is followed after {:?}", killed.elapsed());
    assert!(second != first && killed.elapsed() <= TIMING.lease + Duration::from_secs(1), "{:?}", killed.elapsed());
    let stolen = format!("Node {} took announcement of {addr} from node {name}", town.nodes[second].name);
    town.told("web", "AnnounceSlotSteal", &stolen).await?;
    town.check()
}

#[tokio::test(start_paused = true)]
async fn i19_a_stopped_owner_hands_over_within_a_moment() -> Result<()> {
    let (mut town, addr, first) = with_local(3).await?;
    let stopped = Instant::now();
    town.stop(first).await?;
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    assert!(town.holders_of(addr) != [first]);
    let names: Vec<_> = town.leases().await?.into_iter().filter_map(|lease| lease.metadata.name).collect();
    assert!(!names.contains(&format!("purelb-node-{}", town.nodes[first].name)), "its lease is gone: {names:?}");
    town.holder(addr).await?;
    println!("a stopped owner is followed after {:?}", stopped.elapsed());
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    town.check()
}

#[tokio::test(start_paused = true)]
async fn a_returning_node_takes_its_address_back_without_two_holders() -> Result<()> {
    let (mut town, addr, first) = with_local(3).await?;
    town.stop(first).await?;
    town.holder(addr).await?;
    town.start(first);
    town.until("it is back", async |town| Ok((town.holders_of(addr) == [first]).then_some(()))).await?;
    town.check()
}

#[tokio::test(start_paused = true)]
async fn i04_an_agent_that_is_killed_and_started_loses_nothing_and_says_nothing_twice() -> Result<()> {
    let (mut town, local, holder) = with_local(3).await?;
    town.remote_group("edge", "default").await?;
    town.service("far", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    town.everywhere(&["172.30.0.0/24"]).await?;
    town.told("far", "AnnouncingNonLocal", &town.nodes[holder].name).await?;
    town.pass(Duration::from_secs(5)).await;
    let told = (town.events("far").await?.len(), town.events("web").await?.len());
    town.kill(holder);
    town.pass(Duration::from_millis(500)).await;
    town.start(holder);
    town.pass(Duration::from_secs(30)).await;
    assert_eq!(town.holders_of(local), [holder]);
    assert_eq!((town.losses_of(local), town.losses_of("172.30.0.0".parse()?)), (vec![], vec![]));
    assert_eq!(
        (town.events("far").await?.len(), town.events("web").await?.len()),
        told,
        "nobody needs to hear it again"
    );
    town.check()
}

#[tokio::test(start_paused = true)]
async fn i05_what_a_service_left_while_the_agent_was_down_goes_after_the_first_full_look() -> Result<()> {
    let mut town = with_virtual(2).await?;
    town.kill(0);
    town.delete_service("web").await?;
    town.until("the other node has let go", async |town| Ok(town.on(1, "kube-lb0").is_empty().then_some(()))).await?;
    assert_eq!(town.on(0, "kube-lb0"), ["172.30.0.0/32"], "nobody is there to take it off");
    town.start(0);
    town.everywhere(&[]).await
}

#[tokio::test(start_paused = true)]
async fn virtual_addresses_wait_for_a_successor_or_go_with_the_agent() -> Result<()> {
    let mut town = with_virtual(2).await?;
    town.nodes[0].on_stop = OnStop::Stay;
    town.nodes[1].on_stop = OnStop::Leave;
    for node in 0..2 {
        town.kill(node);
        town.start(node);
    }
    town.pass(Duration::from_secs(20)).await;
    for node in 0..2 {
        town.stop(node).await?;
    }
    let link = |town: &Town, node: usize| {
        town.nodes[node].kernel.links().by_index.values().any(|link| link.name == "kube-lb0")
    };
    assert_eq!((town.on(0, "kube-lb0").len(), link(&town, 1)), (1, false), "one stays, one goes with its interface");
    town.pass(Duration::from_secs(30)).await;
    town.start(0);
    town.start(1);
    town.pass(Duration::from_secs(120)).await;
    town.everywhere(&["172.30.0.0/32"]).await?;
    assert_eq!(town.losses_of("172.30.0.0".parse()?).iter().filter(|(_, node)| node == "node1").count(), 0);
    town.nodes[0].on_stop = OnStop::Stay;
    town.stop(0).await?;
    town.pass(Duration::from_secs(61)).await;
    assert!(town.on(0, "kube-lb0").is_empty(), "without a successor the kernel takes it off");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a19_b23_a_bad_configuration_keeps_the_last_good_one_and_says_so() -> Result<()> {
    let (town, addr, holder) = with_local(2).await?;
    town.patch_node_agent("default", json!({"local": {"localInterface": "["}})).await?;
    let told = town.told("default", "ConfigError", "last good configuration stays in force").await?;
    assert!(told.contains("announcing nothing") && told.contains("localInterface"), "{told}");
    town.pass(Duration::from_secs(30)).await;
    assert_eq!(town.holders_of(addr), [holder], "nothing has moved");
    town.patch_node_agent("default", json!({"local": {"localInterface": "^nothing$"}})).await?;
    town.until("no interface is served", async |town| Ok(town.holders_of(addr).is_empty().then_some(()))).await?;
    town.patch_node_agent("default", json!({"local": {"localInterface": "^eth"}})).await?;
    town.holder(addr).await?;
    town.check()
}

#[tokio::test(start_paused = true)]
async fn b23_a_selector_that_nobody_can_evaluate_keeps_the_last_good_form_of_the_object_in_force() -> Result<()> {
    let (mut town, addr, holder) = with_local(2).await?;
    let broken = json!({"nodeSelector": {"matchExpressions": [{"key": "rack", "operator": "Near", "values": ["1"]}]}});
    town.patch_node_agent("default", broken).await?;
    let told = town.told("default", "ConfigError", "last good configuration stays in force").await?;
    assert!(told.contains("nodeSelector") && told.contains("Near"), "{told}");
    town.pass(Duration::from_secs(30)).await;
    assert_eq!((town.holders_of(addr), town.losses_of(addr)), (vec![holder], vec![]), "nothing has moved");
    assert!(town.counts(holder, r#"purelb_lbnodeagent_selector_state{state="invalid"} 1"#)?);

    // A process that never saw it in a good form cannot know whom it is for.
    let other = 1 - holder;
    town.kill(other);
    town.start(other);
    town.told("default", "InvalidNodeSelector", "Near").await?;
    town.until("it is deselected", async |town| {
        Ok(town.counts(other, r#"purelb_lbnodeagent_selector_state{state="deselected"} 1"#)?.then_some(()))
    })
    .await?;

    town.patch_node_agent("default", json!({"nodeSelector": null})).await?;
    town.until("it is configured", async |town| {
        Ok(town.counts(holder, r#"purelb_lbnodeagent_selector_state{state="configured"} 1"#)?.then_some(()))
    })
    .await?;
    assert_eq!(town.losses_of(addr), []);
    town.check()
}

#[tokio::test(start_paused = true)]
async fn a07_a_lifetime_longer_than_the_lease_is_followed_and_warned_of_once() -> Result<()> {
    let (town, addr, holder) = with_local(2).await?;
    let written = |valid| json!({"local": {"addressConfig": {"localInterface": {"validLifetime": valid}}}});
    for (valid, words) in [(json!(300), "is 300s, longer than the lease of 7s"), (json!(0), "is 0 (for ever)")] {
        town.patch_node_agent("default", written(valid)).await?;
        town.told("default", "LifetimeBeyondLease", words).await?;
    }
    town.patch_node_agent("default", json!({"local": {"interfaces": ["eth7"]}})).await?;
    town.pass(Duration::from_secs(30)).await;
    let told = town.events("default").await?;
    let told = told.iter().filter(|(reason, _)| reason == "LifetimeBeyondLease").count();
    assert_eq!(told, 4, "once by each of two nodes for each of two lifetimes");
    assert_eq!(town.holders_of(addr), [holder]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn c07_a_node_that_no_object_selects_announces_nothing_and_its_lease_says_so() -> Result<()> {
    let town = with_virtual(2).await?;
    town.patch_node_agent("default", json!({"nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "node2"}}}))
        .await?;
    town.until("node1 is empty", async |town| Ok(town.on(0, "kube-lb0").is_empty().then_some(()))).await?;
    assert_eq!(town.on(1, "kube-lb0"), ["172.30.0.0/32"]);
    town.until("its lease lists no subnet", async |town| {
        let leases = town.leases().await?;
        let own = leases.iter().find(|lease| lease.metadata.name.as_deref() == Some("purelb-node-node1"));
        let subnets = own.and_then(|lease| lease.metadata.annotations.as_ref()?.get("purelb.io/subnets"));
        Ok((subnets.map(String::as_str) == Some("")).then_some(()))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn i07_aggregation_changes_leave_exactly_one_prefix_and_never_none() -> Result<()> {
    let town = with_virtual(2).await?;
    let groups: Api<purelb_api::ServiceGroup> = Api::namespaced(town.client.clone(), HOME);
    for (aggregation, prefix) in [("default", 24), ("/28", 28), ("/32", 32)] {
        let pool = json!([{"pool": "172.30.0.0/24", "subnet": "172.30.0.0/24", "aggregation": aggregation}]);
        let patch = json!({"spec": {"remote": {"v4pools": pool}}});
        groups.patch("edge", &Default::default(), &kube::api::Patch::Merge(patch)).await?;
        town.everywhere(&[&format!("172.30.0.0/{prefix}")]).await?;
    }
    assert_eq!(town.losses_of("172.30.0.0".parse()?), [], "the address itself was always there");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_costs_nobody_an_address() -> Result<()> {
    let (town, addr, holder) = with_local(3).await?;
    for node in &town.nodes {
        node.weather.send_replace(Weather::Mute);
    }
    town.pass(Duration::from_secs(60)).await;
    assert_eq!((town.holders_of(addr), town.losses_of(addr)), (vec![holder], vec![]));
    town.check()
}

#[tokio::test(start_paused = true)]
async fn i14_an_owner_cut_off_from_the_api_server_lets_go_before_another_takes_over() -> Result<()> {
    for weather in [Weather::Silent, Weather::Refused] {
        let (town, addr, first) = with_local(3).await?;
        town.nodes[first].weather.send_replace(weather);
        town.until("another has it", async |town| {
            Ok(town.holders_of(addr).iter().any(|node| *node != first).then_some(()))
        })
        .await?;
        town.pass(Duration::from_secs(30)).await;
        assert_eq!(town.holders_of(addr).len(), 1);
        town.nodes[first].weather.send_replace(Weather::Fair);
        town.until("it is back", async |town| Ok((town.holders_of(addr) == [first]).then_some(()))).await?;
        town.check()?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn virtual_addresses_outlive_an_api_server_that_nobody_reaches() -> Result<()> {
    let (mut town, local, _) = with_local(3).await?;
    town.remote_group("edge", "/32").await?;
    town.service("far", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    town.everywhere(&["172.30.0.0/32"]).await?;
    for node in &town.nodes {
        node.weather.send_replace(Weather::Refused);
    }
    town.pass(Duration::from_secs(60)).await;
    assert!(town.holders_of(local).is_empty(), "local addresses follow the lease");
    town.kill(0);
    town.start(0);
    town.pass(Duration::from_secs(120)).await;
    town.everywhere(&["172.30.0.0/32"]).await?;
    for node in &town.nodes {
        node.weather.send_replace(Weather::Fair);
    }
    town.holder(local).await?;
    assert_eq!(town.losses_of("172.30.0.0".parse()?), []);
    town.check()
}

#[tokio::test(start_paused = true)]
async fn virtual_addresses_follow_a_flapping_endpoint() -> Result<()> {
    let town = with_virtual(3).await?;
    town.patch_service("web", json!({"spec": {"externalTrafficPolicy": "Local"}})).await?;
    town.everywhere(&[]).await?;
    for round in 0..6 {
        let (on, off) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
        town.endpoints("web", &[&town.nodes[on].name]).await?;
        town.until("the address follows", async |town| {
            let here = town.on(on, "kube-lb0") == ["172.30.0.0/32"];
            Ok((here && town.on(off, "kube-lb0").is_empty() && town.on(0, "kube-lb0").is_empty()).then_some(()))
        })
        .await?;
    }
    town.patch_service("web", json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await?;
    town.everywhere(&["172.30.0.0/32"]).await
}

#[tokio::test(start_paused = true)]
async fn affinity_set_and_removed_on_a_live_service_moves_its_address_and_never_doubles_it() -> Result<()> {
    let (town, addr, first) = with_local(3).await?;
    let other = (first + 1) % 3;
    town.endpoints("web", &[&town.nodes[other].name]).await?;
    let follow = |value| json!({"metadata": {"annotations": {"purelb.io/node-affinity": value}}});
    // Of the two nodes that are concerned, each is once the one that does not hear of it.
    for deaf in [None, Some(first), Some(other)] {
        let weather = |is| {
            if let Some(node) = deaf {
                town.nodes[node].weather.send_replace(is);
            }
        };
        weather(Weather::Mute);
        town.patch_service("web", follow(json!("service-endpoints"))).await?;
        town.pass(Duration::from_secs(20)).await;
        weather(Weather::Fair);
        town.until("it is near the endpoint", async |town| Ok((town.holders_of(addr) == [other]).then_some(())))
            .await?;
        weather(Weather::Mute);
        town.patch_service("web", follow(json!(null))).await?;
        town.pass(Duration::from_secs(20)).await;
        weather(Weather::Fair);
        town.until("it is back", async |town| Ok((town.holders_of(addr) == [first]).then_some(()))).await?;
        town.check()?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn b26_the_owner_alone_sets_the_policy_of_a_local_address_to_cluster_and_does_not_fight() -> Result<()> {
    let (town, addr, holder) = with_local(3).await?;
    town.patch_service("web", json!({"spec": {"externalTrafficPolicy": "Local"}})).await?;
    town.until("it is Cluster again", async |town| {
        Ok((town.shown("web").await?["spec"]["externalTrafficPolicy"] == "Cluster").then_some(()))
    })
    .await?;
    let told = town.told("web", "LocalOverride", "setting to Cluster").await?;
    let text = "ExternalTrafficPolicy Local not supported on local Interfaces, setting to Cluster. Please see the \
                PureLB docs for info on why we do this, and how to override this policy.";
    assert_eq!(told, text);
    town.patch_service("web", json!({"spec": {"externalTrafficPolicy": "Local"}})).await?;
    town.told("web", "PolicySetBack", "left so").await?;
    town.pass(Duration::from_secs(30)).await;
    assert_eq!(town.shown("web").await?["spec"]["externalTrafficPolicy"], "Local");
    let told = town.events("web").await?;
    assert_eq!(told.iter().filter(|(reason, _)| reason == "LocalOverride").count(), 1, "{told:?}");
    assert_eq!(
        (town.holders_of(addr), town.losses_of(addr)),
        (vec![holder], vec![]),
        "the address stays all the while"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_no_load_balancer_any_more_says_nothing_of_agents_and_begins_anew_when_it_is() -> Result<()> {
    let (town, addr, _) = with_local(2).await?;
    let local = json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"}});
    for round in 0..2 {
        town.patch_service("web", local.clone()).await?;
        town.until("its policy is set to Cluster, and it says who announces it", async |town| {
            let shown = town.shown("web").await?;
            let said = &shown["metadata"]["annotations"];
            let rewritten = said["purelb.io/traffic-policy-rewritten"] == "true";
            let announced = said["purelb.io/announcing-IPv4"].is_string();
            Ok((rewritten && announced && shown["spec"]["externalTrafficPolicy"] == "Cluster").then_some(()))
        })
        .await?;
        town.patch_service("web", json!({"spec": {"type": "ClusterIP", "externalTrafficPolicy": null}})).await?;
        town.until("nothing is left", async |town| {
            let said = town.shown("web").await?["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
            let left = said.keys().any(|key| key.starts_with("purelb.io/"));
            Ok((!left && town.holders_of(addr).is_empty()).then_some(()))
        })
        .await?;
        let told = town.events("web").await?;
        assert_eq!(told.iter().filter(|(reason, _)| reason == "LocalOverride").count(), round + 1, "{told:?}");
    }
    town.check()
}

#[tokio::test(start_paused = true)]
async fn a_local_policy_that_its_owner_insists_on_is_kept_and_said() -> Result<()> {
    let (town, addr, holder) = with_local(2).await?;
    let annotations = json!({"purelb.io/allow-local": "true"});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"externalTrafficPolicy": "Local"}});
    town.patch_service("web", patch).await?;
    let told = town.told("web", "LocalOverride", "").await?;
    let text = "ExternalTrafficPolicy override annotation found, will allow Local policy. Incoming traffic will NOT be \
                forwarded inter-node. This is not a recommended configuration; please see the PureLB docs for more info.";
    assert_eq!(told, text);
    town.pass(Duration::from_secs(30)).await;
    assert_eq!(town.shown("web").await?["spec"]["externalTrafficPolicy"], "Local");
    assert_eq!((town.holders_of(addr), town.losses_of(addr)), (vec![holder], vec![]));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written_but_leases() -> Result<()> {
    let (town, ..) = with_local(3).await?;
    town.remote_group("edge", "/32").await?;
    town.service("far", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    town.everywhere(&["172.30.0.0/32"]).await?;
    town.pass(Duration::from_secs(10)).await;
    for node in &town.nodes {
        node.writes.lock().unwrap().clear();
    }
    town.pass(Duration::from_secs(120)).await;
    for node in &town.nodes {
        let writes = node.writes.lock().unwrap().clone();
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/purelb-node-{}", node.name);
        let renewal = (Method::PATCH, lease);
        assert!(writes.iter().all(|write| *write == renewal), "{:?}", writes.iter().find(|write| **write != renewal));
        let expected = 120.0 / TIMING.renew().as_secs_f64();
        assert!((writes.len() as f64) < expected * 1.2, "{} renewals in two minutes", writes.len());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn i10_a_lease_deleted_by_hand_is_written_anew() -> Result<()> {
    let (town, addr, holder) = with_local(2).await?;
    let leases: Api<Lease> = Api::namespaced(town.client.clone(), HOME);
    let name = format!("purelb-node-{}", town.nodes[holder].name);
    let before = leases.get(&name).await?.metadata.uid;
    leases.delete(&name, &DeleteParams::default()).await?;
    let deleted = Instant::now();
    town.until("there is another", async |_| {
        Ok(leases.get_opt(&name).await?.filter(|lease| lease.metadata.uid != before))
    })
    .await?;
    assert!(deleted.elapsed() <= TIMING.lease / 2, "{:?}", deleted.elapsed());
    town.until("it is back", async |town| Ok((town.holders_of(addr) == [holder]).then_some(()))).await?;
    town.check()
}

#[tokio::test(start_paused = true)]
async fn e10_an_agent_that_stops_deletes_its_own_lease_and_never_its_successors() -> Result<()> {
    let mut town = Town::running(2).await?;
    let leases: Api<Lease> = Api::namespaced(town.client.clone(), HOME);
    let successor = json!({"metadata": {"annotations": {"purelb.io/instance": "successor"}}});
    leases.patch("purelb-node-node1", &Default::default(), &kube::api::Patch::Merge(successor)).await?;
    for node in 0..2 {
        town.stop(node).await?;
    }
    let names: Vec<_> = town.leases().await?.into_iter().filter_map(|lease| lease.metadata.name).collect();
    assert_eq!(names, ["purelb-node-node1"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn i06_what_somebody_deletes_by_hand_is_back_at_once() -> Result<()> {
    let (town, local, holder) = with_local(2).await?;
    town.remote_group("edge", "/32").await?;
    town.service("far", json!({"purelb.io/service-group": "edge"}), json!({})).await?;
    town.everywhere(&["172.30.0.0/32"]).await?;
    let virtual_addr = "172.30.0.0".parse()?;
    for round in 0..3 {
        let deed = Instant::now();
        match round {
            0 => town.nodes[holder].kernel.meddle(|kernel| kernel.delete_addr("eth0", local, 24)),
            1 => town.nodes[0].kernel.meddle(|kernel| kernel.delete_addr("kube-lb0", virtual_addr, 32)),
            _ => town.nodes[1].kernel.meddle(|kernel| kernel.delete_link("kube-lb0")),
        }
        town.everywhere(&["172.30.0.0/32"]).await?;
        town.holder(local).await?;
        assert!(deed.elapsed() <= Duration::from_millis(100), "round {round}: {:?}", deed.elapsed());
    }
    town.check()
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_cable_is_pulled_gives_its_address_up_at_once() -> Result<()> {
    let (town, addr, first) = with_local(3).await?;
    let pulled = Instant::now();
    town.nodes[first].kernel.meddle(|kernel| kernel.set_carrier("eth0", false));
    town.until("another has it", async |town| {
        let holders = town.holders_of(addr);
        Ok((holders.len() == 1 && holders != [first]).then_some(()))
    })
    .await?;
    assert!(pulled.elapsed() < Duration::from_secs(1), "{:?}", pulled.elapsed());
    town.nodes[first].kernel.meddle(|kernel| kernel.set_carrier("eth0", true));
    town.until("it is back", async |town| Ok((town.holders_of(addr) == [first]).then_some(()))).await?;
    town.check()
}

#[tokio::test(start_paused = true)]
async fn i11_clocks_that_are_wrong_by_an_hour_do_not_matter() -> Result<()> {
    let mut town = Town::new(3).await?;
    town.nodes[1].skew = jiff::SignedDuration::from_hours(1);
    town.nodes[2].skew = jiff::SignedDuration::from_hours(-1);
    for node in 0..3 {
        town.start(node);
    }
    town.local_group().await?;
    town.service("web", json!({}), json!({"ipFamilyPolicy": "SingleStack"})).await?;
    let addr = town.address("web", Family::V4).await?;
    town.holder(addr).await?;
    town.pass(Duration::from_secs(20)).await;
    let settled = town.holders_of(addr);
    let losses = town.losses_of(addr);
    town.pass(Duration::from_secs(60)).await;
    assert_eq!((town.holders_of(addr), town.losses_of(addr)), (settled, losses), "no flapping");
    town.check()
}

#[tokio::test(start_paused = true)]
async fn i16_no_node_takes_the_address_of_another() -> Result<()> {
    let (town, ..) = with_local(3).await?;
    // A class that the allocator leaves alone: somebody wrote the address by hand.
    let branded = json!({"purelb.io/allocated-by": "PureLB", "purelb.io/pool-type": "local"});
    town.service("odd", branded, json!({"loadBalancerClass": "example.net/other"})).await?;
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.168.7.12"}]}}});
    town.services().patch_status("odd", &Default::default(), &kube::api::Patch::Merge(status)).await?;
    town.told("odd", "AddressReserved", "192.168.7.12").await?;
    town.pass(Duration::from_secs(30)).await;
    let held =
        (0..3).filter(|node| *node != 1).any(|node| town.on(node, "eth0").contains(&"192.168.7.12/24".to_owned()));
    assert!(!held, "it is node2's own");
    Ok(())
}

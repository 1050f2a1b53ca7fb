//! Addresses as a user of kubectl sees them given, refused and given back.

use anyhow::Result;
use purelb_lab::Cluster;
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::mistakes::{described, told};
use crate::purelb::{NODES, assigned, group, group_v2, held_by, installed, service, shown};
use crate::site::{SOON, deployment, fetch, rolled_out, room, url};

/// One pool of single addresses, written as `203.0.113.1-203.0.113.9`, in the subnet beside it.
fn pool(range: &str, subnet: &str) -> Value {
    let aggregation = if range.contains(':') { "/128" } else { "/32" };
    json!({"aggregation": aggregation, "pool": range, "subnet": subnet})
}

/// Waits until a Service has exactly these addresses, in this order.
async fn has(cluster: &Cluster, room: &str, name: &str, addresses: &[&str]) -> Result<()> {
    let so = async |cluster: &Cluster| Ok(assigned(cluster, room, name).await? == addresses);
    cluster.until(&format!("{room}/{name} has {addresses:?}"), SOON, so).await
}

/// Waits until no node has any of these addresses.
async fn let_go(cluster: &Cluster, cidr: &str) -> Result<()> {
    for node in &cluster.nodes {
        let gone = async |_: &Cluster| Ok(!shown(node, "kube-lb0")?.iter().any(|one| one == cidr));
        cluster.until(&format!("{} has let {cidr} go", node.name), SOON, gone).await?;
    }
    Ok(())
}

fn annotate(service: &mut Value, name: &str, value: &str) {
    service["metadata"]["annotations"][format!("purelb.io/{name}")] = json!(value);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_address_is_waited_for_and_given_on_when_it_is_released() -> Result<()> {
    let story = "allocation::the_last_address_is_waited_for_and_given_on_when_it_is_released";
    let only = json!({"local": {"v4pools": [pool("172.34.0.1-172.34.0.1", "172.34.0.0/24")]}});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "scarce";
            room(cluster, home).await?;
            cluster.apply(&group("scarce", &only)).await?;
            cluster.apply(&service(home, "first", "nothing", "scarce", &["IPv4"])).await?;
            assert_eq!(assigned(cluster, home, "first").await?, ["172.34.0.1"]);
            cluster.apply(&service(home, "second", "nothing", "scarce", &["IPv4"])).await?;
            let words = ["AllocationFailed", "exhausted: no available addresses"];
            described(cluster, &["service", "-n", home, "second"], &words).await?;
            let sentence = told(cluster, &["service", "-n", home, "second"], "Exhausted").await?;
            seen("5", "exhausted: the second Service of a group with one address", sentence);
            cluster.kubectl(&["delete", "service", "-n", home, "first"]).await?;
            assert_eq!(assigned(cluster, home, "second").await?, ["172.34.0.1"]);
            seen("5", "released: the first Service is deleted", "the second has its address");
            cluster.kubectl(&["delete", "service", "-n", home, "second"]).await?;
            let_go(cluster, "172.34.0.1/32").await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_both_families_gives_one_back_and_gets_one_again() -> Result<()> {
    let story = "allocation::a_service_of_both_families_gives_one_back_and_gets_one_again";
    let (v4, v6) = ("203.0.113.1", "2001:db8:113::1");
    let both = json!({"remote": {
        "v4pools": [pool("203.0.113.1-203.0.113.9", "203.0.113.0/28")],
        "v6pools": [pool("2001:db8:113::1-2001:db8:113::9", "2001:db8:113::/64")],
    }});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "dual";
            room(cluster, home).await?;
            cluster.apply(&group_v2("dual", &both)).await?;
            cluster.apply(&service(home, "web", "nothing", "dual", &["IPv4", "IPv6"])).await?;
            has(cluster, home, "web", &[v4, v6]).await?;
            held_by(cluster, &format!("{v6}/128"), &NODES).await?;
            let families = async |policy: &str| {
                let patch = json!({"spec": {"ipFamilyPolicy": policy}}).to_string();
                cluster.kubectl(&["patch", "service", "-n", home, "web", "--patch", &patch]).await
            };
            families("SingleStack").await?;
            has(cluster, home, "web", &[v4]).await?;
            let_go(cluster, &format!("{v6}/128")).await?;
            families("PreferDualStack").await?;
            has(cluster, home, "web", &[v4, v6]).await?;
            held_by(cluster, &format!("{v6}/128"), &NODES).await?;
            held_by(cluster, &format!("{v4}/32"), &NODES).await?;
            seen("5", "dual: RequireDualStack, SingleStack, PreferDualStack", format!("{v4}, {v6}; {v4}; {v4}, {v6}"));
            Ok(())
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_address_is_had_by_one_service_only() -> Result<()> {
    let story = "allocation::a_pinned_address_is_had_by_one_service_only";
    let (v4, v6) = ("203.0.113.25", "2001:db8:113:1::25");
    let pools = json!({"remote": {
        "v4pools": [pool("203.0.113.17-203.0.113.29", "203.0.113.16/28")],
        "v6pools": [pool("2001:db8:113:1::10-2001:db8:113:1::29", "2001:db8:113:1::/64")],
    }});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "pinned";
            room(cluster, home).await?;
            cluster.apply(&group_v2("pinned", &pools)).await?;
            let mut web = service(home, "web", "nothing", "pinned", &["IPv4", "IPv6"]);
            annotate(&mut web, "addresses", &format!("{v4},{v6}"));
            cluster.apply(&web).await?;
            has(cluster, home, "web", &[v4, v6]).await?;
            held_by(cluster, &format!("{v4}/32"), &NODES).await?;
            seen("5", &format!("pinned: purelb.io/addresses {v4},{v6}"), format!("{v4}, {v6}"));
            let mut late = service(home, "late", "nothing", "pinned", &["IPv4"]);
            annotate(&mut late, "addresses", v4);
            cluster.apply(&late).await?;
            let sentence = told(cluster, &["service", "-n", home, "late"], "AddressInUse").await?;
            assert!(sentence.contains(&format!("{v4} is already in use by {home}/web")), "{sentence}");
            seen("5", "pinned: a second Service asks for the same address", sentence);
            cluster.kubectl(&["delete", "service", "-n", home, "web"]).await?;
            has(cluster, home, "late", &[v4]).await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn services_with_one_key_answer_at_one_address_on_their_own_ports() -> Result<()> {
    let story = "allocation::services_with_one_key_answer_at_one_address_on_their_own_ports";
    let address = "203.0.113.33";
    let pools = json!({"remote": {"v4pools": [pool("203.0.113.33-203.0.113.41", "203.0.113.32/28")]}});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "shared";
            room(cluster, home).await?;
            cluster.apply(&deployment(home, "echo", 1)).await?;
            cluster.apply(&group_v2("shared", &pools)).await?;
            let share = async |name: &str, port: u16| {
                let mut object = service(home, name, "echo", "shared", &["IPv4"]);
                annotate(&mut object, "allow-shared-ip", "team");
                object["spec"]["ports"][0]["port"] = json!(port);
                cluster.apply(&object).await
            };
            for (name, port) in [("http", 80), ("admin", 8443)] {
                share(name, port).await?;
                has(cluster, home, name, &[address]).await?;
            }
            share("clash", 80).await?;
            let sentence = told(cluster, &["service", "-n", home, "clash"], "PortInUse").await?;
            assert!(sentence.contains(&format!("{home}/http")), "{sentence}");
            rolled_out(cluster, home, "deployment/echo").await?;
            for port in [80, 8443] {
                let answers =
                    async |cluster: &Cluster| fetch(cluster.far_client(), &url(address, port, "/")).map(|_| true);
                cluster.until(&format!("{address}:{port} answers"), SOON, answers).await?;
            }
            seen("5", "shared: two Services with purelb.io/allow-shared-ip", format!("{address}:80, {address}:8443"));
            seen("5", "shared: a third one with port 80", sentence);
            // The address stays for as long as one of them has it.
            cluster.kubectl(&["delete", "service", "-n", home, "http", "clash"]).await?;
            held_by(cluster, &format!("{address}/32"), &NODES).await?;
            cluster.kubectl(&["delete", "service", "-n", home, "admin"]).await?;
            let_go(cluster, &format!("{address}/32")).await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_has_its_own_group_and_no_other() -> Result<()> {
    let story = "allocation::a_namespace_has_its_own_group_and_no_other";
    let (team, others) = ("team-a", "team-b");
    let mut own = json!({"remote": {"v4pools": [pool("203.0.113.49-203.0.113.57", "203.0.113.48/28")]}});
    own["namespaces"] = json!([team]);
    own["enforceNamespaces"] = json!(true);
    let open = json!({"remote": {"v4pools": [pool("203.0.113.65-203.0.113.73", "203.0.113.64/28")]}});
    installed()
        .await?
        .prove(story, async |cluster| {
            room(cluster, team).await?;
            room(cluster, others).await?;
            cluster.apply(&group_v2("team-a-only", &own)).await?;
            cluster.apply(&group_v2("open-to-all", &open)).await?;
            let mut plain = service(team, "plain", "nothing", "", &["IPv4"]);
            plain["metadata"]["annotations"] = json!({});
            cluster.apply(&plain).await?;
            has(cluster, team, "plain", &["203.0.113.49"]).await?;
            seen("5", "namespaces: a Service that names no group, in a namespace that has one", "203.0.113.49");
            for (home, group, reason) in
                [(team, "open-to-all", "NamespaceConfined"), (others, "team-a-only", "GroupConfined")]
            {
                cluster.apply(&service(home, "astray", "nothing", group, &["IPv4"])).await?;
                let sentence = told(cluster, &["service", "-n", home, "astray"], reason).await?;
                described(cluster, &["service", "-n", home, "astray"], &["AllocationFailed", "namespace denied"])
                    .await?;
                seen("5", &format!("namespaces: {home} asks for {group}"), sentence);
            }
            cluster.apply(&service(others, "free", "nothing", "open-to-all", &["IPv4"])).await?;
            has(cluster, others, "free", &["203.0.113.65"]).await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_a_multi_pool_group_has_an_address_of_every_range() -> Result<()> {
    let story = "allocation::a_service_of_a_multi_pool_group_has_an_address_of_every_range";
    let pools = json!({"remote": {
        "multiPool": true,
        "v4pools": [pool("203.0.113.81-203.0.113.89", "203.0.113.80/28"), pool("203.0.113.97", "203.0.113.96/28")],
        "v6pools": [pool("2001:db8:113:5::1", "2001:db8:113:5::/64")],
    }});
    let all = ["203.0.113.81", "203.0.113.97", "2001:db8:113:5::1"];
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "multi";
            room(cluster, home).await?;
            cluster.apply(&group_v2("multi", &pools)).await?;
            cluster.apply(&service(home, "web", "nothing", "multi", &["IPv4", "IPv6"])).await?;
            has(cluster, home, "web", &all).await?;
            described(cluster, &["service", "-n", home, "web"], &["Multi-pool: assigned 3 IPs from pool multi"])
                .await?;
            for (address, length) in all.into_iter().zip([32, 32, 128]) {
                held_by(cluster, &format!("{address}/{length}"), &NODES).await?;
            }
            let mut one = service(home, "one", "nothing", "multi", &["IPv4"]);
            annotate(&mut one, "multi-pool", "false");
            cluster.apply(&one).await?;
            has(cluster, home, "one", &["203.0.113.82"]).await?;
            seen("5", "multi-pool: three ranges", all.join(", "));
            seen("5", "multi-pool: with purelb.io/multi-pool: \"false\"", "203.0.113.82");
            Ok(())
        })
        .await
}

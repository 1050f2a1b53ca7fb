//! The BGP kinds in kubectl's hands: what is configured, and what nodes report.

use anyhow::Result;

use crate::person::Person;
use crate::servers::{both, people};

const CONFIG: &str = "
apiVersion: bgp.purelb.io/v1
kind: BGPConfiguration
metadata:
  name: default
spec:
  global: {asn: 64512}
  neighbors:
  - config: {neighborAddress: 192.0.2.254, peerAsn: 64513, description: rack 1}
    timers:
      config: {holdTime: 9, keepaliveInterval: 3}
  netlinkImport: {enabled: true, interfaceList: [kube-lb0]}
";

/// A node's report has nothing but a status, and is of the whole cluster: each test names its own.
async fn reports(person: &Person, node: &str) -> Result<()> {
    let empty = format!("apiVersion: bgp.purelb.io/v1\nkind: BGPNodeStatus\nmetadata: {{name: {node}}}\nspec: {{}}\n");
    person.writes("report.yaml", &empty)?;
    person.types("kubectl create -f report.yaml", &format!("bgpnodestatus.bgp.purelb.io/{node} created")).await?;
    let status = format!(
        r#"{{"status":{{"nodeName":"{node}","routerID":"192.0.2.1","asn":64512,"healthy":true,"neighborCount":1,
        "lastUpdated":"2026-01-01T00:00:00Z","neighbors":[{{"address":"192.0.2.254","peerASN":64513,"state":"Established",
        "prefixesSent":2,"prefixesReceived":0}}]}}}}"#
    );
    let patch = format!("kubectl patch bgpns {node} --subresource=status --type=merge -p '{status}'");
    person.types(&patch, &format!("bgpnodestatus.bgp.purelb.io/{node} patched")).await
}

#[tokio::test]
async fn get_shows_what_is_configured_and_what_nodes_report() -> Result<()> {
    for person in people("get-bgp").await? {
        person.writes("config.yaml", CONFIG)?;
        person.types("kubectl create -f config.yaml", "bgpconfiguration.bgp.purelb.io/default created").await?;
        for (command, shown) in [
            ("kubectl get bgpconfig", "NAME  AGE\ndefault  AGE"),
            ("kubectl get configs.bgp.purelb.io -o wide", "NAME  AGE\ndefault  AGE"),
            ("kubectl get configs -o name", "bgpconfiguration.bgp.purelb.io/default"),
            (
                "kubectl get bgpns get-bgp",
                r#"Error from server (NotFound): bgpnodestatuses.bgp.purelb.io "get-bgp" not found"#,
            ),
        ] {
            person.types(command, shown).await?;
        }
        reports(&person, "get-bgp").await?;
        let table = "
NAME  NODE  ROUTERID  HEALTHY  NEIGHBORS  LASTUPDATED  AGE
get-bgp  get-bgp  192.0.2.1  true  1  AGE  AGE";
        person.types("kubectl get bgpns get-bgp", table).await?;
        person.types("kubectl get bgpnodestatuses get-bgp -o wide", table).await?;
        let session = "kubectl get bgpns get-bgp -o jsonpath='{.status.neighbors[0].state}'";
        person.types(session, "Established").await?;
        person.types("kubectl delete bgpns get-bgp", r#"bgpnodestatus.bgp.purelb.io "get-bgp" deleted"#).await?;
    }
    Ok(())
}

#[tokio::test]
async fn describe_and_explain_tell_the_same_of_the_bgp_kinds() -> Result<()> {
    let people = people("learn-bgp").await?;
    for person in &people {
        person.writes("config.yaml", CONFIG)?;
        person.types("kubectl create -f config.yaml", "bgpconfiguration.bgp.purelb.io/default created").await?;
        reports(person, "learn-bgp").await?;
        person
            .types(
                "kubectl api-resources --api-group=bgp.purelb.io",
                "
NAME  SHORTNAMES  APIVERSION  NAMESPACED  KIND
bgpnodestatuses  bgpns  bgp.purelb.io/v1  false  BGPNodeStatus
configs  bgpconfig  bgp.purelb.io/v1  true  BGPConfiguration",
            )
            .await?;
    }
    for (command, part) in [
        ("kubectl describe bgpconfig default", "Neighbor Address:  192.0.2.254"),
        ("kubectl describe bgpns learn-bgp", "State:  Established"),
        ("kubectl get bgpconfig default -o yaml", "kind: BGPConfiguration"),
        ("kubectl get bgpns learn-bgp -o yaml", "kind: BGPNodeStatus"),
        ("kubectl explain bgpconfig.spec --recursive", "neighbors"),
        ("kubectl explain bgpns.status.neighbors", "prefixesSent"),
    ] {
        let told = both(&people, command).await?;
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    Ok(())
}

#[tokio::test]
async fn a_mistake_in_a_configuration_is_refused_with_a_sentence() -> Result<()> {
    for person in people("wrong-bgp").await? {
        for (right, wrong, sentence) in [
            ("peerAsn:", "peerAs:", r#"strict decoding error: unknown field "spec.neighbors[0].config.peerAs""#),
            ("asn: 64512", "asn: [64512]", "spec.global.asn in body must be of type int"),
        ] {
            person.writes("config.yaml", &CONFIG.replace(right, wrong))?;
            let refused = person.shell("kubectl create -f config.yaml").await?;
            assert!(refused.contains(sentence), "{wrong} gets the sentence\n{refused}");
        }
    }
    Ok(())
}

//! LBNodeAgents in kubectl's hands: how nodes announce addresses.

use anyhow::Result;

use crate::servers::{both, people};

const AGENTS: &str = "
apiVersion: purelb.io/v2
kind: LBNodeAgent
metadata:
  name: racks
spec:
  nodeSelector:
    matchLabels: {rack: a}
  local:
    localInterface: ^eth0$
    dummyInterface: kube-lb0
    interfaces: [eth1, eth2]
    garpConfig: {enabled: true, count: 3}
";

#[tokio::test]
async fn apply_and_get_show_how_nodes_announce() -> Result<()> {
    for person in people("get-agents").await? {
        person.types("kubectl get lbna", "No resources found in get-agents namespace.").await?;
        person.writes("agents.yaml", AGENTS)?;
        let interface = "kubectl get lbna racks -o jsonpath='{.spec.local.localInterface}'";
        for (command, shown) in [
            ("kubectl apply -f agents.yaml", "lbnodeagent.purelb.io/racks created"),
            ("kubectl apply -f agents.yaml", "lbnodeagent.purelb.io/racks unchanged"),
            ("kubectl get lbna", "NAME  AGE\nracks  AGE"),
            ("kubectl get lbnodeagents.v1.purelb.io racks -o wide", "NAME  AGE\nracks  AGE"),
            ("kubectl get lbnas -o name", "lbnodeagent.purelb.io/racks"),
            (interface, "^eth0$"),
        ] {
            person.types(command, shown).await?;
        }
        person.writes("agents.yaml", &AGENTS.replace("^eth0$", "default"))?;
        person.types("kubectl apply -f agents.yaml", "lbnodeagent.purelb.io/racks configured").await?;
        person.types(interface, "default").await?;
        person.writes("agents.yaml", &AGENTS.replace("localInterface", "localInterfaces"))?;
        let refused = person.shell("kubectl apply -f agents.yaml").await?;
        let sentence = r#"strict decoding error: unknown field "spec.local.localInterfaces""#;
        assert!(refused.contains(sentence), "{refused}");
        let deleted = r#"lbnodeagent.purelb.io "racks" deleted from get-agents namespace"#;
        person.types("kubectl delete lbna racks", deleted).await?;
    }
    Ok(())
}

#[tokio::test]
async fn describe_and_yaml_tell_the_same_of_them() -> Result<()> {
    let people = people("learn-agents").await?;
    for person in &people {
        person.writes("agents.yaml", AGENTS)?;
        person.types("kubectl create -f agents.yaml", "lbnodeagent.purelb.io/racks created").await?;
    }
    for (command, part) in [
        ("kubectl describe lbna racks", "Local Interface:  ^eth0$"),
        ("kubectl get lbna racks -o yaml", "kind: LBNodeAgent"),
        ("kubectl get lbnodeagents.v1.purelb.io racks -o yaml", "apiVersion: purelb.io/v1"),
        ("kubectl explain lbna.spec --recursive", "garpConfig"),
    ] {
        let told = both(&people, command).await?;
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    Ok(())
}

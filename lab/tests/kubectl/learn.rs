//! What kubectl tells of objects and kinds: `describe`, `explain`, `api-resources`, whole objects.

use anyhow::Result;

use crate::manifests::{ASSIGN, GROUP, WEB, kinds};
use crate::servers::{both, people};

#[tokio::test]
async fn describe_tells_of_a_service_its_endpoints_and_its_events() -> Result<()> {
    let people = people("describe").await?;
    for person in &people {
        person.writes("all.yaml", &[WEB, GROUP, &kinds("describe")].join("---\n"))?;
        person.shell("kubectl create -f all.yaml").await?;
        person.shell(ASSIGN).await?;
        // kubectl finds the events of an object by its UID.
        let uid = "kubectl get svc web -o jsonpath='{.metadata.uid}'";
        let patch = r#"{"involvedObject":{"uid":"'$UID'"}}"#;
        person.types(&format!("UID=$({uid}); kubectl patch event web.1 -p '{patch}'"), "event/web.1 patched").await?;
    }
    let told = both(&people, "kubectl describe svc web").await?;
    for part in ["LoadBalancer Ingress:  192.0.2.100 (VIP)", "10.1.0.1:8080", "AddressAssigned", "Assigned 192.0.2.100"]
    {
        assert!(told.contains(part), "{part} is missing in\n{told}");
    }
    for what in [
        "sg remotedual",
        "ds lbnodeagent",
        "deploy allocator",
        "pod web-0",
        "lease purelb-node-a",
        "secret keys",
        "configmap settings",
        "endpointslice web-1",
    ] {
        both(&people, &format!("kubectl describe {what}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn objects_are_completed_as_on_the_real_server() -> Result<()> {
    let people = people("complete").await?;
    for person in &people {
        person.writes("all.yaml", &[WEB, GROUP, &kinds("complete")].join("---\n"))?;
        person.shell("kubectl create -f all.yaml").await?;
    }
    for what in [
        "svc",
        "sg",
        "pods",
        "ds",
        "deploy",
        "leases",
        "secrets",
        "cm",
        "endpointslices",
        "events",
        "events.v1.events.k8s.io",
    ] {
        both(&people, &format!("kubectl get {what} -o yaml")).await?;
    }
    for person in &people {
        person
            .types("kubectl set image ds/lbnodeagent agent=purelb:2", "daemonset.apps/lbnodeagent image updated")
            .await?;
        let add = r#"kubectl patch ds lbnodeagent -p '{"spec":{"template":{"spec":{"containers":[
            {"name":"second","image":"other:1"}]}}}}'"#;
        person.types(add, "daemonset.apps/lbnodeagent patched").await?;
    }
    both(&people, "kubectl get ds lbnodeagent -o yaml").await?;
    let selector =
        r#"kubectl patch ds lbnodeagent --type=merge -p '{"spec":{"selector":{"matchLabels":{"app":"other"}}}}'"#;
    both(&people, selector).await?;
    Ok(())
}

#[tokio::test]
async fn api_resources_and_explain_know_our_kinds() -> Result<()> {
    for person in people("explain").await? {
        person
            .types(
                "kubectl api-resources --api-group=purelb.io",
                "
NAME  SHORTNAMES  APIVERSION  NAMESPACED  KIND
lbnodeagents  lbna,lbnas  purelb.io/v2  true  LBNodeAgent
servicegroups  sg,sgs  purelb.io/v2  true  ServiceGroup",
            )
            .await?;
        let group = person.shell("kubectl explain sg.spec.remote.v4pools.aggregation").await?;
        assert!(group.contains("KIND:  ServiceGroup") && group.contains("FIELD: aggregation <string>"), "{group}");
        let service = person.shell("kubectl explain service.spec.loadBalancerClass").await?;
        assert!(service.contains("FIELD: loadBalancerClass <string>"), "{service}");
        let unknown = person.shell("kubectl explain sg.spec.nope").await?;
        assert!(unknown.contains(r#"field "nope" does not exist"#), "{unknown}");
    }
    let people = people("explain").await?;
    for command in ["kubectl explain sg", "kubectl explain sg.spec --recursive", "kubectl explain lbna.spec.local"] {
        both(&people, command).await?;
    }
    let [lite, real] = people;
    // The kinds that kubelite has are known there by the same names.
    let resources = "kubectl api-resources --no-headers -o wide";
    let (lite, real) = (lite.shell(resources).await?, real.shell(resources).await?);
    for line in lite.lines() {
        assert!(real.lines().any(|it| it == line), "{line} is not in\n{real}");
    }
    Ok(())
}

//! Commands that go on until something happens.

use anyhow::Result;

use crate::manifests::{ASSIGN, GROUP, WEB};
use crate::servers::people;

#[tokio::test]
async fn get_watches_a_service_through_its_life() -> Result<()> {
    for person in people("watch").await? {
        person.writes("web.yaml", WEB)?;
        person.shell("kubectl create -f web.yaml").await?;
        let mut watch = person.starts("kubectl get service -w --output-watch-events")?;
        watch.prints("EVENT  NAME  TYPE  CLUSTER-IP  EXTERNAL-IP  PORT(S)  AGE").await?;
        let row = "web  LoadBalancer  CLUSTER-IP  ADDRESS  80:PORT/TCP,443:PORT/TCP  AGE";
        watch.prints(&format!("ADDED  {}", row.replace("ADDRESS", "<pending>"))).await?;
        person.shell(ASSIGN).await?;
        watch.prints(&format!("MODIFIED  {}", row.replace("ADDRESS", "192.0.2.100"))).await?;
        person.types("kubectl delete svc web", r#"service "web" deleted from watch namespace"#).await?;
        watch.prints(&format!("DELETED  {}", row.replace("ADDRESS", "192.0.2.100"))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn get_watches_a_group_through_its_life() -> Result<()> {
    for person in people("watch-groups").await? {
        let mut watch = person.starts("kubectl get sg -w --output-watch-events")?;
        person.writes("group.yaml", GROUP)?;
        person.types("kubectl create -f group.yaml", "servicegroup.purelb.io/remotedual created").await?;
        watch.prints("EVENT  NAME  ANNOUNCE  IPAM  ALLOCATED-V4  ALLOCATED-V6  AGE").await?;
        watch.prints("ADDED  remotedual  AGE").await?;
        let status = r#"{"status":{"announce":"remote","ipam":"internal","allocatedIPv4":1}}"#;
        let patch = format!("kubectl patch sg remotedual --subresource=status --type=merge -p '{status}'");
        person.types(&patch, "servicegroup.purelb.io/remotedual patched").await?;
        watch.prints("MODIFIED  remotedual  remote  internal  1  0  AGE").await?;
        let deleted = r#"servicegroup.purelb.io "remotedual" deleted from watch-groups namespace"#;
        person.types("kubectl delete sg remotedual", deleted).await?;
        watch.prints("DELETED  remotedual  remote  internal  1  0  AGE").await?;
    }
    Ok(())
}

#[tokio::test]
async fn wait_returns_when_the_address_is_there() -> Result<()> {
    for person in people("wait").await? {
        person.writes("web.yaml", WEB)?;
        person.shell("kubectl create -f web.yaml").await?;
        let condition = "purelb.io/AddressAssigned";
        let mut waiting = person.starts(&format!("kubectl wait svc/web --for=condition={condition} --timeout=30s"))?;
        let patch = r#"kubectl patch service web --subresource=status --type=merge -p '{"status":{"conditions":[
            {"type":"purelb.io/AddressAssigned","status":"True","reason":"Assigned","message":"",
             "lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'"#;
        person.types(patch, "service/web patched").await?;
        waiting.prints("service/web condition met").await?;
        person.shell(ASSIGN).await?;
        let path = "{.status.loadBalancer.ingress[0].ip}=192.0.2.100";
        person.types(&format!("kubectl wait svc/web --for=jsonpath='{path}'"), "service/web condition met").await?;
        let late = "error: timed out waiting for the condition on services/web";
        person.types("kubectl wait svc/web --for=condition=Nope --timeout=100ms", late).await?;
    }
    Ok(())
}

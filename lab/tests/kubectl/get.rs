//! `kubectl get`: the tables.

use anyhow::Result;

use crate::manifests::{ASSIGN, GROUP, WEB, kinds};
use crate::servers::people;

#[tokio::test]
async fn get_shows_tables_of_services() -> Result<()> {
    for person in people("get-services").await? {
        person.writes("web.yaml", WEB)?;
        person.types("kubectl create -f web.yaml", "service/web created").await?;
        person
            .types(
                "kubectl get services",
                "
NAME  TYPE  CLUSTER-IP  EXTERNAL-IP  PORT(S)  AGE
web  LoadBalancer  CLUSTER-IP  <pending>  80:PORT/TCP,443:PORT/TCP  AGE",
            )
            .await?;
        person.types(ASSIGN, "service/web patched").await?;
        person
            .types(
                "kubectl get svc web -o wide --show-labels",
                "
NAME  TYPE  CLUSTER-IP  EXTERNAL-IP  PORT(S)  AGE  SELECTOR  LABELS
web  LoadBalancer  CLUSTER-IP  192.0.2.100  80:PORT/TCP,443:PORT/TCP  AGE  app=web  <none>",
            )
            .await?;
        person.types("kubectl get svc -o name", "service/web").await?;
        let path = "{.items[*].status.loadBalancer.ingress[*].ip}";
        person.types(&format!("kubectl get svc -o jsonpath='{path}'"), "192.0.2.100").await?;
        person.types("kubectl get svc nope", r#"Error from server (NotFound): services "nope" not found"#).await?;
        person.types("kubectl get secrets", "No resources found in get-services namespace.").await?;
    }
    Ok(())
}

#[tokio::test]
async fn get_shows_the_printer_columns_of_our_kinds() -> Result<()> {
    for person in people("get-groups").await? {
        person.writes("group.yaml", GROUP)?;
        person.types("kubectl create -f group.yaml", "servicegroup.purelb.io/remotedual created").await?;
        person
            .types(
                "kubectl get sg -n get-groups",
                "
NAME  ANNOUNCE  IPAM  ALLOCATED-V4  ALLOCATED-V6  AGE
remotedual  AGE",
            )
            .await?;
        let status = r#"{"status":{"announce":"remote","ipam":"internal","allocatedIPv4":1,"availableIPv4":99}}"#;
        let patch = format!("kubectl patch sg remotedual --subresource=status --type=merge -p '{status}'");
        person.types(&patch, "servicegroup.purelb.io/remotedual patched").await?;
        person
            .types(
                "kubectl get servicegroups.v1.purelb.io -o wide",
                r#"
NAME  ANNOUNCE  IPAM  ALLOCATED-V4  ALLOCATED-V6  ADDRESSES  AVAILABLE-V4  AVAILABLE-V6  NAMESPACES  ENFORCED  BOUND  AGE
remotedual  remote  internal  1  0  99  ["shop","blog"]  false  AGE"#,
            )
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn get_shows_the_usual_columns_of_every_other_kind() -> Result<()> {
    for person in people("get-kinds").await? {
        person.writes("kinds.yaml", &kinds("get-kinds"))?;
        let created = person.shell("kubectl create -f kinds.yaml").await?;
        assert!(created.ends_with("created"), "{created}");
        for (command, shown) in [
            ("kubectl get configmap settings", "NAME  DATA  AGE\nsettings  2  AGE"),
            ("kubectl get secret keys", "NAME  TYPE  DATA  AGE\nkeys  Opaque  1  AGE"),
            ("kubectl get lease purelb-node-a", "NAME  HOLDER  AGE\npurelb-node-a  node-a  AGE"),
            (
                "kubectl get endpointslices",
                "NAME  ADDRESSTYPE  PORTS  ENDPOINTS  AGE\n\
                 web-1  IPv4  8080  10.1.0.1,10.1.0.2,10.1.0.3 + 1 more...  AGE",
            ),
            (
                "kubectl get pod web-0 -o wide",
                "NAME  READY  STATUS  RESTARTS  AGE  IP  NODE  NOMINATED NODE  READINESS GATES\n\
                 web-0  0/1  Pending  0  AGE  <none>  node-a  <none>  <none>",
            ),
            (
                "kubectl get daemonset lbnodeagent -o wide",
                "NAME  DESIRED  CURRENT  READY  UP-TO-DATE  AVAILABLE  NODE SELECTOR  AGE  CONTAINERS  IMAGES  SELECTOR\n\
                 lbnodeagent  0  0  0  0  0  kubernetes.io/os=linux  AGE  agent  purelb:1  app=purelb",
            ),
            (
                "kubectl get deployments -o wide",
                "NAME  READY  UP-TO-DATE  AVAILABLE  AGE  CONTAINERS  IMAGES  SELECTOR\n\
                 allocator  0/1  0  0  AGE  allocator  purelb:1  app=allocator",
            ),
            (
                "kubectl get events",
                "LAST SEEN  TYPE  REASON  OBJECT  MESSAGE\nAGE  Normal  AddressAssigned  service/web  Assigned 192.0.2.100",
            ),
            ("kubectl get namespace get-kinds", "NAME  STATUS  AGE\nget-kinds  Active  AGE"),
            ("kubectl get crd servicegroups.purelb.io", "NAME  CREATED AT\nservicegroups.purelb.io  TIME"),
            ("kubectl get endpointslices -o name", "endpointslice.discovery.k8s.io/web-1"),
        ] {
            person.types(command, shown).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn nodes_show_their_state_roles_and_addresses() -> Result<()> {
    for person in people("get-nodes").await? {
        let node = "
apiVersion: v1
kind: Node
metadata:
  name: get-nodes
  labels: {node-role.kubernetes.io/edge: ''}
";
        person.writes("node.yaml", node)?;
        person.types("kubectl create -f node.yaml", "node/get-nodes created").await?;
        person
            .types("kubectl get node get-nodes", "NAME  STATUS  ROLES  AGE  VERSION\nget-nodes  Unknown  edge  AGE")
            .await?;
        let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}],
            "addresses":[{"type":"InternalIP","address":"198.51.100.1"}],"nodeInfo":{"kubeletVersion":"v1.36.3"}}}"#;
        let patch = format!("kubectl patch node get-nodes --subresource=status -p '{status}'");
        person.types(&patch, "node/get-nodes patched").await?;
        person.types("kubectl cordon get-nodes", "node/get-nodes cordoned").await?;
        let taint = "kubectl taint node get-nodes node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
        person.types(taint, "node/get-nodes tainted").await?;
        person
            .types(
                "kubectl get node get-nodes -o wide",
                "
NAME  STATUS  ROLES  AGE  VERSION  INTERNAL-IP  EXTERNAL-IP  OS-IMAGE  KERNEL-VERSION  CONTAINER-RUNTIME
get-nodes  Ready,SchedulingDisabled  edge  AGE  v1.36.3  198.51.100.1  <none>  <unknown>  <unknown>  <unknown>",
            )
            .await?;
        let keys = "kubectl get node get-nodes -o jsonpath='{range .spec.taints[*]}{.key}{\" \"}{end}'";
        let taints = person.shell(keys).await?;
        assert!(taints.contains("node.kubernetes.io/out-of-service"), "{taints}");
        person.types("kubectl delete node get-nodes", r#"node "get-nodes" deleted"#).await?;
    }
    Ok(())
}

//! Commands that change something, and the sentences of those that are refused.

use anyhow::Result;

use crate::manifests::{ASSIGN, GROUP, WEB};
use crate::servers::people;

#[tokio::test]
async fn apply_creates_then_merges_and_leaves_the_fields_of_others_alone() -> Result<()> {
    for person in people("apply").await? {
        person.writes("web.yaml", WEB)?;
        person.types("kubectl apply -f web.yaml", "service/web created").await?;
        person.types("kubectl apply -f web.yaml", "service/web unchanged").await?;
        person.shell("kubectl annotate svc web purelb.io/allocated-by=PureLB").await?;
        person.shell(ASSIGN).await?;
        // A port less, and a label more.
        let changed = WEB
            .replace("  - {name: https, port: 443}\n", "")
            .replace("  name: web\n", "  name: web\n  labels: {a: b}\n");
        person.writes("web.yaml", &changed)?;
        person.types("kubectl diff -f web.yaml >/dev/null; echo $?", "1").await?;
        person.types("kubectl apply -f web.yaml", "service/web configured").await?;
        person
            .types(
                "kubectl get svc web --show-labels",
                "
NAME  TYPE  CLUSTER-IP  EXTERNAL-IP  PORT(S)  AGE  LABELS
web  LoadBalancer  CLUSTER-IP  192.0.2.100  80:PORT/TCP  AGE  a=b",
            )
            .await?;
        let kept = "kubectl get svc web -o jsonpath='{.metadata.annotations.purelb\\.io/allocated-by}'";
        person.types(kept, "PureLB").await?;

        person.writes("group.yaml", GROUP)?;
        person.types("kubectl apply -f group.yaml", "servicegroup.purelb.io/remotedual created").await?;
        person.writes("group.yaml", &GROUP.replace("199", "150"))?;
        person.types("kubectl apply -f group.yaml", "servicegroup.purelb.io/remotedual configured").await?;
        let pool = "kubectl get sg remotedual -o jsonpath='{.spec.remote.v4pools[0].pool}'";
        person.types(pool, "192.0.2.100-192.0.2.150").await?;
    }
    Ok(())
}

#[tokio::test]
async fn mistakes_are_refused_with_a_sentence() -> Result<()> {
    for person in people("mistakes").await? {
        person.writes("typo.yaml", &WEB.replace("selector:", "selektor:"))?;
        let refused = person.shell("kubectl apply -f typo.yaml").await?;
        assert!(refused.contains(r#"strict decoding error: unknown field "spec.selektor""#), "{refused}");
        person.writes("typo.yaml", &GROUP.replace("v4pools:", "v4pols:"))?;
        let refused = person.shell("kubectl apply -f typo.yaml").await?;
        assert!(refused.contains(r#"strict decoding error: unknown field "spec.remote.v4pols""#), "{refused}");
        person.writes("port.yaml", &WEB.replace("port: 443", "port: 99999"))?;
        let refused = person.shell("kubectl create -f port.yaml").await?;
        let sentence = "spec.ports[1].port: Invalid value: 99999: must be between 1 and 65535, inclusive";
        assert!(refused.starts_with("The Service \"web\" is invalid:") && refused.contains(sentence), "{refused}");
        person.writes("web.yaml", WEB)?;
        person.types("kubectl create -f web.yaml", "service/web created").await?;
        let twice =
            r#"Error from server (AlreadyExists): error when creating "web.yaml": services "web" already exists"#;
        person.types("kubectl create -f web.yaml", twice).await?;
    }
    Ok(())
}

#[tokio::test]
async fn create_annotate_label_patch_and_delete_say_what_they_did() -> Result<()> {
    for person in people("verbs").await? {
        for (command, shown) in [
            ("kubectl create service loadbalancer web --tcp=80:8080", "service/web created"),
            ("kubectl create configmap settings --from-literal=a=b", "configmap/settings created"),
            ("kubectl create secret generic keys --from-literal=a=b", "secret/keys created"),
            ("kubectl get secret keys -o jsonpath='{.data.a}'", "Yg=="),
            ("kubectl annotate svc web purelb.io/service-group=remotedual", "service/web annotated"),
            (
                "kubectl annotate svc web purelb.io/service-group=other",
                "error: --overwrite is false but found the following declared annotation(s): 'purelb.io/service-group' \
                 already has a value (remotedual)",
            ),
            ("kubectl annotate svc web purelb.io/service-group-", "service/web annotated"),
            ("kubectl label svc web tier=front", "service/web labeled"),
            ("kubectl get svc -l tier=front -o name", "service/web"),
            (r#"kubectl patch svc web -p '{"spec":{"externalTrafficPolicy":"Local"}}'"#, "service/web patched"),
            (
                r#"kubectl patch svc web --type=json -p '[{"op":"remove","path":"/metadata/labels/tier"}]'"#,
                "service/web patched",
            ),
            (
                "kubectl get svc web -o jsonpath='{.spec.externalTrafficPolicy} {.metadata.labels}'",
                r#"Local {"app":"web"}"#,
            ),
            ("kubectl get svc web -o yaml | kubectl replace -f -", "service/web replaced"),
            ("EDITOR='sed -i s/8080/8081/' kubectl edit svc web", "service/web edited"),
            ("kubectl get svc web -o jsonpath='{.spec.ports[0].targetPort}'", "8081"),
            ("kubectl create deployment echo --image=echo:1 --port=8080", "deployment.apps/echo created"),
            ("kubectl get deployment echo", "NAME  READY  UP-TO-DATE  AVAILABLE  AGE\necho  0/1  0  0  AGE"),
            (
                "kubectl get svc,deploy,cm --sort-by=.metadata.name -o name | grep -v kube-root",
                "deployment.apps/echo\nconfigmap/settings\nservice/web",
            ),
            ("kubectl get secrets --sort-by=.metadata.name", "NAME  TYPE  DATA  AGE\nkeys  Opaque  1  AGE"),
            (
                "kubectl delete svc web --dry-run=server",
                "service \"web\" deleted from verbs namespace (server dry run)",
            ),
            (
                "kubectl delete svc/web configmap/settings",
                "service \"web\" deleted from verbs namespace\nconfigmap \"settings\" deleted from verbs namespace",
            ),
            ("kubectl delete svc web", r#"Error from server (NotFound): services "web" not found"#),
            ("kubectl delete svc web --ignore-not-found", ""),
            ("kubectl delete secrets --all", "secret \"keys\" deleted from verbs namespace"),
        ] {
            person.types(command, shown).await?;
        }
    }
    Ok(())
}

/// A real server needs a controller for this, which the lab does not run.
#[tokio::test]
async fn a_namespace_is_deleted_with_all_that_is_in_it() -> Result<()> {
    let [lite, _] = people("gone").await?;
    lite.shell("kubectl create configmap settings --from-literal=a=b").await?;
    lite.types("kubectl delete namespace gone", r#"namespace "gone" deleted"#).await?;
    lite.types("kubectl get configmaps", "No resources found in gone namespace.").await?;
    Ok(())
}

#[tokio::test]
async fn server_side_apply_is_refused_with_a_way_out() -> Result<()> {
    let [lite, _] = people("serverside").await?;
    lite.writes("web.yaml", WEB)?;
    let refused = lite.shell("kubectl apply --server-side -f web.yaml").await?;
    assert!(refused.contains("server-side apply is not served here"), "{refused}");
    Ok(())
}

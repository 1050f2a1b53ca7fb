//! What is written wrongly, and what its author is told: by kubectl at once, or by the object's condition and Events.

use anyhow::{Context, Result, bail, ensure};
use purelb_lab::Cluster;
use purelb_lab::tested::seen;
use serde_json::{Value, json};

use crate::purelb::{HOME, assigned, group, group_v2, installed, service};
use crate::site::{SOON, room};

/// What kubectl says to somebody who applies an object that the API server refuses.
pub async fn refused(cluster: &Cluster, object: &Value) -> Result<String> {
    match cluster.apply(object).await {
        Err(error) => Ok(format!("{error:#}").lines().collect::<Vec<_>>().join(" ")),
        Ok(()) => bail!("it was accepted: {object}"),
    }
}

/// Waits until a condition of an object has this reason, and returns its sentence.
pub async fn told(cluster: &Cluster, object: &[&str], reason: &str) -> Result<String> {
    let find = async |cluster: &Cluster| -> Result<String> {
        let status = cluster.object(object).await?["status"].take();
        let mut all = status["conditions"].as_array().into_iter().flatten();
        let found = all.find(|condition| condition["reason"] == reason);
        let found = found.with_context(|| format!("{} says {}", object.join(" "), status["conditions"]))?;
        // While a Service waits, its condition also says who leads; its Event does not.
        let sentence = found["message"].as_str().and_then(|message| message.split(" (allocator term ").next());
        Ok(sentence.unwrap_or_default().to_owned())
    };
    let what = format!("{} says {reason}", object.join(" "));
    cluster.until(&what, SOON, async |cluster| Ok(!find(cluster).await?.is_empty())).await?;
    find(cluster).await
}

/// Waits until `kubectl describe` shows all these words.
pub async fn described(cluster: &Cluster, object: &[&str], words: &[&str]) -> Result<()> {
    let shows = async |cluster: &Cluster| {
        let text = cluster.kubectl(&[&["describe"], object].concat()).await?;
        let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
        ensure!(missing.is_empty(), "missing: {missing:?}\n{text}");
        Ok(true)
    };
    cluster.until(&format!("kubectl describes {}", object.join(" ")), SOON, shows).await
}

/// A mistake that the API server itself refuses: what it is, the object, and words of the answer.
pub type Refusal<'a> = (&'a str, Value, &'a str);

/// Applies objects that the API server must refuse with these words.
pub async fn all_refused(cluster: &Cluster, door: &str, refusals: &[Refusal<'_>]) -> Result<()> {
    for (mistake, object, words) in refusals {
        let answer = refused(cluster, object).await?;
        ensure!(answer.contains(words), "{mistake}: {answer}");
        seen("12", &format!("{door}: {mistake}, kubectl"), words_of(&answer));
    }
    Ok(())
}

/// The answer without our own words, and without the name of the file, which nobody will see again.
fn words_of(answer: &str) -> String {
    let answer = answer.split_once("failed: ").map_or(answer, |(_, answer)| answer).trim();
    match answer.split_once("error when creating \"") {
        Some((begin, rest)) => format!("{begin}{}", rest.split_once("\": ").map_or(rest, |(_, rest)| rest)),
        None => answer.to_owned(),
    }
}

fn pools(range: &str) -> Value {
    json!({"v4pools": [{"pool": range, "subnet": "203.0.113.128/28", "aggregation": "/32"}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_a_group_that_cannot_be_is_refused_by_kubectl() -> Result<()> {
    let story = "mistakes::a_manifest_of_a_group_that_cannot_be_is_refused_by_kubectl";
    let good = || pools("203.0.113.129-203.0.113.130");
    let mut both_ways = good();
    (both_ways["multiPool"], both_ways["balancePools"]) = (json!(true), json!(true));
    let mut typo = group_v2("typo", &json!({"remote": {"v4pool": "203.0.113.129"}}));
    typo["spec"]["remote"] = json!({"v4pols": good()["v4pools"]});
    let refusals = [
        (
            "a name with capitals, as on the page of the early documents",
            group("VirtualAddressRange", &json!({"local": good()})),
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters",
        ),
        ("a misspelt field", typo, "unknown field \"spec.remote.v4pols\""),
        (
            "two sources",
            group_v2("two", &json!({"remote": good(), "local": good()})),
            "exactly one of local, remote, or external must be specified",
        ),
        ("no source", group_v2("none", &json!({})), "exactly one of local, remote, or external must be specified"),
        ("remote in purelb.io/v1", group("early", &json!({"remote": good()})), "write the group as purelb.io/v2"),
        (
            "multiPool with balancePools",
            group_v2("both-ways", &json!({"remote": both_ways})),
            "multiPool and balancePools are mutually exclusive: set only one of them",
        ),
        (
            "enforceNamespaces without namespaces",
            group_v2("nobody", &json!({"remote": good(), "enforceNamespaces": true})),
            "enforceNamespaces requires a non-empty namespaces list",
        ),
    ];
    installed().await?.prove(story, async |cluster| all_refused(cluster, "ServiceGroup", &refusals).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_not_what_it_should_be_says_so_in_its_status_and_events() -> Result<()> {
    let story = "mistakes::a_group_that_is_not_what_it_should_be_says_so_in_its_status_and_events";
    let reversed = json!({"local": {"v4pools": [
        {"aggregation": "/32", "pool": "172.32.99.225-172.30.99.229", "subnet": "172.32.99.0/24"},
    ]}});
    installed()
        .await?
        .prove(story, async |cluster| {
            let elsewhere = "elsewhere";
            room(cluster, elsewhere).await?;
            cluster.apply(&group_v2("first", &json!({"remote": pools("203.0.113.129-203.0.113.135")}))).await?;
            told(cluster, &["sg", "-n", HOME, "first"], "Parsed").await?;
            let mut outside = group_v2("outside", &json!({"remote": pools("203.0.113.140")}));
            outside["metadata"]["namespace"] = json!(elsewhere);
            for (mistake, home, object, reason, event) in [
                (
                    "a range that runs backwards, as on the page of seed 000",
                    HOME,
                    group("backwards", &reversed),
                    "RangeReversed",
                    "ParseFailed",
                ),
                (
                    "a range outside its subnet",
                    HOME,
                    group_v2("astray", &json!({"remote": pools("203.0.114.1-203.0.114.9")})),
                    "RangeOutsideSubnet",
                    "ParseFailed",
                ),
                (
                    "addresses of another group",
                    HOME,
                    group_v2("second", &json!({"remote": pools("203.0.113.135-203.0.113.139")})),
                    "GroupsOverlap",
                    "ParseFailed",
                ),
                ("a namespace nobody reads", elsewhere, outside, "GroupOutOfScope", "ServiceGroupOutOfScope"),
            ] {
                cluster.apply(&object).await?;
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let sentence = told(cluster, &["sg", "-n", home, name], reason).await?;
                described(cluster, &["sg", "-n", home, name], &[event]).await?;
                seen("12", &format!("ServiceGroup: {mistake}, condition {reason}, Event {event}"), sentence);
                cluster.kubectl(&["delete", "sg", "-n", home, name]).await?;
            }
            Ok(())
        })
        .await
}

/// A Service with these annotations and nothing else to say.
fn annotated(room: &str, name: &str, annotations: &Value) -> Value {
    let mut object = service(room, name, "nothing", "", &["IPv4"]);
    let pairs = annotations.as_object().into_iter().flatten();
    let pairs: serde_json::Map<_, _> = pairs.map(|(key, value)| (format!("purelb.io/{key}"), value.clone())).collect();
    object["metadata"]["annotations"] = pairs.into();
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_that_cannot_be_followed_is_told_as_event_and_condition() -> Result<()> {
    let story = "mistakes::an_annotation_that_cannot_be_followed_is_told_as_event_and_condition";
    let range = json!({"v4pools": [{"pool": "203.0.113.145-203.0.113.150", "subnet": "203.0.113.144/28", "aggregation": "/32"}]});
    installed()
        .await?
        .prove(story, async |cluster| {
            let home = "annotations";
            room(cluster, home).await?;
            cluster.apply(&group_v2("annotated", &json!({"remote": range}))).await?;
            for (name, mistake, annotations, reason) in [
                ("unknown", "a group that does not exist", json!({"service-group": "nosuch"}), "UnknownPool"),
                ("no-address", "text that is no address", json!({"addresses": "203.0.113.300"}), "PinSyntax"),
                ("foreign", "an address that no group has", json!({"addresses": "8.8.8.8"}), "PinOutsideGroups"),
                (
                    "contradiction",
                    "multi-pool and sharing at once",
                    json!({"service-group": "annotated", "multi-pool": "true", "allow-shared-ip": "team"}),
                    "MultiPoolShared",
                ),
            ] {
                cluster.apply(&annotated(home, name, &annotations)).await?;
                is_told(cluster, home, name, mistake, reason).await?;
            }
            let mut six = annotated(home, "six", &json!({"service-group": "annotated"}));
            six["spec"]["ipFamilies"] = json!(["IPv6"]);
            cluster.apply(&six).await?;
            is_told(cluster, home, "six", "a family that the group has not", "FamilyNotServed").await?;
            // The mistake mended, the Service has its address.
            let mend =
                ["annotate", "service", "-n", home, "unknown", "purelb.io/service-group=annotated", "--overwrite"];
            cluster.kubectl(&mend).await?;
            assert_eq!(assigned(cluster, home, "unknown").await?, ["203.0.113.145"]);
            Ok(())
        })
        .await
}

/// The Service waits, and both its condition and its Events say why.
async fn is_told(cluster: &Cluster, home: &str, name: &str, mistake: &str, reason: &str) -> Result<()> {
    let object = ["service", "-n", home, name];
    let sentence = told(cluster, &object, reason).await?;
    described(cluster, &object, &["AllocationFailed", &sentence]).await?;
    let ingress =
        cluster.kubectl(&[&["get"], &object[..], &["-o", "jsonpath={.status.loadBalancer}"]].concat()).await?;
    ensure!(ingress == "{}", "it has {ingress}");
    seen("12", &format!("Service: {mistake}, condition {reason}, Event AllocationFailed"), sentence);
    Ok(())
}

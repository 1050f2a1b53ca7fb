//! Mistakes of an operator: each is one clear sentence, and no password is ever said.

use anyhow::{Context, Result};
use purelb_lab::router::fabric::{HOME, NODES};
use purelb_lab::stories::PatchType;
use serde_json::json;

use crate::configured::neighbor;
use crate::story::Story;

const RIGHT: &str = "correct-horse-battery";
const WRONG: &str = "staple-donkey-charger";

/// One wrong password, one wrong AS, one family that the router does not speak, and one router that is not there.
#[tokio::test]
async fn each_mistake_is_one_clear_sentence_and_no_password_is_said() -> Result<()> {
    let mut story = Story::begin("each_mistake_is_one_clear_sentence_and_no_password_is_said").await?;
    story.fabric_mut().gates[0].change(|neighbour| neighbour.password = Some(RIGHT.into()))?;
    let secrets = format!("/api/v1/namespaces/{HOME}/secrets");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bgp"}, "stringData": {"password": WRONG},
    });
    story.ground.create(&secrets, &secret).await?;
    let [bird, frr, gobgp] = story.gates() else { unreachable!("there are three routers") };
    let (guarded, other_as, other_family) = (bird.address("."), frr.address("."), gobgp.address("."));
    let nobody = purelb_lab::router::fabric::v4(99);
    let mut all = [guarded, other_as, other_family, nobody].map(neighbor);
    all[0]["config"]["authPasswordSecretRef"] = json!({"name": "bgp", "key": "password"});
    all[1]["config"]["peerAsn"] = json!(64999);
    all[2]["afiSafis"] = json!([{"family": "ipv6-unicast", "enabled": true}]);
    story.configure(all.into()).await?;
    let expected = [
        (guarded, "the passwords of the two sides may differ"),
        (other_as, "its AS is 64513, the configuration says 64999"),
        (other_family, "no address family that is configured here"),
        (nobody, "192.168.7.99"),
    ];
    for (router, words) in expected {
        for node in NODES {
            story.says(node, router, words).await?;
        }
        story.event(words).await?;
        logged(&story, words).await?;
    }
    // A new password in the Secret is enough.
    let patch = json!({"stringData": {"password": RIGHT}});
    story.ground.patch(&format!("{secrets}/bgp"), PatchType::Merge, &patch).await?;
    let up = async |story: &Story| Ok(story.reported("node-a", guarded).await?["state"] == "Established");
    story.until("the session with the new password is up", up).await?;
    nothing_said(&story, &[RIGHT, WRONG]).await?;
    story.ground.delete(&format!("{secrets}/bgp")).await?;
    story.fabric_mut().gates[0].change(|_| ())?;
    story.close()
}

/// Waits until the log of every agent has these words.
async fn logged(story: &Story, words: &str) -> Result<()> {
    for node in story.nodes() {
        let agent = node.agent.as_ref().context("the agent runs")?;
        let said = async |_: &Story| Ok(agent.log().contains(words));
        story.until(&format!("the log on {} says {words:?}", node.name()), said).await?;
    }
    Ok(())
}

/// Looks for the passwords wherever an operator, or a thief, might.
pub async fn nothing_said(story: &Story, passwords: &[&str]) -> Result<()> {
    let mut places = vec![("the allocator's log".to_owned(), story.allocator_log())];
    for path in ["/api/v1/events", "/apis/bgp.purelb.io/v1/bgpnodestatuses", "/apis/bgp.purelb.io/v1/configs"] {
        places.push((path.to_owned(), story.ground.get(path).await?.to_string()));
    }
    for node in story.nodes() {
        let agent = node.agent.as_ref().context("the agent runs")?;
        places.push((format!("the log on {}", node.name()), agent.log()));
        places.push((format!("the metrics on {}", node.name()), node.ask("/metrics")?));
        places.push((format!("the state on {}", node.name()), crate::story::debug_state(agent)?));
    }
    for (place, text) in places {
        assert!(!text.is_empty(), "there is nothing to read in {place}");
        assert!(!passwords.iter().any(|password| text.contains(password)), "{place} says a password");
    }
    Ok(())
}

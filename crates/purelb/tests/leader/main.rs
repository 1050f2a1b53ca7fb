//! Several allocators and one Lease: exactly one leads, whatever happens to it, and it stops before the next one starts.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use purelb::cluster::leader::{LEASE_NAME, Timing};
use purelb_kubelite::Kubelite;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::town::{Chronicle, Replica, Weather, start};

mod chaos;
mod town;

fn leases(server: &Kubelite) -> Api<Lease> {
    Api::namespaced(server.client(), "default")
}

async fn three(server: &Kubelite, chronicle: &Chronicle) -> Vec<Replica> {
    let replicas: Vec<_> = ["a", "b", "c"].into_iter().map(|name| start(name, server, chronicle)).collect();
    sleep(Duration::from_secs(1)).await;
    replicas
}

/// The one replica that leads; fails when there is none or more than one.
fn leader(replicas: &[Replica]) -> usize {
    let leading: Vec<usize> = (0..replicas.len()).filter(|&index| replicas[index].term().is_some()).collect();
    assert_eq!(leading.len(), 1, "leading: {leading:?}");
    leading[0]
}

#[tokio::test(start_paused = true)]
async fn exactly_one_of_three_leads_and_stays() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(leader(&replicas), first);
    assert_eq!(chronicle.check().len(), 1, "nobody else led in ten quiet minutes");
    let lease = leases(&server).get(LEASE_NAME).await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity, Some(replicas[first].identity.clone()));
    assert_eq!(lease.lease_transitions.map(i64::from), replicas[first].term().map(|term| i64::try_from(term).unwrap()));
    assert_eq!(lease.lease_duration_seconds, Some(15));
}

#[rstest::rstest]
#[case::refused(Weather::Refused)]
#[case::silent(Weather::Silent)]
#[case::deaf(Weather::Deaf)]
#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_from_the_api_stops_before_another_starts(#[case] weather: Weather) {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    replicas[first].weather.send_replace(weather);
    sleep(Duration::from_secs(60)).await;
    let leading = replicas.iter().filter(|replica| replica.term().is_some()).count();
    assert_eq!(leading, 1, "one of the others leads");
    assert_eq!(replicas[first].term(), None);
    replicas[first].weather.send_replace(Weather::Fair);
    sleep(Duration::from_secs(60)).await;
    leader(&replicas);
    let reigns = chronicle.check();
    assert!(reigns[1].from - reigns[0].to >= Timing::default().margin - Duration::from_millis(1), "{reigns:?}");
}

#[tokio::test(start_paused = true)]
async fn the_right_to_write_counts_from_the_question_and_not_from_the_answer() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let mut replica = start("a", &server, &chronicle);
    replica.weather.send_replace(Weather::Slow(Duration::from_secs(2)));
    let Timing { lease, margin, .. } = Timing::default();
    let remaining = replica.remaining().await;
    assert!(remaining <= lease - margin - Duration::from_secs(4), "{remaining:?} after an answer of four seconds");
}

#[tokio::test(start_paused = true)]
async fn a_leader_stopped_and_continued_finds_itself_without_the_right_to_write() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    replicas[first].frozen.send_replace(true);
    sleep(Duration::from_secs(30)).await;
    assert_ne!(leader(&replicas), first, "a successor is there, and the frozen one knows its time is over");
    replicas[first].frozen.send_replace(false);
    sleep(Duration::from_secs(30)).await;
    assert_ne!(leader(&replicas), first);
    assert_eq!(chronicle.check().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_goes_hands_over_at_once() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let mut replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    let before = Instant::now();
    replicas.remove(first).stop().await;
    sleep(Duration::from_millis(100)).await;
    leader(&replicas);
    let reigns = chronicle.check();
    assert!(reigns[1].from - before < Duration::from_millis(100), "{reigns:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_goes_while_the_api_is_away_goes_within_a_second() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replica = start("a", &server, &chronicle);
    sleep(Duration::from_secs(1)).await;
    assert!(replica.term().is_some());
    replica.weather.send_replace(Weather::Silent);
    let before = Instant::now();
    replica.stop().await;
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_deleted_behind_our_back_is_written_again_by_its_leader() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    for _ in 0..3 {
        leases(&server).delete(LEASE_NAME, &DeleteParams::default()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        let lease = leases(&server).get(LEASE_NAME).await.unwrap().spec.unwrap();
        assert_eq!(lease.holder_identity.as_ref(), Some(&replicas[first].identity));
    }
    assert_eq!(leader(&replicas), first);
    assert_eq!(chronicle.check().len(), 1, "the leadership went on");
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_deleted_lease_before_its_holder_has_stopped() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    replicas[first].weather.send_replace(Weather::Refused);
    leases(&server).delete(LEASE_NAME, &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_ne!(leader(&replicas), first);
    assert_eq!(chronicle.check().len(), 2, "and terms go on rising");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_conflicts_makes_no_hot_loop() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    for replica in &replicas {
        replica.weather.send_replace(Weather::Meddled);
    }
    let before: usize = replicas.iter().map(Replica::requests).sum();
    sleep(Duration::from_secs(60)).await;
    assert!(replicas.iter().all(|replica| replica.term().is_none()), "no write has succeeded for a minute");
    let requests = replicas.iter().map(Replica::requests).sum::<usize>() - before;
    // Three candidates, each with at most two writes a second, and each meddling seen by all three.
    assert!(requests < 60 * 3 * 2 * (2 + 3), "{requests} requests in a minute");
    for replica in &replicas {
        replica.weather.send_replace(Weather::Fair);
    }
    sleep(Duration::from_secs(5)).await;
    leader(&replicas);
    chronicle.check();
}

#[tokio::test(start_paused = true)]
async fn a_foreign_edit_of_the_lease_does_not_end_a_leadership() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    for round in 0..20 {
        let label = json!({"metadata": {"labels": {"round": round.to_string()}}});
        leases(&server).patch(LEASE_NAME, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
        sleep(Duration::from_millis(1_700)).await;
    }
    assert_eq!(leader(&replicas), first);
    assert_eq!(chronicle.check().len(), 1);
    let lease = leases(&server).get(LEASE_NAME).await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap()["round"], "19", "what others wrote there is kept");
}

#[tokio::test(start_paused = true)]
async fn a_leader_overruled_by_hand_steps_down_at_once() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let replicas = three(&server, &chronicle).await;
    let first = leader(&replicas);
    let other = json!({"spec": {"holderIdentity": "somebody-else"}});
    leases(&server).patch(LEASE_NAME, &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    sleep(Duration::from_millis(10)).await;
    assert_eq!(replicas[first].term(), None);
    sleep(Duration::from_secs(14)).await;
    assert!(replicas.iter().all(|replica| replica.term().is_none()), "a stranger's lease is respected");
    sleep(Duration::from_secs(5)).await;
    leader(&replicas);
    chronicle.check();
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_an_earlier_day_is_judged_by_what_we_see_and_not_by_its_date() {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let text = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE_NAME},
        "spec": {"holderIdentity": "gone", "leaseDurationSeconds": 15, "leaseTransitions": 41,
                 "acquireTime": "2020-01-01T00:00:00.000000Z", "renewTime": "2020-01-01T00:00:00.000000Z"},
    });
    let lease: Lease = serde_json::from_value(text).unwrap();
    leases(&server).create(&kube::api::PostParams::default(), &lease).await.unwrap();
    let replicas = three(&server, &chronicle).await;
    sleep(Duration::from_secs(13)).await;
    assert!(replicas.iter().all(|replica| replica.term().is_none()), "its holder's clock may be years behind");
    sleep(Duration::from_secs(3)).await;
    assert_eq!(replicas[leader(&replicas)].term(), Some(42));
}

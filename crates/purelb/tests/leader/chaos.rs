//! Random trouble for three replicas, replayable by its seed: no two ever have the right to write at the same time.

use std::time::Duration;

use jiff::SignedDuration;
use kube::api::DeleteParams;
use purelb::cluster::leader::LEASE_NAME;
use purelb_kubelite::Kubelite;
use tokio::time::sleep;

use crate::town::{Chronicle, Replica, Weather, start_with_clock};
use crate::{leader, leases};

/// A small generator (splitmix64): the same story for the same seed, everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.roll(most))
    }
}

fn weather(dice: &mut Dice) -> Weather {
    match dice.roll(8) {
        0 => Weather::Refused,
        1 => Weather::Silent,
        2 => Weather::Deaf,
        3 => Weather::Slow(dice.millis(6_000)),
        4 => Weather::Meddled,
        _ => Weather::Fair,
    }
}

/// A replica with a clock that is right, or wrong by up to a day.
fn replica(server: &Kubelite, chronicle: &Chronicle, dice: &mut Dice, right: bool) -> Replica {
    let wrong = if right { 0 } else { dice.roll(172_800).cast_signed() - 86_400 };
    start_with_clock("replica", server, chronicle, SignedDuration::from_secs(wrong))
}

/// One mishap. No version protects the creation of an object: a replica that starts after the lease was deleted cannot
/// know that anybody leads, nor can one that is stopped in the middle of creating it. So a story has either restarts and
/// stops, with all clocks wrong, or deletions.
async fn mishap(server: &Kubelite, chronicle: &Chronicle, replicas: &mut [Replica], dice: &mut Dice, restarts: bool) {
    let index = dice.roll(replicas.len() as u64) as usize;
    match dice.roll(6) {
        0..4 if !restarts => {
            replicas[index].weather.send_replace(weather(dice));
        }
        0 | 1 => {
            replicas[index].weather.send_replace(weather(dice));
        }
        2 | 3 => {
            let frozen = *replicas[index].frozen.borrow();
            replicas[index].frozen.send_replace(!frozen);
        }
        _ if restarts => {
            let old = std::mem::replace(&mut replicas[index], replica(server, chronicle, dice, false));
            if dice.roll(2) == 0 {
                old.kill();
            } else {
                old.frozen.send_replace(false);
                old.stop().await;
            }
        }
        _ => drop(leases(server).delete(LEASE_NAME, &DeleteParams::default()).await),
    }
}

async fn story(seed: u64) -> usize {
    let (server, chronicle) = (Kubelite::new(), Chronicle::default());
    let dice = &mut Dice(seed);
    let restarts = seed.is_multiple_of(2);
    let mut replicas: Vec<_> = (0..3).map(|_| replica(&server, &chronicle, dice, !restarts)).collect();
    sleep(Duration::from_secs(1)).await;
    for _ in 0..60 {
        mishap(&server, &chronicle, &mut replicas, dice, restarts).await;
        sleep(dice.millis(12_000)).await;
    }
    for replica in &replicas {
        replica.weather.send_replace(Weather::Fair);
        replica.frozen.send_replace(false);
    }
    sleep(Duration::from_secs(60)).await;
    leader(&replicas);
    chronicle.check().len()
}

#[test]
fn whatever_happens_there_are_never_two_leaders_and_in_the_end_there_is_one() {
    let mut reigns = 0;
    for seed in 0..40 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        eprintln!("seed {seed}");
        reigns += runtime.block_on(story(seed));
    }
    assert!(reigns > 200, "only {reigns} leaderships: the stories are too quiet to prove anything");
}

//! A speaker that cannot be started, and one that dies: neither takes the agent with it.

use std::net::Ipv4Addr;

use purelb_bgp::{Global, Peer};
use tokio::time::timeout;

use super::*;

fn wish() -> Wish {
    let peer = Peer { admin_down: true, ..Peer::new(Ipv4Addr::new(192, 0, 2, 254).into(), 64513) };
    let global = Global::new(64512, Ipv4Addr::new(192, 0, 2, 1));
    Wish { global, peers: vec![peer], routes: Arc::default(), complete: true }
}

fn say(voice: &mut Voice) {
    voice.speak(Speak::Wish { wish: Arc::new(wish()), version: 7 });
}

/// Waits for news of the peer, which only a speaker that was told the wish has.
async fn heard_of_the_peer(voice: &mut Voice) {
    while voice.next().await.peers.is_empty() {}
}

#[tokio::test(start_paused = true)]
async fn a_speaker_that_has_died_is_reported_once_and_started_again_after_a_pause() {
    let mut voice = Voice::new();
    say(&mut voice);
    heard_of_the_peer(&mut voice).await;
    // What a thread leaves that has ended: nobody reports any more.
    voice.speaker.as_mut().unwrap().reports = watch::channel(Report::default()).1;
    let begun = Instant::now();
    let news = loop {
        let news = voice.next().await;
        if news.deaf.is_some() {
            break news;
        }
    };
    assert!(news.deaf.unwrap().contains("has died") && news.peers.is_empty() && !voice.is_speaking());
    assert!(timeout(AGAIN / 2, voice.next()).await.is_err(), "the agent has time for other things");
    say(&mut voice);
    assert!(!voice.is_speaking(), "a new wish does not shorten the pause");
    heard_of_the_peer(&mut voice).await;
    assert!(begun.elapsed() >= AGAIN && voice.trouble.is_none());
    voice.stop(Farewell::Silent).await;
}

#[tokio::test(start_paused = true)]
async fn a_speaker_that_could_not_be_started_is_tried_again_until_nobody_wants_it() {
    let mut voice = Voice { start: || Err(io::Error::other("no threads")), ..Voice::new() };
    say(&mut voice);
    for _ in 0..2 {
        let news = voice.next().await;
        assert!(news.deaf.unwrap().contains("no threads"));
    }
    voice.start = Speaker::start;
    heard_of_the_peer(&mut voice).await;
    voice.start = || Err(io::Error::other("no threads"));
    voice.stop(Farewell::Silent).await;
    say(&mut voice);
    voice.speak(Speak::Quiet);
    assert_eq!(voice.next().await.deaf, None);
    assert!(timeout(AGAIN * 2, voice.next()).await.is_err(), "nobody wants it any more");
}

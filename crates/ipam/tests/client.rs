//! What the client makes of sidecars, well-behaved and otherwise, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what it is made of")]

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use purelb_core::addr::Family;
use purelb_ipam::v1::allocate_request::Selector;
use purelb_ipam::v1::release_request::Target;
use purelb_ipam::v1::{FamilyRequest, StatsResponse};
use purelb_ipam::{DEADLINE, Ipam, IpamError, Size, Stats, Wanted};
use rstest::rstest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::time::Instant;
use tonic::Code;

use fake::{Answer, Fake, Question};

#[path = "client/fake.rs"]
mod fake;

const BOTH: Wanted = Wanted::Families(&[Family::V4, Family::V6]);
const V4: Wanted = Wanted::Families(&[Family::V4]);

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn texts(count: u8) -> Vec<String> {
    (1..=count).map(|last| format!("192.0.2.{last}")).collect()
}

#[tokio::test]
async fn ext_1_the_request_names_pool_and_service_and_the_answer_is_the_address() {
    let fake = Fake::always(Answer::ips(["192.0.2.7"]));
    let (_folder, ipam) = fake.start();

    let addrs = ipam.allocate("blue", "default/web", Some("team"), V4).await.unwrap();
    ipam.release("blue", "default/web", addr("192.0.2.7")).await.unwrap();
    ipam.release_all("blue", "default/web").await.unwrap();

    assert_eq!(addrs, [addr("192.0.2.7")]);
    let questions = fake.questions();
    let Question::Allocate(allocate) = &questions[0] else { panic!("{questions:?}") };
    assert_eq!((&*allocate.pool, &*allocate.service, &*allocate.sharing_key), ("blue", "default/web", "team"));
    assert_eq!(allocate.selector, Some(Selector::Families(FamilyRequest { want_ipv4: true, want_ipv6: false })));
    let released: Vec<_> = questions[1..]
        .iter()
        .map(|question| match question {
            Question::Release(release) => (&*release.pool, &*release.service, release.target.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    let one = Some(Target::Ip("192.0.2.7".into()));
    assert_eq!(released, [("blue", "default/web", one), ("blue", "default/web", Some(Target::All(true)))]);
}

#[tokio::test]
async fn a_pinned_address_is_asked_for_by_name() {
    let fake = Fake::always(Answer::ips(["2001:db8::7"]));
    let (_folder, ipam) = fake.start();

    ipam.allocate("blue", "default/web", None, Wanted::Explicit(&[addr("2001:db8::7")])).await.unwrap();

    let Question::Allocate(allocate) = fake.questions().remove(0) else { panic!("no Allocate") };
    let Some(Selector::Explicit(explicit)) = allocate.selector else { panic!("{allocate:?}") };
    assert_eq!(explicit.ips, ["2001:db8::7"]);
}

#[rstest]
#[case::nothing(vec![], "sidecar acme returned no IPs and no error")]
#[case::too_many(texts(17), "sidecar acme returned 17 IPs (max 16)")]
#[case::junk(vec!["192.0.2.1".into(), "nope".into()], "sidecar acme returned unparseable IP \"nope\"")]
#[tokio::test]
async fn ext_2_an_answer_that_makes_no_sense_is_an_error_in_known_words(
    #[case] answer: Vec<String>,
    #[case] sentence: &str,
) {
    let fake = Fake::always(Answer::ips(answer));
    let (_folder, ipam) = fake.start();

    let error = ipam.named("acme").allocate("blue", "default/web", None, V4).await.unwrap_err();

    assert_eq!(error.to_string(), sentence);
    assert_eq!((error.code_name(), error.is_retryable()), ("OK", false));
    assert_eq!(fake.questions().len(), 1, "nothing is released: the Service may be using it");
}

#[tokio::test]
async fn sixteen_addresses_are_fine_and_each_counts_once() {
    let fake = Fake::always(Answer::ips(texts(14).into_iter().chain(["192.0.2.1".into(), "::ffff:192.0.2.2".into()])));
    let (_folder, ipam) = fake.start();

    let addrs = ipam.allocate("blue", "default/web", None, BOTH).await.unwrap();

    assert_eq!(addrs, texts(14).iter().map(|text| addr(text)).collect::<Vec<_>>());
}

#[rstest]
#[case(Code::ResourceExhausted, "ResourceExhausted", true)]
#[case(Code::Cancelled, "Canceled", true)]
#[case(Code::Unavailable, "Unavailable", true)]
#[case(Code::InvalidArgument, "InvalidArgument", false)]
#[tokio::test]
async fn ext_3_the_sidecars_own_code_and_words_arrive(#[case] code: Code, #[case] name: &str, #[case] retryable: bool) {
    let fake = Fake::always(Answer::No(code, "blue has 0 of 254 left"));
    let (_folder, ipam) = fake.start();

    let error = ipam.named("acme").allocate("blue", "default/web", None, V4).await.unwrap_err();

    assert_eq!(error.to_string(), format!("sidecar acme refused Allocate with {name}: blue has 0 of 254 left"));
    assert_eq!((error.code_name(), error.is_retryable()), (name, retryable));
}

#[tokio::test]
async fn ext_3_a_call_that_is_dropped_is_cancelled_at_the_sidecar() {
    let fake = Fake::always(Answer::Never);
    let (_folder, ipam) = fake.start();
    let (asked, cancelled) = (fake.asked(), fake.cancelled());

    let call = tokio::spawn(async move { ipam.allocate("blue", "default/web", None, V4).await });
    asked.notified().await;
    call.abort();

    tokio::time::timeout(DEADLINE, cancelled.notified()).await.expect("the sidecar is told");
}

#[tokio::test]
async fn ext_4_stats_are_nothing_before_the_first_question_and_then_what_the_sidecar_says() {
    let stats = StatsResponse {
        in_use_v4: 3,
        in_use_v6: 1,
        size_v4: 254,
        size_v6: u64::MAX,
        has_known_capacity: true,
        display_addresses: vec!["192.0.2.0/24".into()],
    };
    let fake = Fake::always(Answer::ips(["192.0.2.7"])).with_stats(stats);
    let (_folder, ipam) = fake.start();
    let before = Stats::default();
    assert_eq!((before.in_use_v4, before.in_use_v6, before.size), (0, 0, None));
    assert!(fake.questions().is_empty());

    let after = ipam.stats("blue").await.unwrap();

    assert_eq!((after.in_use_v4, after.in_use_v6, after.size), (3, 1, Some(Size { v4: 254, v6: u64::MAX })));
    assert_eq!(after.display_addresses, ["192.0.2.0/24"]);
    assert_eq!(fake.questions(), [Question::Stats("blue".into())]);
}

#[tokio::test]
async fn a_sidecar_that_does_not_know_its_capacity_has_none() {
    let fake = Fake::always(Answer::Never).with_stats(StatsResponse { size_v4: 9, ..StatsResponse::default() });
    let (_folder, ipam) = fake.start();

    assert_eq!(ipam.stats("blue").await.unwrap().size, None);
}

#[tokio::test]
async fn ext_5_knowing_a_sidecar_asks_nothing_and_two_families_are_one_question() {
    let fake = Fake::always(Answer::ips(["192.0.2.7", "2001:db8::7"]));
    let (_folder, ipam) = fake.start();
    let ipam = ipam.named("acme");
    assert!(fake.questions().is_empty());

    let addrs = ipam.allocate("blue", "default/web", None, BOTH).await.unwrap();

    assert_eq!(addrs, [addr("192.0.2.7"), addr("2001:db8::7")]);
    assert_eq!(fake.questions().len(), 1);
}

#[tokio::test]
async fn b6_a_sidecar_that_is_not_there_is_said_at_once_and_not_after_the_deadline() {
    let ipam = Ipam::new("/nowhere/ipam.sock").with_deadline(Duration::from_secs(3600));

    let error = ipam.allocate("blue", "default/web", None, V4).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "the sidecar at /nowhere/ipam.sock does not answer: is its container running, and does it share the folder of \
         the socket with the allocator? (No such file or directory (os error 2))"
    );
    assert_eq!((error.code_name(), error.is_retryable()), ("Unavailable", true));
}

#[tokio::test(start_paused = true)]
async fn b6_a_sidecar_that_never_answers_costs_ten_seconds_and_no_more() {
    let fake = Fake::always(Answer::Never);
    let (_folder, ipam) = fake.start();
    let started = Instant::now();

    let error = ipam.allocate("blue", "default/web", None, V4).await.unwrap_err();

    assert!(matches!(error, IpamError::Silent { method: "Allocate", deadline: DEADLINE, .. }), "{error:?}");
    assert_eq!((error.code_name(), error.is_retryable()), ("DeadlineExceeded", true));
    assert!(error.to_string().contains("did not answer Allocate within 10s"), "{error}");
    assert!((DEADLINE..DEADLINE * 2).contains(&started.elapsed()), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_sidecar_that_dies_is_missed_at_once_and_welcome_again() {
    let fake = Fake::always(Answer::ips(["192.0.2.7"]));
    let (folder, ipam) = fake.start();
    ipam.allocate("blue", "default/web", None, V4).await.unwrap();

    fake.stop().await;
    let error = ipam.allocate("blue", "default/web", None, V4).await.unwrap_err();
    assert!(matches!(error, IpamError::Unreachable { .. }), "{error:?}");

    let successor = Fake::always(Answer::ips(["192.0.2.7"]));
    successor.start_in(folder.path());
    assert_eq!(ipam.allocate("blue", "default/web", None, V4).await.unwrap(), [addr("192.0.2.7")]);
}

#[rstest]
#[case::hangs_up(b"")]
#[case::speaks_something_else(b"HTTP/1.1 400 Bad Request\r\n\r\n")]
#[tokio::test]
async fn a_connection_that_breaks_during_the_call_is_worth_another_try(#[case] last_words: &'static [u8]) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ipam.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.read_exact(&mut [0; 64]).await.unwrap();
            connection.write_all(last_words).await.unwrap();
        }
    });

    let ipam = Ipam::new(socket.to_str().unwrap());
    let error = ipam.allocate("blue", "default/web", None, V4).await.unwrap_err();

    assert!(matches!(error, IpamError::Unreachable { .. }), "{error:?}");
    assert_eq!((error.code_name(), error.is_retryable()), ("Unavailable", true));
}

#[tokio::test]
async fn b28_already_exists_is_asked_again_and_the_held_address_is_the_answer() {
    let fake = Fake::new([Answer::No(Code::AlreadyExists, "held"), Answer::ips(["192.0.2.7"])]);
    let (_folder, ipam) = fake.start();

    let addrs = ipam.allocate("blue", "default/web", None, V4).await.unwrap();

    assert_eq!(addrs, [addr("192.0.2.7")]);
    let questions = fake.questions();
    assert_eq!(questions.len(), 2);
    assert_eq!(questions[0], questions[1], "another question could be answered with an address nobody wants");
}

#[tokio::test]
async fn b28_a_sidecar_that_insists_on_already_exists_is_asked_twice_and_reported() {
    let fake = Fake::always(Answer::No(Code::AlreadyExists, "192.0.2.9 is taken"));
    let (_folder, ipam) = fake.start();

    let wanted = [addr("192.0.2.9")];
    let error = ipam.named("acme").allocate("blue", "default/web", None, Wanted::Explicit(&wanted)).await.unwrap_err();

    assert_eq!(
        error.to_string(),
        "sidecar acme answers AlreadyExists for Service default/web in pool blue and names no address: either another \
         Service holds what was asked for, or the sidecar breaks the contract, by which Allocate returns what the \
         Service already has (\"192.0.2.9 is taken\")"
    );
    assert_eq!((error.code_name(), error.is_retryable()), ("AlreadyExists", false));
    assert_eq!(fake.questions().len(), 2);
}

#[tokio::test]
async fn releasing_what_a_sidecar_does_not_know_is_done_and_other_refusals_are_not() {
    let fake = Fake::always(Answer::Never).with_release(Code::NotFound);
    let (_folder, ipam) = fake.start();
    ipam.release_all("blue", "default/web").await.unwrap();

    let fake = Fake::always(Answer::Never).with_release(Code::Unavailable);
    let (_folder, ipam) = fake.start();
    let error = ipam.release("blue", "default/web", addr("192.0.2.7")).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test]
async fn every_call_is_reported_for_metrics_under_its_full_name() {
    let fake = Fake::new([Answer::No(Code::AlreadyExists, ""), Answer::ips(["nope"])]);
    let (folder, ipam) = fake.start();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&calls);
    let ipam = ipam.observed(move |call| {
        log.lock().unwrap().push((call.socket.to_owned(), call.method, call.code));
    });

    ipam.allocate("blue", "default/web", None, V4).await.unwrap_err();
    ipam.stats("blue").await.unwrap();
    fake.stop().await;
    ipam.release_all("blue", "default/web").await.unwrap_err();

    let socket = folder.path().join("ipam.sock").to_str().unwrap().to_owned();
    let expected = [
        ("/purelb.ipam.v1.IPAM/Allocate", "AlreadyExists"),
        ("/purelb.ipam.v1.IPAM/Allocate", "OK"),
        ("/purelb.ipam.v1.IPAM/Stats", "OK"),
        ("/purelb.ipam.v1.IPAM/Release", "Unavailable"),
    ];
    assert_eq!(*calls.lock().unwrap(), expected.map(|(method, code)| (socket.clone(), method, code)));
}

#[tokio::test]
async fn grp_9_two_groups_on_one_socket_share_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ipam.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            open.push(listener.accept().await.unwrap());
            count.fetch_add(1, Ordering::SeqCst);
        }
    });

    let ipam = Ipam::new(socket.to_str().unwrap()).with_deadline(Duration::from_millis(50));
    let (one, other) = (ipam.named("acme"), ipam.named("initech"));
    one.stats("blue").await.unwrap_err();
    other.stats("red").await.unwrap_err();

    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

//! The sidecar as PureLB meets it: through its socket, and across restarts.

#![allow(clippy::unwrap_used, reason = "a test may panic, and so may what it is made of")]

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use purelb_core::addr::Family;
use purelb_ipam::v1::ipam_client::IpamClient;
use purelb_ipam::v1::{AllocateRequest, ReleaseRequest};
use purelb_ipam::{Ipam, IpamError, Size, Wanted};
use purelb_ipam_sidecar::{Config, Sidecar};
use rstest::rstest;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::Endpoint;

const V4: Wanted = Wanted::Families(&[Family::V4]);
const V6: Wanted = Wanted::Families(&[Family::V6]);
const BOTH: Wanted = Wanted::Families(&[Family::V4, Family::V6]);
const WEB: &str = "default/web";
const API: &str = "default/api";

/// A sidecar that runs in a folder of its own.
struct Running {
    folder: TempDir,
    config: Config,
    ipam: Ipam,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    fn start(v4: &str, v6: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), v4, v6)
    }

    fn start_in(folder: TempDir, v4: &str, v6: &str) -> Self {
        let config = config(folder.path(), v4, v6).unwrap();
        let sidecar = Sidecar::bind(&config).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(sidecar.run(async { drop(stopped.await) }));
        let ipam = Ipam::new(config.socket.to_str().unwrap());
        Self { folder, config, ipam, stop, task }
    }

    /// Stops as SIGTERM does, and leaves the folder.
    async fn stop(self) -> TempDir {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
        self.folder
    }

    async fn ask(&self, service: &str, wanted: Wanted<'_>) -> Result<Vec<IpAddr>, IpamError> {
        self.ipam.allocate("blue", service, None, wanted).await
    }
}

fn config(folder: &Path, v4: &str, v6: &str) -> anyhow::Result<Config> {
    let (socket, state) = (folder.join("ipam.sock"), folder.join("state.json"));
    Config::from_env(|name| match name {
        "SIDECAR_SOCKET" => Some(socket.to_str()?.to_owned()),
        "SIDECAR_STATE" => Some(state.to_str()?.to_owned()),
        "SIDECAR_POOL_CIDR" => Some(v4.to_owned()),
        "SIDECAR_POOL_CIDR6" => Some(v6.to_owned()),
        _ => None,
    })
}

fn addrs(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn code(answer: Result<Vec<IpAddr>, IpamError>) -> Code {
    answer.unwrap_err().code()
}

#[tokio::test]
async fn ext_1_a_service_gets_an_address_and_gives_it_back() {
    let sidecar = Running::start("192.0.2.0/24", "");

    assert_eq!(sidecar.ask(WEB, V4).await.unwrap(), addrs(&["192.0.2.1"]), "the network address is skipped");
    sidecar.ipam.release_all("blue", WEB).await.unwrap();
    sidecar.ipam.release_all("blue", WEB).await.expect("releasing twice is fine");

    assert_eq!(sidecar.ask(API, V4).await.unwrap(), addrs(&["192.0.2.1"]), "it is free again");
}

#[tokio::test]
async fn ext_6_asking_again_gives_the_same_address_family_by_family() {
    let sidecar = Running::start("192.0.2.0/24", "2001:db8::/64");

    let v4 = sidecar.ask(WEB, V4).await.unwrap();
    let both = sidecar.ask(WEB, BOTH).await.unwrap();

    assert_eq!(v4, addrs(&["192.0.2.1"]));
    assert_eq!(both, addrs(&["192.0.2.1", "2001:db8::1"]), "growing to dual stack keeps the first address");
    assert_eq!(sidecar.ask(WEB, BOTH).await.unwrap(), both);
    assert_eq!(sidecar.ask(API, BOTH).await.unwrap(), addrs(&["192.0.2.2", "2001:db8::2"]));
}

#[tokio::test]
async fn ext_6_an_explicit_address_is_given_unless_somebody_else_has_it() {
    let sidecar = Running::start("192.0.2.0/24", "");
    let wanted = addrs(&["192.0.2.9"]);
    let outside = addrs(&["198.51.100.1"]);

    assert_eq!(sidecar.ask(WEB, Wanted::Explicit(&wanted)).await.unwrap(), wanted);
    assert_eq!(sidecar.ask(WEB, Wanted::Explicit(&wanted)).await.unwrap(), wanted, "asking again is fine");

    let error = sidecar.ask(API, Wanted::Explicit(&wanted)).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    assert!(error.to_string().contains("default/web of blue"), "{error}");
    assert_eq!(code(sidecar.ask(API, Wanted::Explicit(&outside)).await), Code::InvalidArgument);
    assert_eq!(code(sidecar.ask(API, Wanted::Explicit(&[])).await), Code::InvalidArgument);
    assert_eq!(sidecar.ipam.stats("blue").await.unwrap().in_use_v4, 1, "what was refused left no trace");
}

#[tokio::test]
async fn ext_6_a_question_without_a_wish_or_a_name_is_refused() {
    let sidecar = Running::start("192.0.2.0/24", "");
    let endpoint = Endpoint::from_shared(format!("unix:{}", sidecar.config.socket.display())).unwrap();
    let mut raw = IpamClient::new(endpoint.connect_lazy());
    let (pool, service) = ("blue".to_owned(), WEB.to_owned());

    let unset = AllocateRequest { pool: pool.clone(), service: service.clone(), ..AllocateRequest::default() };
    assert_eq!(raw.allocate(unset).await.unwrap_err().code(), Code::InvalidArgument);
    let unset = ReleaseRequest { pool, service, target: None };
    assert_eq!(raw.release(unset).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(code(sidecar.ask(WEB, Wanted::Families(&[])).await), Code::InvalidArgument);
    assert_eq!(code(sidecar.ask("", V4).await), Code::InvalidArgument);
}

#[tokio::test]
async fn ext_6_a_family_the_pool_does_not_have_is_refused_and_nothing_is_half_given() {
    let sidecar = Running::start("192.0.2.0/24", "");

    assert_eq!(code(sidecar.ask(WEB, V6).await), Code::FailedPrecondition);
    assert_eq!(code(sidecar.ask(WEB, BOTH).await), Code::FailedPrecondition);

    assert_eq!(sidecar.ipam.stats("blue").await.unwrap().in_use_v4, 0);
}

#[tokio::test]
async fn ext_6_releasing_one_family_keeps_the_other() {
    let sidecar = Running::start("192.0.2.0/24", "2001:db8::/64");
    let both = sidecar.ask(WEB, BOTH).await.unwrap();

    sidecar.ipam.release("blue", WEB, both[0]).await.unwrap();
    sidecar.ipam.release("blue", API, both[1]).await.expect("not its own: nothing to do");

    let stats = sidecar.ipam.stats("blue").await.unwrap();
    assert_eq!((stats.in_use_v4, stats.in_use_v6), (0, 1));
    assert_eq!(sidecar.ask(WEB, V6).await.unwrap(), both[1..]);
}

#[tokio::test]
async fn ext_6_sizes_end_where_a_number_ends() {
    let sidecar = Running::start("192.0.2.0/24", "2001:db8::/48");

    let stats = sidecar.ipam.stats("blue").await.unwrap();

    assert_eq!(stats.size, Some(Size { v4: 255, v6: u64::MAX }));
    assert_eq!(stats.display_addresses, ["192.0.2.0/24", "2001:db8::/48"]);
}

#[tokio::test]
async fn ext_6_an_exhausted_pool_says_so_and_is_worth_another_try() {
    let sidecar = Running::start("192.0.2.0/31", "");
    sidecar.ask("default/a", V4).await.unwrap();
    sidecar.ask("default/b", V4).await.unwrap();

    let error = sidecar.ask("default/c", V4).await.unwrap_err();

    assert_eq!((error.code_name(), error.is_retryable()), ("ResourceExhausted", true));
    sidecar.ipam.release_all("blue", "default/a").await.unwrap();
    assert_eq!(sidecar.ask("default/c", V4).await.unwrap(), addrs(&["192.0.2.0"]));
}

#[tokio::test]
async fn an_address_has_one_holder_over_all_pools_and_all_callers() {
    let sidecar = Running::start("192.0.2.0/24", "");
    let calls = (0..100).map(|n| {
        let ipam = sidecar.ipam.clone();
        async move { ipam.allocate(["blue", "red"][n % 2], &format!("default/s{}", n / 2), None, V4).await }
    });

    let given: Vec<IpAddr> = futures::future::try_join_all(calls).await.unwrap().concat();

    assert_eq!(given.len(), 100);
    assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 100, "{given:?}");
    assert_eq!(sidecar.ipam.stats("red").await.unwrap().in_use_v4, 50, "each pool counts its own");
}

#[tokio::test]
async fn a_restart_forgets_nothing_even_where_the_ranges_changed() {
    let before = Running::start("192.0.2.0/24", "");
    let held = before.ask(WEB, V4).await.unwrap();
    let folder = before.stop().await;

    let after = Running::start_in(folder, "192.0.2.0/24", "");
    assert_eq!(after.ask(API, V4).await.unwrap(), addrs(&["192.0.2.2"]), "the first address is not free");
    assert_eq!(after.ask(WEB, V4).await.unwrap(), held);
    let folder = after.stop().await;

    let moved = Running::start_in(folder, "198.51.100.0/24", "");
    assert_eq!(moved.ask(WEB, V4).await.unwrap(), held, "an address does not change because a range did");
    assert_eq!(moved.ask("default/new", V4).await.unwrap(), addrs(&["198.51.100.1"]));
}

#[tokio::test]
async fn what_cannot_be_remembered_is_not_given() {
    let sidecar = Running::start("192.0.2.0/24", "");
    let in_the_way = sidecar.config.state.with_extension("new");
    fs::create_dir(&in_the_way).unwrap();

    let error = sidecar.ask(WEB, V4).await.unwrap_err();
    assert_eq!((error.code_name(), error.is_retryable()), ("Unavailable", true), "{error}");
    assert_eq!(sidecar.ipam.stats("blue").await.unwrap().in_use_v4, 0);

    fs::remove_dir(&in_the_way).unwrap();
    sidecar.ask(WEB, V4).await.unwrap();
}

#[tokio::test]
async fn a_damaged_memory_stops_the_sidecar_instead_of_starting_empty() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "192.0.2.0/24", "").unwrap();
    fs::write(&config.state, "{\"192.0.2.1\": ").unwrap();

    let error = Sidecar::bind(&config).unwrap_err().to_string();

    assert!(error.contains("is damaged; restore it"), "{error}");
}

#[tokio::test]
async fn the_socket_is_for_one_user_and_replaces_a_stale_one_but_not_a_living_one() {
    let folder = tempfile::tempdir().unwrap();
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("ipam.sock")).unwrap());

    let sidecar = Running::start_in(folder, "192.0.2.0/24", "");

    let mode = fs::metadata(&sidecar.config.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let error = format!("{:#}", Sidecar::bind(&sidecar.config).unwrap_err());
    assert!(error.contains("another sidecar answers there"), "{error}");
    sidecar.ask(WEB, V4).await.expect("the first one is still there");
}

#[rstest]
#[case("192.0.2.0", "", "SIDECAR_POOL_CIDR cannot be read")]
#[case("2001:db8::/64", "", "SIDECAR_POOL_CIDR is 2001:db8::/64, which is not IPv4")]
#[case("", "192.0.2.0/24", "SIDECAR_POOL_CIDR6 is 192.0.2.0/24, which is not IPv6")]
fn a_range_that_makes_no_sense_is_named(#[case] v4: &str, #[case] v6: &str, #[case] sentence: &str) {
    let error = config(Path::new("/nowhere"), v4, v6).unwrap_err();
    assert_eq!(error.to_string(), sentence);
}

#[test]
fn with_an_empty_environment_the_defaults_are_those_of_the_contracts_sample() {
    let config = Config::from_env(|_| None).unwrap();
    assert_eq!(config.socket, Path::new("/var/run/purelb/ipam.sock"));
    assert_eq!((config.provider.as_str(), config.cidrs()), ("test", vec!["10.20.30.0/24".to_owned()]));
}

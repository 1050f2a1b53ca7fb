//! How much memory an agent's knowledge takes, and how long it thinks: a desk with ten thousand Services, in a process of
//! its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use purelb::agent::desk::Desk;
use purelb::agent::event::{Event, NodeNews, ServiceNews, SliceNews};
use purelb::agent::kernel::{KernelNews, Order};
use purelb::agent::metrics::Metrics;
use purelb::agent::stop::OnStop;
use purelb::agent::{Settings, Timing};
use purelb::cluster::watch::Change;
use purelb_api::read::{self, GroupObject};
use purelb_core::bgp::NodeFacts;
use purelb_core::endpoints::{EndpointView, Health, SliceView};
use purelb_core::links::{LinkNews, Links};
use purelb_core::model::ModelKernel;
use purelb_core::moment::Moment;
use purelb_core::want::AgentService;
use serde_json::json;

const SERVICES: usize = 10_000;
/// What the knowledge of so many Services may take: the whole daemon has 40 MiB, and takes up to 12 without any.
const LIMIT: usize = 28 << 20;

#[test]
fn ten_thousand_services_fit_into_a_small_agent() -> Result<()> {
    let mut desk = furnished()?;
    let mut kernel = ModelKernel::new(Links::default());
    let empty = resident()?;
    let begin = Instant::now();
    for number in 0..SERVICES {
        desk.hear(Event::Endpoints(Change::Here(slice(number))), at(1));
        desk.hear(Event::Service(Change::Here(Box::new(service(number, 1)))), at(1));
    }
    desk.hear(Event::Endpoints(Change::Complete), at(1));
    desk.hear(Event::Service(Change::Complete), at(1));
    let steps = settle(&mut desk, &mut kernel);
    let cold = begin.elapsed();
    ensure!(steps > SERVICES, "every address was put on the virtual interface: {steps} steps");
    let full = resident()?;
    let begin = Instant::now();
    desk.hear(Event::Service(Change::Here(Box::new(service(7, 2)))), at(2));
    settle(&mut desk, &mut kernel);
    println!(
        "{SERVICES} Services: {} KiB more than none, {cold:?} from cold, {:?} for one that changed",
        (full - empty) >> 10,
        begin.elapsed()
    );
    ensure!(full - empty < LIMIT, "{} KiB", (full - empty) >> 10);
    Ok(())
}

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

/// A desk that knows everything but the Services.
fn furnished() -> Result<Desk> {
    let settings = Settings {
        namespace: "purelb-system".to_owned(),
        node: "node1".to_owned(),
        instance: "one".to_owned(),
        host: String::new(),
        timing: Timing::default(),
        on_stop: OnStop::Auto,
    };
    let mut desk = Desk::new(settings, Metrics::new(&mut Registry::default()));
    let (name, uid, facts) = ("node1".to_owned(), "uid".to_owned(), NodeFacts::default());
    let node = NodeNews { name, uid, labels: [].into(), addresses: vec![], facts };
    let pool = json!([{"pool": "172.16.0.0/12", "subnet": "172.16.0.0/12", "aggregation": "/32"}]);
    let group: GroupObject = serde_json::from_value(json!({
        "metadata": {"name": "edge", "namespace": "purelb-system"}, "spec": {"remote": {"v4pools": pool}},
    }))?;
    let group = Box::new(read::group_forms(&group, None).forms);
    let agent = serde_json::from_value(json!({
        "apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "spec": {"local": {}},
        "metadata": {"name": "default", "namespace": "purelb-system"},
    }))?;
    let key = ("purelb-system".to_owned(), "edge".to_owned());
    for event in [
        Event::Kernel(KernelNews::Links(LinkNews::Everything(Links::default()))),
        Event::Node(Change::Here(Box::new(node))),
        Event::Node(Change::Complete),
        Event::Group(Change::Here((key, group))),
        Event::Group(Change::Complete),
        Event::Agent(Change::Here(Box::new(agent))),
        Event::Agent(Change::Complete),
        Event::Lease(Change::Complete),
    ] {
        desk.hear(event, at(0));
    }
    Ok(desk)
}

fn service(number: usize, version: u64) -> ServiceNews {
    let addr = std::net::Ipv4Addr::from(0xac10_0000 + u32::try_from(number).unwrap_or_default());
    ServiceNews {
        service: AgentService {
            key: format!("shop-{}/web-{number}", number % 50).into(),
            ours: true,
            addrs: vec![addr.into()],
            policy_local: number.is_multiple_of(10),
            allow_local: false,
            shared: false,
            affinity: false,
            skip_ipv6_dad: false,
            pool_type: Some("remote".to_owned()),
            from: Some("edge".to_owned()),
            announcing: [None, None],
            policy_rewritten: false,
        },
        version: version.to_string(),
        uid: format!("00000000-0000-4000-8000-{number:012}"),
    }
}

fn slice(number: usize) -> Box<SliceNews> {
    let (namespace, name) = (format!("shop-{}", number % 50), format!("web-{number}-x7k2p"));
    let endpoint =
        |i: usize| EndpointView { addr: format!("10.1.{i}.1").into(), node: "node1".into(), health: Health::Ready };
    let view = SliceView { name, endpoints: (0..3).map(endpoint).collect() };
    let service = format!("{namespace}/web-{number}").into();
    Box::new(SliceNews { service, view, addresses: Vec::new() })
}

/// Takes turns until nothing is left to do; how many steps the kernel was given.
fn settle(desk: &mut Desk, kernel: &mut ModelKernel) -> usize {
    let mut steps = 0;
    loop {
        let urgent = desk.hurry(at(2));
        let turn = desk.turn(at(2), Timestamp::UNIX_EPOCH);
        let mut idle = true;
        for order in urgent.orders.into_iter().chain(turn.orders) {
            let Order::Apply { steps: batch, .. } = order else { continue };
            (idle, steps) = (false, steps + batch.len());
            let mut applied = Vec::new();
            for step in batch {
                let (_, news) = kernel.apply(&step, at(2));
                for news in news {
                    desk.hear(Event::Kernel(KernelNews::Links(news)), at(2));
                }
                applied.push((step, Ok(())));
            }
            desk.hear(Event::Kernel(KernelNews::Applied(applied)), at(2));
        }
        if idle {
            return steps;
        }
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

//! One address at a time: from its writing to the API until the node's kernel has it, beside a bare watch in the node and
//! a bare netlink message.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher;
use kube::{Api, Client};

use crate::kernel::{Ear, Hand};
use crate::numbers::{ms, quantile, ratio};
use crate::site::{Site, address};

/// How many times, after some to warm up.
const TIMES: u32 = 300;
const WARM_UP: u32 = 30;
/// How much more than the bare watch and the bare message it may take, in the middle.
const MOST: f64 = 2.0;
/// Longer than anything here takes, so that a defect ends the run.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn measure(site: &Site) -> Result<()> {
    let agent = site.agent().await?;
    let (ear, witness) = (Ear::new(&site.node)?, witness(site).await?);
    site.node.batch("link add raw0 type veth peer name raw1\nlink set raw0 up\n")?;
    let hand = Hand::new(&site.node, "raw0")?;
    let (mut ours, mut delivered, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..WARM_UP + TIMES {
        let (name, address) = (format!("one-{number}"), address(number));
        site.create(&name).await?;
        let sent = Instant::now();
        site.assign(&name, address).await?;
        delivered.push(seen(&witness, &name)?.duration_since(sent));
        ours.push(ear.when(address)?.duration_since(sent));
        added.push(hand.add(raw(number))?);
    }
    let warm = WARM_UP as usize;
    let (ours, delivered, added) = (&ours[warm..], &delivered[warm..], &added[warm..]);
    println!("\none at a time, {TIMES} times               p50        p99");
    let row = |what: &str, values: &[Duration]| {
        println!("{what:<30} {:>10} {:>10}", ms(quantile(values, 0.5)), ms(quantile(values, 0.99)));
    };
    row("address written -> in kernel", ours);
    row("written -> seen by bare watch", delivered);
    row("bare netlink message", added);
    let floor = |share| quantile(delivered, share) + quantile(added, share);
    let ratio = |share| ratio(quantile(ours, share), floor(share));
    let (middle, slow) = (ratio(0.5), ratio(0.99));
    println!("{:<30} {middle:>10.2} {slow:>10.2}  (at most {MOST} at p50)", "ratio to both together");
    agent.stop().await?;
    site.node.batch("link del raw0\n")?;
    site.clear().await?;
    ensure!(middle <= MOST, "{middle:.2} times a bare watch and a bare netlink message; at most {MOST} is promised");
    Ok(())
}

/// An address for the bare hand, of no group.
fn raw(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 1)) + number)
}

/// When this Service was seen with an address.
fn seen(witness: &Receiver<(String, Instant)>, name: &str) -> Result<Instant> {
    loop {
        let (seen, at) = witness.recv_timeout(PATIENCE).with_context(|| format!("{name} was not seen"))?;
        if seen == name {
            return Ok(at);
        }
    }
}

/// A bare watch that goes the same way to the API server as the agent's.
async fn witness(site: &Site) -> Result<Receiver<(String, Instant)>> {
    let (tell, sightings) = channel();
    let (ready, begun) = tokio::sync::oneshot::channel();
    let (node, config) = (site.node.clone(), site.account.config().await?);
    thread::spawn(move || {
        node.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let services: Api<Service> = Api::all(Client::try_from(config)?);
                let selection = watcher::Config::default().fields("spec.type=LoadBalancer");
                let mut watch = watcher(services, selection).boxed();
                let mut ready = Some(ready);
                while let Some(event) = watch.next().await {
                    match event {
                        Ok(watcher::Event::InitDone) => drop(ready.take().map(|ready| ready.send(()))),
                        Ok(watcher::Event::Apply(service)) if has_address(&service) => {
                            let told = tell.send((service.metadata.name.unwrap_or_default(), Instant::now()));
                            if told.is_err() {
                                break;
                            }
                        }
                        _ => {}
                    }
                }
                anyhow::Ok(())
            })
        })
    });
    begun.await.context("the watch did not begin")?;
    Ok(sightings)
}

fn has_address(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_ref()).is_some_and(|ingress| !ingress.is_empty())
}

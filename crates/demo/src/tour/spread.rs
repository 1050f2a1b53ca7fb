//! Step 1: an address from the group of the documentation, announced by every node, and how requests spread.

use std::collections::BTreeMap;
use std::env;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use serde_json::json;

use super::manifests::VIRTUAL;
use super::{addresses, at, family, route_of, text, until_routed, until_served};
use crate::ask::{Answer, ask_often};
use crate::show::{Look, Show, bar, demand};
use crate::site::Site;
use crate::site::plan::Place;

/// Requests per node.
const EACH: usize = 100;
/// When `make demo` began, in seconds since 1970, if that is how the demo was started.
const BEGUN: &str = "PURELB_DEMO_BEGUN";

/// How many requests came in through each node, and were answered on it.
#[derive(Debug, PartialEq, Eq)]
struct Spread {
    /// By the node that the router chose.
    entered: BTreeMap<String, usize>,
    /// By the node of the back-end that the proxy chose.
    answered: BTreeMap<String, usize>,
}

impl Spread {
    fn of(answers: &[Answer], nodes: &[Place]) -> Self {
        let count = |fits: &dyn Fn(&Place, &Answer) -> bool| {
            let each = |node: &Place| answers.iter().filter(|answer| fits(node, answer)).count();
            nodes.iter().map(|node| (node.name.clone(), each(node))).collect()
        };
        Self {
            entered: count(&|node, answer| node.let_in(answer.source)),
            answered: count(&|node, answer| answer.node == node.name),
        }
    }

    /// Every request is accounted for, and no node has less than a third of its fair share: chance alone does not do that
    /// in hundreds of requests.
    fn is_fair(&self, requests: usize) -> bool {
        [&self.entered, &self.answered].into_iter().all(|counts| {
            let fair = requests / counts.len().max(1);
            let whole = counts.values().sum::<usize>() == requests;
            fair > 0 && whole && counts.values().all(|count| count * 3 >= fair)
        })
    }
}

pub fn show(site: &mut Site, show: &mut Show) -> Result<()> {
    show.types("kubectl apply -f remotedual.yaml -f kuard.yaml")?;
    let wait = format!("kubectl wait --for=condition=purelb.io/AddressAssigned \\\n    svc/{VIRTUAL}");
    show.types_to_await(&wait, "the allocator assigns addresses to the Service")?;
    let all = show.until("the Service has an address of each family", || addresses(&site.cluster, VIRTUAL, 2))?;
    show.types(&format!(
        "kubectl get svc {VIRTUAL} \\\n    -o jsonpath='{{.status.loadBalancer.ingress[*].ip}}{{\"\\n\"}}'"
    ))?;
    let names = site.names();
    until_routed(site, show, &all, &names)?;
    show.line(&format!("Announced by {} nodes over BGP. The router has as many next hops:", names.len()));
    for address in &all {
        show.types_on(&site.router.namespace, &route_of(*address))?;
    }
    let times = EACH * names.len();
    until_served(site, show, names.len())?;
    let places: Vec<Place> = site.nodes.iter().map(|node| node.place.clone()).collect();
    let (mut entered, mut answered, mut hops) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for address in &all {
        show.progress(&format!("... {times} requests to {address}"));
        let answers = ask_often(&site.client, at(*address), times)?;
        show.erase();
        let spread = Spread::of(&answers, &places);
        tell(show, &format!("{times} requests of a client behind the router to {address}"), &spread);
        demand(spread.is_fair(times), "every node gets its share", format!("{spread:?}"))?;
        hops.insert(family(*address), site.router.next_hops(*address)?.len());
        entered.insert(family(*address), spread.entered);
        answered.insert(family(*address), spread.answered);
    }
    show.until("every node says that its sessions are well", || well(site))?;
    show.types("kubectl get bgpnodestatuses")?;
    let whole = since_make(UNIX_EPOCH.elapsed().unwrap_or_default());
    show.line(&so_far(show.elapsed(), whole));
    show.fact("since_make", json!(whole.map(|time| time.as_secs_f64())));
    show.fact("addresses", json!(all));
    for (name, by_family) in [("next_hops", json!(hops)), ("entered", json!(entered)), ("answered", json!(answered))] {
        show.fact(name, by_family);
    }
    show.fact("summary", format!("{} announced by {}", text(&all), names.join(", ")));
    Ok(())
}

/// How long it is since `make demo`.
fn since_make(now: Duration) -> Option<Duration> {
    let begun: f64 = env::var(BEGUN).ok()?.parse().ok()?;
    now.checked_sub(Duration::try_from_secs_f64(begun).ok()?)
}

fn so_far(demo: Duration, whole: Option<Duration>) -> String {
    let demo = demo.as_secs_f64();
    match whole.map(|time| time.as_secs_f64()) {
        Some(whole) => {
            format!("From `make demo` to here: {whole:.1} s, {:.1} s of it before the demo began.", whole - demo)
        }
        None => format!("From the start of the demo to here: {demo:.1} s."),
    }
}

/// Agents write what they know of their sessions a moment later.
fn well(site: &Site) -> Result<Look<()>> {
    let statuses = site.cluster.list("/apis/bgp.purelb.io/v1/bgpnodestatuses")?;
    let well = statuses.iter().filter(|status| status["status"]["healthy"] == true).count();
    Ok(if well >= site.nodes.len() { Ok(()) } else { Err(format!("the statuses {}", json!(statuses))) })
}

fn tell(show: &mut Show, title: &str, spread: &Spread) {
    let whole = spread.entered.values().sum();
    show.line(title);
    show.line("came in through:");
    for (node, count) in &spread.entered {
        show.line(&bar(node, *count, whole));
    }
    let answered: Vec<String> = spread.answered.iter().map(|(node, count)| format!("{node} {count}")).collect();
    show.line(&format!("and answered by pods on: {}", answered.join(", ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(sources: &[(&str, &str, usize)]) -> Vec<Answer> {
        let each = |(source, node, count): &(&str, &str, usize)| {
            let answer = Answer { pod: "kuard".into(), node: (*node).into(), source: source.parse().unwrap() };
            vec![answer; *count]
        };
        sources.iter().flat_map(each).collect()
    }

    #[test]
    fn the_source_that_a_back_end_sees_tells_through_which_node_a_request_came() {
        let nodes = [Place::of(1), Place::of(2)];
        // A pod on the node that let the request in sees that node's address on the pods' bridge.
        let seen = answers(&[("192.168.7.11", "node2", 30), ("10.1.1.1", "node1", 20), ("fd00:7::12", "node1", 50)]);
        let spread = Spread::of(&seen, &nodes);
        assert_eq!(spread.entered, [("node1".to_owned(), 50), ("node2".to_owned(), 50)].into());
        assert_eq!(spread.answered, [("node1".to_owned(), 70), ("node2".to_owned(), 30)].into());
        assert!(spread.is_fair(100));
        assert!(!spread.is_fair(101), "one request came in through no node, or was answered by none");
    }

    #[test]
    fn the_time_that_make_took_is_told_apart() {
        let (demo, whole) = (Duration::from_millis(5800), Duration::from_millis(7000));
        assert_eq!(so_far(demo, None), "From the start of the demo to here: 5.8 s.");
        let told = "From `make demo` to here: 7.0 s, 1.2 s of it before the demo began.";
        assert_eq!(so_far(demo, Some(whole)), told);
    }

    #[test]
    fn a_node_that_gets_next_to_nothing_is_no_spread() {
        let nodes = [Place::of(1), Place::of(2), Place::of(3)];
        let seen = [("192.168.7.11", "node1", 140), ("192.168.7.12", "node2", 140), ("192.168.7.13", "node3", 20)];
        assert!(!Spread::of(&answers(&seen), &nodes).is_fair(300));
        assert!(!Spread::of(&[], &nodes).is_fair(0), "nobody answered");
        // A client whose address nobody hid came in through no node that we can name.
        assert!(!Spread::of(&answers(&[("10.9.0.2", "node1", 300)]), &nodes).is_fair(300));
    }
}

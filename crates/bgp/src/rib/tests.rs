//! The difference between what a peer should know and what it was told.

use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;
use crate::message::Message;
use crate::path::NextHop;

fn path(med: u32) -> Arc<Path> {
    Arc::new(Path {
        family: Family::V4,
        next_hop: NextHop::V4(Ipv4Addr::new(10, 0, 0, 1)),
        as_path: vec![65001],
        four_octets: true,
        med: Some(med),
        local_pref: None,
        communities: BTreeSet::new(),
        large_communities: BTreeSet::new(),
    })
}

fn many(count: u32, path: &Arc<Path>) -> Want {
    let host = |n: u32| IpNet::new(Ipv4Addr::from(0x0a00_0000 + n).into(), 32).unwrap();
    (0..count).map(|n| (host(n), path.clone())).collect()
}

fn sizes(updates: &[Update]) -> Vec<usize> {
    updates.iter().map(|update| wire::encode(&Message::Update(update.clone())).unwrap().len()).collect()
}

#[test]
fn a_thousand_routes_travel_in_two_full_messages_and_so_do_their_withdrawals() {
    let mut rib = Rib::new(Families::default());
    let told = rib.next(&many(1000, &path(0)), true, 100);
    let sizes_told = sizes(&told);
    assert_eq!(told.len(), 2, "{sizes_told:?}");
    assert!(sizes_told[0] > wire::LONGEST - 6 && sizes_told[0] <= wire::LONGEST, "{sizes_told:?}");
    let gone = rib.next(&Want::new(), true, 100);
    assert_eq!(gone.len(), 2);
    assert!(sizes(&gone).iter().all(|size| *size <= wire::LONGEST));
}

#[test]
fn no_more_is_said_at_once_than_asked_and_the_rest_follows() {
    let (want, mut rib) = (many(10_000, &path(0)), Rib::new(Families::only(Family::V4)));
    let mut messages = 0;
    loop {
        let some = rib.next(&want, true, 4);
        assert!(some.len() <= 4);
        messages += some.len();
        if matches!(some.last(), None | Some(Update::EndOfRib(_))) {
            break;
        }
    }
    assert_eq!(rib.held().len(), 10_000);
    assert_eq!(messages, 13 + 1);
    assert!(rib.next(&want, true, 4).is_empty());
}

#[test]
fn a_route_is_for_those_who_want_one_of_its_groups() {
    let groups = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<Groups>();
    let route = |net: &str, names: &[&str]| (net.parse().unwrap(), Arc::new(groups(names)));
    let routes: Routes = [route("192.0.2.7/24", &["gold", "silver"]), route("198.51.100.1/32", &[])].into();
    let nets = |names: Option<&[&str]>| {
        let wanted = names.map(groups);
        chosen(&routes, wanted.as_ref()).map(|net| net.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(nets(None), ["192.0.2.0/24", "198.51.100.1/32"]);
    assert_eq!(nets(Some(&["silver"])), ["192.0.2.0/24"]);
    assert!(nets(Some(&["bronze"])).is_empty());
}

#[test]
fn what_cannot_be_a_route_is_left_out() {
    let nets = ["224.0.0.1/32", "ff02::1/128", "255.255.255.255/32", "192.0.2.1/32"];
    let routes = crate::wish::routes(nets.map(|net| net.parse().unwrap()));
    assert_eq!(chosen(&routes, None).count(), 1);
}

proptest! {
    /// Each pair says which of a few prefixes is wanted next, and with which metric.
    #[test]
    fn a_peer_that_reads_everything_knows_the_wish(wishes in prop::collection::vec(prop::collection::btree_map(0u32..40, 0u32..3, 0..40), 1..8)) {
        let paths = [path(0), path(1), path(2)];
        let host = |n: &u32| IpNet::new(Ipv4Addr::from(0x0a00_0000 + n).into(), 32).unwrap();
        let (mut rib, mut peer) = (Rib::new(Families::BOTH), Want::new());
        for wish in &wishes {
            let want: Want = wish.iter().map(|(n, med)| (host(n), paths[*med as usize].clone())).collect();
            loop {
                let some = rib.next(&want, false, 2);
                if some.is_empty() {
                    break;
                }
                for update in some {
                    match update {
                        Update::Announce(path, nets) => nets.into_iter().for_each(|net| { peer.insert(net, path.clone()); }),
                        Update::Withdraw(nets, _) => nets.iter().for_each(|net| { peer.remove(net); }),
                        Update::EndOfRib(_) => prop_assert!(false, "not complete"),
                    }
                }
            }
            prop_assert_eq!(&peer, &want);
        }
    }
}

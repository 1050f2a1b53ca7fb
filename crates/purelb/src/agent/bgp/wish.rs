//! The speaker's wish, made of what the configuration means for this node and what the kernel shows.

use std::net::Ipv4Addr;

use purelb_bgp::{Advertise, Families, Family, Global, Listen, Peer, Secret, Ttl, Wish};
use purelb_core::addr;
use purelb_core::bgp::{self, Configuration, Distance, Neighbor, Session};
use purelb_core::want::State;

/// What the speaker needs beside the sessions.
pub(in crate::agent) struct Identity<'a> {
    /// By which identifier this node goes.
    pub router_id: Ipv4Addr,
    /// The name of this node.
    pub node: &'a str,
    /// A predecessor has left addresses, so that routers may still have their routes.
    pub restarting: bool,
}

/// The whole wish. It is complete when no route is missing that this node had before it began.
pub(in crate::agent) fn wish(
    configuration: &Configuration,
    sessions: &[Session],
    identity: &Identity<'_>,
    state: &State,
    complete: bool,
) -> Wish {
    let listen = configuration.listen.as_ref();
    let global = Global {
        listen: listen.map(|listen| Listen { port: listen.port, addresses: listen.addresses.clone() }),
        name: identity.node.to_owned(),
        restarting: identity.restarting,
        fleeting: state.fleeting().clone(),
        ..Global::new(configuration.asn, identity.router_id)
    };
    let routes = state.routes().clone();
    Wish { global, peers: sessions.iter().map(peer).collect(), routes, complete }
}

fn peer(session: &Session) -> Peer {
    let neighbor = &session.neighbor;
    let usual = Peer::new(neighbor.address, neighbor.peer_as);
    Peer {
        local_asn: neighbor.local_as,
        password: session.password.as_ref().and_then(|password| Secret::new(password.expose())),
        families: families(neighbor),
        hold: neighbor.timers.hold,
        keepalive: neighbor.timers.keepalive,
        connect_retry: neighbor.timers.connect_retry.unwrap_or(usual.connect_retry),
        advertisement_interval: neighbor.timers.advertisement_interval,
        source: neighbor.source,
        interface: neighbor.interface.clone(),
        passive: neighbor.passive,
        admin_down: neighbor.admin_down,
        ttl: match neighbor.distance {
            Distance::Usual => Ttl::Usual,
            Distance::Multihop(hops) => Ttl::Multihop(hops),
            Distance::Security(hops) => Ttl::Security(hops),
        },
        graceful_restart: neighbor.graceful_restart,
        next_hop_v4: neighbor.next_hop.v4,
        next_hop_v6: neighbor.next_hop.v6,
        advertise: advertise(&neighbor.advertise),
        ..usual
    }
}

fn families(neighbor: &Neighbor) -> Families {
    let mut families = Families::default();
    for family in &neighbor.families {
        families.add(match family {
            addr::Family::V4 => Family::V4,
            addr::Family::V6 => Family::V6,
        });
    }
    families
}

fn advertise(advertise: &bgp::Advertise) -> Advertise {
    let groups = advertise.service_groups.as_ref();
    Advertise {
        communities: advertise.communities.clone(),
        large_communities: advertise.large_communities.clone(),
        med: advertise.med,
        local_pref: advertise.local_pref,
        prepend: advertise.prepend,
        groups: groups.map(|groups| groups.iter().map(|group| group.as_str().into()).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use purelb_api::read;
    use purelb_core::bgp::{NodeFacts, for_node};
    use purelb_core::members::Timing;
    use serde_json::{Value, json};

    use super::*;

    /// What the speaker is to do with a configuration.
    fn wish_of(spec: &Value) -> Wish {
        let object = json!({"metadata": {"name": "default", "namespace": "home"}, "spec": spec});
        let configuration = read::bgp(&serde_json::from_value(object).unwrap()).reading.value.unwrap();
        let node = NodeFacts { name: "node-1".to_owned(), ..NodeFacts::default() };
        let sessions = for_node(&configuration, &node, &Default::default(), &BTreeSet::new()).sessions;
        let identity = Identity { router_id: [192, 0, 2, 1].into(), node: "node-1", restarting: true };
        let timing = Timing { duration: Duration::from_secs(10), renew_deadline: Duration::from_secs(7) };
        wish(&configuration, &sessions, &identity, &State::new("node-1", timing), false)
    }

    #[test]
    fn everything_that_is_written_reaches_the_speaker() {
        let wish = wish_of(&json!({
            "global": {"asn": 64512, "listenPort": 1179, "listenAddresses": ["192.0.2.1"]},
            "neighbors": [{
                "config": {"neighborAddress": "192.0.2.254", "peerAsn": 64513, "localAsn": 64514, "authPassword": "sesame",
                    "adminDown": true},
                "afiSafis": [{"family": "ipv6-unicast"}],
                "timers": {"config": {"holdTime": 31, "keepaliveInterval": 7, "connectRetry": 11,
                    "minimumAdvertisementInterval": 5}},
                "transport": {"localAddress": "192.0.2.9", "passiveMode": true, "bindInterface": "eth7"},
                "ttlSecurity": {"enabled": true, "hops": 3},
                "gracefulRestart": {"enabled": true, "restartTime": 77},
                "nextHop": {"ipv4": "192.0.2.10", "ipv6": "2001:db8::10"},
                "advertise": {"communities": ["64512:100"], "largeCommunities": ["1:2:3"], "med": 55, "localPref": 66,
                    "prepend": 2, "serviceGroups": ["gold"]},
            }],
        }));
        let global = Global {
            listen: Some(Listen { port: 1179, addresses: vec![[192, 0, 2, 1].into()] }),
            name: "node-1".to_owned(),
            restarting: true,
            ..Global::new(64512, [192, 0, 2, 1].into())
        };
        let advertise = Advertise {
            communities: [64512 << 16 | 100].into(),
            large_communities: [[1, 2, 3]].into(),
            med: Some(55),
            local_pref: Some(66),
            prepend: 2,
            groups: Some(["gold".into()].into()),
        };
        let peer = Peer {
            local_asn: Some(64514),
            password: Secret::new("sesame"),
            families: Families::only(Family::V6),
            hold: Duration::from_secs(31),
            keepalive: Some(Duration::from_secs(7)),
            connect_retry: Duration::from_secs(11),
            advertisement_interval: Duration::from_secs(5),
            source: Some([192, 0, 2, 9].into()),
            interface: Some("eth7".to_owned()),
            passive: true,
            admin_down: true,
            ttl: Ttl::Security(3),
            graceful_restart: Some(Duration::from_secs(77)),
            next_hop_v4: Some([192, 0, 2, 10].into()),
            next_hop_v6: Some("2001:db8::10".parse().unwrap()),
            advertise,
            ..Peer::new([192, 0, 2, 254].into(), 64513)
        };
        assert_eq!(wish, Wish { global, peers: vec![peer], routes: Default::default(), complete: false });
    }

    #[test]
    fn what_is_not_written_is_as_usual_and_a_distance_is_one_of_hops() {
        let mut spec = json!({
            "global": {"asn": 64512, "listenPort": -1},
            "neighbors": [{"config": {"neighborAddress": "192.0.2.254", "peerAsn": 64513}}],
        });
        let wish = wish_of(&spec);
        assert_eq!((wish.global.listen, wish.peers), (None, vec![Peer::new([192, 0, 2, 254].into(), 64513)]));
        spec["neighbors"][0]["ebgpMultihop"] = json!({"enabled": true, "multihopTtl": 5});
        assert_eq!(wish_of(&spec).peers[0].ttl, Ttl::Multihop(5));
    }
}

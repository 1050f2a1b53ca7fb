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

//! Do the options reach the kernel?

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;

fn peer(address: &str) -> Peer {
    Peer::new(address.parse().unwrap(), 65000)
}

#[test]
fn an_address_is_found_beside_those_of_its_interface() {
    let found = ends(("127.0.0.1".parse().unwrap(), 0));
    assert_eq!(found.local, IpAddr::from([127, 0, 0, 1]));
    assert!(!found.beside.contains(&found.local));
    let unknown = ends(("192.0.2.77".parse().unwrap(), 0));
    assert!(unknown.beside.is_empty(), "an address we do not have has nothing beside it: {unknown:?}");
}

#[test]
fn a_peer_of_one_hop_gets_a_ttl_of_one_and_ttl_security_the_highest() {
    let (socket, _) = dialler(&peer("127.0.0.1"), false).unwrap();
    assert_eq!(socket.ttl_v4().unwrap(), 1);
    assert_eq!(dialler(&peer("127.0.0.1"), true).unwrap().0.ttl_v4().unwrap(), 64);
    let far = Peer { ttl: Ttl::Multihop(7), ..peer("::1") };
    assert_eq!(dialler(&far, false).unwrap().0.unicast_hops_v6().unwrap(), 7);
    let near = Peer { ttl: Ttl::Security(1), ..peer("127.0.0.1") };
    assert_eq!(dialler(&near, false).unwrap().0.ttl_v4().unwrap(), 255);
}

/// One exchange between a listener with one password and a dialler with another; what the dialler reads back.
fn exchange(ours: &str, theirs: &str) -> io::Result<Vec<u8>> {
    let listening = listener("127.0.0.1:0".parse().unwrap())?;
    let port = listening.local_addr()?.as_socket().unwrap().port();
    set_password(&listening, "127.0.0.1".parse().unwrap(), Secret::new(theirs).as_ref())?;
    listening.set_nonblocking(false)?;
    let peer = Peer { port, password: Secret::new(ours), ..peer("127.0.0.1") };
    let (socket, target) = dialler(&peer, false).map_err(|(_, error)| error)?;
    socket.set_nonblocking(false)?;
    socket.connect_timeout(&target.into(), Duration::from_millis(1500))?;
    let (mut accepted, _) = TcpListener::from(listening).accept()?;
    accepted.write_all(b"hello")?;
    drop(accepted);
    let mut heard = Vec::new();
    TcpStream::from(socket).read_to_end(&mut heard)?;
    Ok(heard)
}

#[test]
fn the_same_password_lets_a_peer_in_and_another_does_not() {
    assert_eq!(exchange("correct horse", "correct horse").unwrap(), b"hello");
    assert_eq!(exchange("", "").unwrap(), b"hello");
    let refused = exchange("correct horse", "battery staple").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut, "{refused}");
    assert!(exchange("correct horse", "").is_err());
}

#[test]
fn a_password_that_was_never_set_can_be_taken_back() {
    let listening = listener("[::1]:0".parse().unwrap()).unwrap();
    set_password(&listening, "::1".parse().unwrap(), None).unwrap();
    set_password(&listening, "::1".parse().unwrap(), Secret::new("x").as_ref()).unwrap();
    set_password(&listening, "::1".parse().unwrap(), None).unwrap();
}

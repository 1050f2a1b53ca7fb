//! A peer's desk, with connections over loopback.

use tokio::net::TcpListener;

use super::*;

fn desk() -> (Desk, mpsc::Receiver<Event>) {
    let order = Order {
        number: 1,
        global: Arc::new(Global::new(65001, [127, 0, 0, 1].into())),
        peer: Arc::new(Peer::new([127, 0, 0, 1].into(), 65002)),
        routes: Arc::default(),
        complete: true,
        farewell: None,
    };
    let (events, inbox) = mpsc::channel(EVENTS);
    (Desk::new(&order, events, watch::channel(Report::default()).0), inbox)
}

/// Both ends of so many connections: the desk's, and the router's.
async fn connections(count: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut all = Vec::new();
    for _ in 0..count {
        let router = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        all.push((listener.accept().await.unwrap().0, router));
    }
    all
}

#[tokio::test]
async fn a_router_that_dials_without_end_is_cut_off_beyond_a_few() {
    let (mut desk, _inbox) = desk();
    let (ours, _routers): (Vec<_>, Vec<_>) = connections(3 * CLOSING).await.into_iter().unzip();
    for stream in ours {
        // The machine was not started, so it lets nobody in.
        desk.answer(Call::Accepted(stream));
    }
    assert_eq!((desk.closing.len(), desk.connections.len()), (CLOSING, 0));
}

#[tokio::test]
async fn an_address_that_is_gone_is_noticed_on_a_connection_that_stays() {
    let (mut desk, _inbox) = desk();
    desk.feed(Input::Start);
    let (stream, _router) = connections(1).await.remove(0);
    desk.answer(Call::Accepted(stream));
    let conn = *desk.connections.keys().next().unwrap();
    let gone: IpAddr = "2001:db8::77".parse().unwrap();
    let truth = desk.connections[&conn].ends.clone();
    desk.connections.get_mut(&conn).unwrap().ends.beside.push(gone);
    desk.look_around();
    assert_eq!(desk.connections[&conn].ends, truth);
    assert!(desk.look > Instant::now(), "and the next look is later");
}

#[tokio::test]
async fn a_connection_whose_reader_or_writer_dies_is_closed_and_the_peer_goes_on() {
    let (mut desk, mut inbox) = desk();
    desk.feed(Input::Start);
    let (stream, mut router) = connections(1).await.remove(0);
    desk.answer(Call::Accepted(stream));
    let conn = *desk.connections.keys().next().unwrap();
    assert_eq!(desk.fsm.state(), State::OpenSent);
    desk.dialling = None;
    desk.connections.get_mut(&conn).unwrap().strike();
    let (_calls, mut called) = mpsc::channel(1);
    while !desk.connections.is_empty() {
        desk.turn(&mut inbox, &mut called).await;
    }
    assert_ne!(desk.fsm.state(), State::OpenSent);
    assert!(desk.fsm.report().fault.unwrap().to_string().contains("internal error"));
    let mut heard = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut router, &mut heard).await.expect("the router sees the end");
}

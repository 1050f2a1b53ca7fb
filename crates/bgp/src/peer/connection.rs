//! One TCP connection: a task that reads, a task that writes what could not be written at once, and queues of known length
//! between them and the peer.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fsm::Conn;
use crate::message::Heard;
use crate::notification::Notification;
use crate::path::Ends;
use crate::wire::{self, HEADER, LONGEST};

/// Messages to write that can wait. The state machine hands over fewer than this before it waits for them to leave.
const OUTBOX: usize = 64;

/// How long last words may take to leave.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a connection has to say.
pub(super) enum Event {
    Heard(Conn, Heard),
    Nonsense(Conn, Notification),
    Closed(Conn, Option<String>),
    /// So many messages have left, and none was waiting at that moment.
    Sent(Conn, usize),
}

/// An open connection. Its tasks end with it.
pub(super) struct Connection {
    output: Arc<OwnedWriteHalf>,
    outbox: mpsc::Sender<Vec<u8>>,
    /// Messages that have not left, as far as was heard.
    waiting: usize,
    tasks: JoinSet<()>,
    /// Our address, with the number of its interface if it means something there only.
    pub(super) local: (IpAddr, u32),
    /// Our end, as the state machine knows it.
    pub(super) ends: Ends,
}

impl Connection {
    pub(super) fn open(
        conn: Conn,
        stream: TcpStream,
        (local, ends): ((IpAddr, u32), Ends),
        events: &mpsc::Sender<Event>,
    ) -> Self {
        let (input, output) = stream.into_split();
        let output = Arc::new(output);
        let (outbox, queue) = mpsc::channel(OUTBOX);
        let mut tasks = JoinSet::new();
        tasks.spawn(read(conn, input, events.clone()));
        tasks.spawn(write(conn, output.clone(), queue, events.clone()));
        Self { output, outbox, waiting: 0, tasks, local, ends }
    }

    /// Sends a message: at once, if nothing is waiting and the kernel takes it, or else by the writer. One on a connection
    /// that has just broken goes nowhere: its end is told otherwise.
    ///
    /// # Errors
    /// When the queue is full.
    pub(super) fn send(&mut self, mut bytes: Vec<u8>) -> Result<(), String> {
        if self.has_sent_all() {
            // What went wrong the writer will find out, too.
            let written = self.output.try_write(&bytes).unwrap_or(0);
            bytes.drain(..written);
            if bytes.is_empty() {
                return Ok(());
            }
        }
        self.waiting += 1;
        match self.outbox.try_send(bytes) {
            Err(TrySendError::Full(_)) => Err("the queue to the connection is full".into()),
            Err(TrySendError::Closed(_)) | Ok(()) => Ok(()),
        }
    }

    /// Takes note that so many messages have left, and says whether those were all.
    pub(super) fn sent(&mut self, count: usize) -> bool {
        self.waiting = self.waiting.saturating_sub(count);
        self.has_sent_all()
    }

    /// Whether all messages have left.
    pub(super) fn has_sent_all(&self) -> bool {
        self.waiting == 0
    }

    /// Ready when one of the tasks has died of a defect: nobody else would notice.
    pub(super) fn poll_death(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.tasks.poll_join_next(context) {
                Poll::Ready(Some(Err(_))) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(()))) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Lets last words leave, and then closes.
    ///
    /// The reader goes on meanwhile: a socket closed with something unread in it is reset, and a reset may overtake the
    /// last words.
    pub(super) async fn close(self) {
        let Self { output, outbox, mut tasks, .. } = self;
        // Our side of the stream ends when the writer lets go of it, too.
        drop((output, outbox));
        // A peer that takes nothing, or does not close its side, is cut off.
        let _ = timeout(LAST_WORDS, async { while tasks.join_next().await.is_some() {} }).await;
    }
}

async fn read(conn: Conn, mut input: OwnedReadHalf, events: mpsc::Sender<Event>) {
    let mut body = vec![0; LONGEST];
    loop {
        let event = match next(&mut input, &mut body).await {
            Ok(Ok(heard)) => Event::Heard(conn, heard),
            Ok(Err(answer)) => Event::Nonsense(conn, answer),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Event::Closed(conn, None),
            Err(error) => Event::Closed(conn, Some(error.to_string())),
        };
        let more = matches!(event, Event::Heard(..));
        // The peer's queue is short, so a peer that floods us fills TCP's window and then waits.
        let unheard = events.send(event).await.is_err();
        if unheard || !more {
            return discard(&mut input, &mut body).await;
        }
    }
}

async fn next(input: &mut OwnedReadHalf, body: &mut [u8]) -> io::Result<Result<Heard, Notification>> {
    let mut header = [0; HEADER];
    input.read_exact(&mut header).await?;
    let frame = match wire::frame(&header) {
        Ok(frame) => frame,
        Err(answer) => return Ok(Err(answer)),
    };
    let body = &mut body[..frame.body];
    input.read_exact(body).await?;
    Ok(wire::decode(frame.kind, body))
}

/// Reads until the other side closes, so that what we said last arrives.
async fn discard(input: &mut OwnedReadHalf, scratch: &mut [u8]) {
    while matches!(input.read(scratch).await, Ok(1..)) {}
}

async fn write(
    conn: Conn,
    output: Arc<OwnedWriteHalf>,
    mut queue: mpsc::Receiver<Vec<u8>>,
    events: mpsc::Sender<Event>,
) {
    let mut count = 0;
    while let Some(bytes) = queue.recv().await {
        if let Err(error) = write_all(&output, &bytes).await {
            // The reader mostly says so too; the second of the two is not heard.
            let _ = events.send(Event::Closed(conn, Some(error.to_string()))).await;
            return;
        }
        count += 1;
        if queue.is_empty() {
            // When nobody listens any more, last words may have come meanwhile.
            let _ = events.send(Event::Sent(conn, std::mem::take(&mut count))).await;
        }
    }
}

async fn write_all(output: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        output.writable().await?;
        match output.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::task::yield_now;

    use super::*;

    impl Connection {
        /// Has one of the tasks die.
        pub(in crate::peer) fn strike(&mut self) {
            self.tasks.spawn(async { panic!("struck by lightning") });
        }
    }

    #[tokio::test]
    async fn what_the_kernel_does_not_take_at_once_follows_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut router = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (events, mut inbox) = mpsc::channel(1);
        let ends = Ends { local: [127, 0, 0, 1].into(), beside: Vec::new() };
        let mut connection = Connection::open(Conn(1), stream, ((ends.local, 0), ends), &events);
        let mut said = Vec::new();
        // More than the kernel takes from one who is not read.
        for number in 0..u8::try_from(OUTBOX / 2).unwrap() {
            let message = vec![number; 1 << 20];
            said.extend(&message);
            connection.send(message).unwrap();
        }
        assert!(!connection.has_sent_all(), "some of it waits");
        let reading = async {
            let mut heard = vec![0; said.len()];
            router.read_exact(&mut heard).await.unwrap();
            heard
        };
        let leaving = async {
            while let Some(Event::Sent(_, count)) = inbox.recv().await {
                if connection.sent(count) {
                    break;
                }
            }
        };
        let (heard, ()) = tokio::join!(reading, leaving);
        assert!(heard == said, "every octet, in its place");
        connection.send(b"more".to_vec()).unwrap();
        assert!(connection.has_sent_all(), "it went at once");
    }

    #[tokio::test]
    async fn last_words_leave_although_nobody_hears_the_connection_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut router = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let (events, inbox) = mpsc::channel(1);
        let ends = Ends { local: [127, 0, 0, 1].into(), beside: Vec::new() };
        let mut connection = Connection::open(Conn(1), stream, ((ends.local, 0), ends), &events);
        let keepalive = wire::encode(&crate::message::Message::Keepalive).unwrap();
        router.write_all(&keepalive.repeat(3)).await.unwrap();
        while events.capacity() > 0 {
            yield_now().await;
        }
        connection.send(b"first".to_vec()).unwrap();
        let mut heard = [0; 5];
        router.read_exact(&mut heard).await.unwrap();
        connection.send(b"last".to_vec()).unwrap();
        drop(inbox);
        let closing = tokio::spawn(connection.close());
        let mut rest = Vec::new();
        router.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"last");
        drop(router);
        closing.await.unwrap();
    }
}

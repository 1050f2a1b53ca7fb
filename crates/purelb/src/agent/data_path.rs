//! The data path of this node, kube-proxy's rules: whether there are any, and whether they serve an address yet.
//!
//! ```text
//! the whole set of questions ──▶ one thread ──▶ what was seen, and each answer that is another
//! ```
//!
//! The thread asks what has not been answered with [`Answer::Ready`]: at once, then again and again, with pauses that grow. It
//! belongs to the network namespace of the thread that called [`start`], and changes nothing there.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use purelb_core::data_path::{Answer, Question, Questions, Seen};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::lease::WallClock;
use prober::Prober;

mod asked;
mod health;
mod iptables;
mod ipvs;
mod netfilter;
mod nftables;
pub mod pretended;
mod prober;
mod source;

/// What became known of the data path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DataPathNews {
    /// Whether this node has a kube-proxy. Nothing said yet means that none was seen.
    Seen(Seen),
    /// The answers that are others than before, each to a question that still stood a moment ago.
    Answers(Vec<(Question, Answer)>),
    /// The thread has ended: no more answers will come.
    Ended,
}

/// Where questions go: all that an agent has, instead of those before. Never waits.
pub type Ask = Arc<dyn Fn(Questions) + Send + Sync>;

/// A data path at the agent's service.
pub struct DataPath {
    /// What became known.
    pub news: UnboundedReceiver<DataPathNews>,
    /// Where to ask.
    pub ask: Ask,
}

/// Starts the thread.
///
/// # Errors
/// When netlink cannot be spoken at all. What only cannot be asked, as nftables without NET_ADMIN, is answered so.
pub fn start(wall: WallClock) -> io::Result<DataPath> {
    let (news, heard) = unbounded_channel();
    let (questions, asked) = mpsc::channel();
    let prober = Prober::open(asked, news.clone(), wall)?;
    let end = End(news);
    let work = move || {
        let _end = end;
        prober.run();
    };
    thread::Builder::new().name("data-path".to_owned()).spawn(work)?;
    // Where the thread has ended, so have the news, and that is where the agent sees it.
    Ok(DataPath { news: heard, ask: Arc::new(move |all| drop(questions.send(all))) })
}

/// Tells of the end of the thread that has it, by a panic or otherwise.
struct End(UnboundedSender<DataPathNews>);

impl Drop for End {
    fn drop(&mut self) {
        // Nobody may be listening any more.
        let _ = self.0.send(DataPathNews::Ended);
    }
}

//! A Node whose addresses nobody has written: for a moment that is nothing, and then it is said.

use std::time::Duration;

use purelb_core::bgp::awaits_addresses;
use purelb_core::moment::Moment;
use purelb_core::reason::Reason;

use super::Bgp;

/// How long a Node may be without addresses before that is said: its kubelet, or its cloud, is just about to write them.
const GRACE: Duration = Duration::from_secs(30);

/// How long this node has been waiting for its addresses.
#[derive(Default)]
pub(super) struct Waiting {
    since: Option<Moment>,
    said: bool,
}

impl Bgp {
    /// Whether it is time to say that this Node has no addresses; once for each wait.
    pub fn has_waited(&mut self, now: Moment) -> bool {
        if !self.is_waiting() {
            self.waiting = Waiting::default();
            return false;
        }
        let over = *self.waiting.since.get_or_insert(now) + GRACE <= now;
        let news = over && !self.waiting.said;
        if news {
            self.waiting.said = true;
            self.changed();
        }
        news
    }

    /// When to ask [`Bgp::has_waited`] again.
    pub fn waits_until(&self) -> Option<Moment> {
        self.waiting.since.filter(|_| !self.waiting.said).map(|since| since + GRACE)
    }

    /// Whether the Node's addresses are all that is missing.
    fn is_waiting(&self) -> bool {
        let unclear = self.in_force.as_ref().filter(|in_force| in_force.meaning.is_none());
        let waits = |(in_force, node): (&super::InForce, _)| awaits_addresses(&in_force.configuration, node);
        unclear.zip(self.node.as_ref()).is_some_and(waits)
    }

    /// Why this node has no router ID, if that is to be said.
    pub(super) fn nameless(&self) -> Option<Reason> {
        let found = self.in_force.as_ref()?.meaning.as_ref().map(|meaning| meaning.router_id.clone().err());
        let waited = || self.waiting.said.then(|| Reason::NodeWithoutAddresses { node: self.me.clone() });
        found.unwrap_or_else(waited)
    }
}

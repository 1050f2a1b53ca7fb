//! From Kubernetes objects to core types, or to the reasons why not; nothing else in PureLB interprets an object.
//!
//! A bad part disables only itself: the rest of an object is used, and every bad part is a [`Problem`] that names the
//! field and the remedy.

mod agent;
mod agent_service;
#[expect(clippy::result_large_err, reason = "a reason is large, and made only where somebody has to read it")]
mod bgp;
mod choose;
mod duration;
mod endpoints;
mod entries;
mod group;
mod in_force;
mod lease;
mod member;
mod node;
mod object;
mod secret;
mod selector;
pub(crate) mod service;

use purelb_core::reason::{Problem, Reason};

pub use agent::{agent, selects};
pub use agent_service::agent_service;
pub use bgp::{BgpObject, BgpReading, bgp, bgp_candidate, bgp_in_force, bgp_last_valid};
pub use choose::{AgentChoice, Chosen, choose_agent, invalid_selector};
pub use duration::parse as duration;
pub use endpoints::endpoint_slice;
pub use group::group;
pub use in_force::{GroupReading, group_forms, kept_form, written_form};
pub use lease::{AgentLease, agent_lease, lease_guards};
pub use member::{lease_view, renew_text};
pub use node::{NodeView, node, node_facts};
pub use object::{GroupObject, ServiceObject, ServiceObjectStatus};
pub use secret::secret;
pub use service::{ServiceRecord, is_ignored, service, service_type};

/// What reading an object gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading<T> {
    /// The object as far as it is usable; `None` where nothing of it is, or where it says nothing.
    pub value: Option<T>,
    /// What is wrong, and therefore not in use.
    pub problems: Vec<Problem>,
    /// What is in use, but likely not what the author meant.
    pub warnings: Vec<Problem>,
}

/// Collects problems and warnings while an object is read.
#[derive(Default)]
struct Notes {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Notes {
    fn problem(&mut self, field: impl Into<String>, reason: Reason) {
        self.problems.push(Problem::new(field, reason));
    }

    fn warning(&mut self, field: impl Into<String>, reason: Reason) {
        self.warnings.push(Problem::new(field, reason));
    }

    /// The value of a result, or nothing and one more problem.
    fn accept<T>(&mut self, field: impl Into<String>, result: Result<T, Reason>) -> Option<T> {
        result.map_err(|reason| self.problem(field, reason)).ok()
    }

    fn reading<T>(self, value: Option<T>) -> Reading<T> {
        Reading { value, problems: self.problems, warnings: self.warnings }
    }
}

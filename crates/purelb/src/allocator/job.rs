//! What the desk wants done and how it went; each Service has at most one job under way.

use std::net::IpAddr;

use kube::api::ObjectMeta;
use purelb_api::read::ServiceRecord;
use purelb_core::alloc::{ExternalRequest, Notice, Wish};
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use serde_json::Value;

/// Something to do outside.
#[derive(Clone, Debug)]
pub enum Job {
    /// Patch a Service's status and annotations, then tell what is to be told about it.
    Patch {
        /// The Service.
        service: ServiceKey,
        /// The merge patch, which carries the version it was decided on.
        patch: Value,
        /// The Events to follow a successful write.
        notices: Vec<Notice>,
    },
    /// Read a Service from the store, because what is known of it may be behind.
    Read {
        /// The Service.
        service: ServiceKey,
    },
    /// Ask an external IPAM for addresses.
    Ask {
        /// The Service.
        service: ServiceKey,
        /// Its sharing key, which the IPAM may honour.
        sharing_key: Option<String>,
        /// The question.
        request: ExternalRequest,
    },
    /// Tell an external IPAM that addresses are free.
    Release(Release),
    /// Patch a ServiceGroup's status, then tell what is to be told about it.
    PatchGroup {
        /// The object, for its name and for Events.
        group: Box<ObjectMeta>,
        /// The merge patch.
        patch: Value,
        /// The Events to follow.
        notices: Vec<Notice>,
    },
}

/// Addresses that a Service no longer needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The IPAM's socket.
    pub socket: String,
    /// The group, which is the IPAM's pool.
    pub group: String,
    /// The Service.
    pub service: ServiceKey,
    /// The one address, or all.
    pub addr: Option<IpAddr>,
}

/// How a job about a Service went.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The Service looks like this now: written, or read.
    Is(Box<ServiceRecord>),
    /// The Service is no LoadBalancer any more, and looks like this.
    Retyped(Box<ServiceRecord>, String),
    /// There is no such Service.
    Gone,
    /// Somebody else was faster; nothing was written.
    Conflict,
    /// The API server refused; nothing was written.
    Refused(String),
    /// Nobody knows whether it was written.
    Unsure(String),
    /// The leadership ended before anything was sent.
    NotSent,
    /// The IPAM's answer.
    Answer(Result<Vec<IpAddr>, Reason>),
}

/// A job that has come to its end.
#[derive(Clone, Debug)]
pub enum Done {
    /// A job about a Service.
    Service(ServiceKey, Outcome),
    /// Addresses were given back, or not yet.
    Released(Release, Result<(), String>),
    /// A group's status was written, or why not.
    Group(String, String, Result<(), String>),
}

/// The wish behind a patch, kept until it is known what became of it.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The wish; `None` for a touch, which changes no address.
    pub wish: Option<Wish>,
    /// The very patch, to be sent again as it is if nobody knows whether it arrived.
    pub job: Job,
}

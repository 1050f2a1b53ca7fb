//! What the desk wants done and how it went; each Service has at most one job under way.

use std::net::IpAddr;

use kube::api::ObjectMeta;
use purelb_api::LBNodeAgent;
use purelb_api::holders::Holders;
use purelb_api::read::{BgpObject, GroupObject, ServiceRecord};
use purelb_core::alloc::{ExternalRequest, Notice};
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use purelb_core::report::Stock;
use serde_json::Value;

use crate::cluster::leader::Answer;

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
    /// Ask an external IPAM how full a group is.
    Count {
        /// The IPAM's socket.
        socket: String,
        /// The group, which is the IPAM's pool.
        group: String,
    },
    /// Read who is on record as a holder of addresses of external IPAMs.
    ReadRecord,
    /// Put on record who holds addresses of external IPAMs.
    WriteRecord {
        /// The object, or the merge patch, which carries the version it was decided on.
        body: Value,
        /// Whether there is no such object yet.
        create: bool,
    },
    /// Patch an LBNodeAgent's status.
    PatchAgent {
        /// The object, for its name.
        agent: Box<ObjectMeta>,
        /// The merge patch.
        patch: Value,
    },
    /// Patch a BGPConfiguration's status.
    PatchBgp {
        /// The object, for its name.
        object: Box<ObjectMeta>,
        /// The merge patch.
        patch: Value,
    },
    /// Let a deleted BGPConfiguration go.
    ReleaseBgp {
        /// The object, for its name.
        object: Box<ObjectMeta>,
        /// The merge patch of its metadata.
        patch: Value,
    },
    /// Tell something about a Service without writing to it.
    Tell {
        /// The Service, and which of the objects that ever had this name it is.
        service: (ServiceKey, String),
        /// The Event.
        notice: Notice,
    },
    /// Ask the lease whether this process still leads.
    Confirm,
    /// Look through one page of the Services that are no LoadBalancers for marks of ours.
    Sweep {
        /// Where to go on; `None` for the first page.
        from: Option<String>,
    },
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
    Answer(Result<Vec<IpAddr>, NoAddress>),
}

/// Why an IPAM gave no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAddress {
    /// The reason the Service is told.
    pub reason: Reason,
    /// Whether the IPAM said nothing at all, so that it is worth asking as soon as it says something.
    pub silent: bool,
}

/// Why an IPAM did not confirm that addresses are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReleased {
    /// What went wrong.
    pub why: String,
    /// Whether it may have been told all the same, or may be yet: then it frees whatever the Service has by that time.
    pub unsure: bool,
}

/// How the write of a group's status went.
#[derive(Clone, Debug)]
pub enum GroupOutcome {
    /// The group looks like this now.
    Is(Box<GroupObject>),
    /// Somebody else was faster, or the group is gone: news of it is on its way.
    Conflict,
    /// The API server refused; nothing was written.
    Refused(String),
    /// Nobody knows whether it was written.
    Unsure(String),
}

/// How the write of an LBNodeAgent's or a BGPConfiguration's status went.
#[derive(Clone, Debug)]
pub enum StatusOutcome<T> {
    /// The object looks like this now.
    Is(Box<T>),
    /// It was not written, or nobody knows.
    Failed,
}

/// How reading or writing the record of external holders went.
#[derive(Clone, Debug)]
pub enum RecordOutcome {
    /// It is in this version and says this, or there is none.
    Is(Option<(String, Holders)>),
    /// Somebody else was faster; nothing was written.
    Conflict,
    /// The API server refused; nothing was written.
    Refused(String),
    /// Nobody knows whether it was written.
    Unsure,
}

/// How looking for marks of ours went.
#[derive(Clone, Debug)]
pub enum SweepOutcome {
    /// These have marks; and where to go on, if there are more pages.
    Found(Vec<ServiceKey>, Option<String>),
    /// The API server has forgotten where to go on.
    Expired,
    /// It did not answer.
    Failed,
}

/// A job that has come to its end.
#[derive(Clone, Debug)]
pub enum Done {
    /// A job about a Service.
    Service(ServiceKey, Outcome),
    /// Addresses were given back, or not yet.
    Released(Release, Result<(), NotReleased>),
    /// How full a group of an IPAM at this socket is, or why nobody knows.
    Counted(String, String, Result<Stock, String>),
    /// The record of external holders was read or written, or why not.
    Record(RecordOutcome),
    /// An LBNodeAgent's status was written, or not.
    Agent(String, String, StatusOutcome<LBNodeAgent>),
    /// A BGPConfiguration was written, or not.
    Bgp(String, String, StatusOutcome<BgpObject>),
    /// A page of the Services that are no LoadBalancers was looked through, or not.
    Swept(SweepOutcome),
    /// What the lease says about this leadership.
    Confirmed(Answer),
    /// Something was told.
    Told,
    /// A group's status was written, or why not.
    Group(String, String, GroupOutcome),
}

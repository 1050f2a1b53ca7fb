//! PureLB's custom resources and the only place that interprets Kubernetes objects.
//!
//! - [`service_group`], [`node_agent`]: the kinds, as Rust types
//! - [`crds`](mod@crds): the CustomResourceDefinitions that clusters install
//! - [`annotations`]: every annotation key and well-known name
//! - [`holders`]: who may hold addresses of external IPAMs, as PureLB keeps it in the cluster
//! - [`read`]: from objects to core types, or to the reasons why not
//! - [`write`](mod@write): from decisions to patches
//! - [`schema`]: pruning, defaulting and checking of objects as the API server does it
//! - [`validate`](mod@validate): the check of manifests that needs no cluster

pub mod annotations;
mod conditions;
pub mod crds;
pub mod holders;
mod names;
pub mod node_agent;
pub mod read;
pub mod schema;
pub mod service_group;
pub mod validate;
pub mod write;

pub use crds::{crd_files, crds, crds_yaml};
pub use node_agent::{LBNodeAgent, LBNodeAgentSpec, LBNodeAgentStatus};
pub use service_group::{ServiceGroup, ServiceGroupSpec, ServiceGroupStatus};
pub use validate::validate;

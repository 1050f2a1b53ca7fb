//! PureLB's custom resources and the only place that interprets Kubernetes objects.
//!
//! - [`service_group`], [`node_agent`], [`bgp_configuration`], [`bgp_node_status`]: the kinds, as Rust types
//! - [`crds`](mod@crds): the CustomResourceDefinitions that clusters install
//! - [`annotations`]: every annotation key and well-known name
//! - [`holders`]: who may hold addresses of external IPAMs, as PureLB keeps it in the cluster
//! - [`read`]: from objects to core types, or to the reasons why not
//! - [`write`](mod@write): from decisions to patches
//! - [`schema`]: pruning, defaulting and checking of objects as the API server does it
//! - [`validate`](mod@validate): the check of manifests that needs no cluster

pub mod annotations;
pub mod bgp_configuration;
pub mod bgp_node_status;
mod conditions;
pub mod crds;
pub mod holders;
pub mod last_valid;
mod names;
pub mod node_agent;
pub mod read;
pub mod schema;
pub mod service_group;
pub mod validate;
pub mod write;

pub use bgp_configuration::{BGPConfiguration, BGPConfigurationSpec, BGPConfigurationStatus};
pub use bgp_node_status::{BGPNodeStatus, BGPNodeStatusStatus};
pub use crds::{crd_files, crds, crds_yaml};
pub use node_agent::{LBNodeAgent, LBNodeAgentSpec, LBNodeAgentStatus};
pub use service_group::{ServiceGroup, ServiceGroupSpec, ServiceGroupStatus};
pub use validate::validate;

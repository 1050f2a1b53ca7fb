//! Every decision PureLB takes, as pure functions over plain data: no I/O, no clock, no async, no Kubernetes types.
//!
//! To find a behaviour ask which decision it is and open one file:
//!
//! - [`addr`]: what a family, a range and a prefix are, and how people write them
//! - [`group`]: what a ServiceGroup says once it is understood, and which groups cannot live together
//! - [`pool`]: which addresses of a group are free, who holds the others and who may share them
//! - [`book`]: all groups with their pools, the namespaces they serve, and who holds what
//! - [`service`], [`alloc`]: what a Service asks for, and what it should get
//! - [`report`](mod@report): what a group's status says
//! - [`agent`]: what an LBNodeAgent says once it is understood
//! - [`bgp`]: what a BGPConfiguration says once it is understood, and what it means for a node
//! - [`links`]: what the kernel of a node shows
//! - [`want`]: what this node should hold
//! - [`place`](mod@place): where an address goes on this node
//! - [`reserved`](mod@reserved): which addresses no Service may have
//! - [`plan`](mod@plan): what to do so that the kernel shows what the node should hold
//! - [`model`]: a kernel in memory, for tests
//! - [`members`], [`elect`](mod@elect): who is alive, and which node holds a local address
//! - [`data_path`]: what is asked of the data path on this node, and what it says
//! - [`endpoints`]: which nodes have a ready endpoint of a Service
//! - [`slots`]: who announces an address, as a Service's annotations say it
//! - [`frames`]: the bytes by which neighbours learn that an address has moved
//! - [`moment`]: time, which is always an argument
//! - [`reason`]: every refusal and warning, once, with the sentence a person reads

pub mod addr;
pub mod agent;
pub mod alloc;
pub mod bgp;
pub mod book;
pub mod data_path;
pub mod elect;
pub mod endpoints;
pub mod frames;
pub mod group;
pub mod links;
pub mod members;
pub mod model;
pub mod moment;
pub mod place;
pub mod plan;
pub mod pool;
pub mod reason;
pub mod report;
pub mod reserved;
pub mod service;
pub mod slots;
pub mod want;

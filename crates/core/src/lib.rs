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
//! - [`reason`]: every refusal and warning, once, with the sentence a person reads

pub mod addr;
pub mod agent;
pub mod alloc;
pub mod book;
pub mod group;
pub mod pool;
pub mod reason;
pub mod report;
pub mod service;

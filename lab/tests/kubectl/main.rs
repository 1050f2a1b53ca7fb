//! A person with kubectl sees the same on kubelite as on a real kube-apiserver.
//!
//! Every command runs on both, and both must print what the test shows. What differs from run to run is written as a word
//! in capitals: ages, times, cluster addresses, node ports, UIDs.

mod agents;
mod bgp;
mod change;
mod get;
mod learn;
mod manifests;
mod person;
mod servers;
mod watch;

//! A whole cluster: that its parts work together as in a cluster of machines, and what is proven on it.
//!
//! One cluster serves all stories of this program; each keeps to a namespace of its own. A story that fails leaves its
//! evidence in a folder that the error names.

mod allocation;
mod confinement;
mod keeping;
mod pods;
mod policies;
mod purelb;
mod rights;
mod seeds;
mod services;
mod site;
mod speaker;
mod trouble;
mod upgrade;

//! A whole cluster: that its parts work together as in a cluster of machines, and what is proven on it.
//!
//! One cluster serves all stories of this program; each keeps to a namespace of its own. A story that fails leaves its
//! evidence in a folder that the error names.

mod allocation;
mod confinement;
mod doors;
mod entrance;
mod evidence;
mod from_0_13;
mod from_0_17;
mod guide;
mod keeping;
mod makes;
mod mistakes;
mod past;
mod pods;
mod policies;
mod purelb;
mod rights;
mod rolling;
mod scene;
mod seeds;
mod selected;
mod services;
mod site;
mod speaker;
mod trouble;
mod uninstall;
mod upgrade;

//! The documents, held to the program: what they show is run, applied, built or looked up.

mod cli;
mod console;
mod kustomizations;
mod links;
mod manifests;
mod nodes;
mod page;

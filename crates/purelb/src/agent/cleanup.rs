//! Taking everything off a node that agents have put there, for uninstalling.

use std::io;
use std::net::IpAddr;

use purelb_core::links::{Link, LinkKind};
use purelb_core::plan::{Step, Why};

use super::clock::Clock;
use super::kernel::steps::{self, StepError};
use super::kernel::{Asking, everything};

/// An address on an interface, in words that `ip addr` understands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// The interface.
    pub link: String,
    /// The address.
    pub addr: IpAddr,
    /// Its prefix length.
    pub prefix: u8,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Cleaned {
    /// Addresses that were taken off.
    pub addrs: Vec<Found>,
    /// Interfaces that were removed.
    pub links: Vec<String>,
    /// Addresses on a virtual interface that do not carry our mark, and so kept it alive. They are the operator's, or those
    /// of an earlier release on a kernel before 5.18.
    pub kept: Vec<Found>,
    /// Whether the kernel keeps marks, so that what was kept is certainly not ours.
    pub marks: bool,
    /// What could not be done; the rest was.
    pub errors: Vec<StepError>,
}

impl Cleaned {
    /// Whether nothing of ours can be left.
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty() && (self.marks || self.kept.is_empty())
    }
}

/// Takes every address with our mark off every interface, and removes the virtual interfaces of these names if they are
/// ours: a dummy or an ifb without addresses of others. Goes on where something fails.
///
/// # Errors
/// When the kernel's state cannot be read; then nothing was done.
pub fn cleanup(virtual_links: &[&str]) -> io::Result<Cleaned> {
    let mut asking = Asking::open()?;
    let links = everything(&mut asking, Clock::new().now())?;
    let mut cleaned = Cleaned { marks: links.keeps_protocol(), ..Cleaned::default() };
    let mut wanted = Vec::new();
    for (&index, link) in &links.by_index {
        let goes = ours(link, virtual_links);
        if virtual_links.contains(&link.name.as_str()) && !goes {
            cleaned.kept.extend(foreign(link));
        }
        // What is on an interface that goes would go with it; taken off one by one, each is in the report.
        let marked = link.addrs.iter().filter(|held| held.is_marked());
        let drop = |addr, prefix| Step::DropAddr { link: index, addr, prefix, why: Why::Shutdown };
        wanted.extend(marked.map(|held| (drop(held.addr, held.prefix), link)));
        wanted.extend(goes.then_some((Step::DropLink { link: index }, link)));
    }
    let (todo, of): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
    for ((step, result), link) in steps::apply_all(&mut asking, todo).into_iter().zip(of) {
        match (step, result) {
            (_, Err(error)) => cleaned.errors.push(error),
            (Step::DropAddr { addr, prefix, .. }, Ok(())) => {
                cleaned.addrs.push(Found { link: link.name.clone(), addr, prefix });
            }
            _ => cleaned.links.push(link.name.clone()),
        }
    }
    Ok(cleaned)
}

fn ours(link: &Link, virtual_links: &[&str]) -> bool {
    let virtual_kind = matches!(link.kind, LinkKind::Dummy | LinkKind::Ifb);
    virtual_links.contains(&link.name.as_str()) && virtual_kind && foreign(link).is_empty()
}

/// Addresses that are neither ours nor the kernel's own link-local one.
fn foreign(link: &Link) -> Vec<Found> {
    let kernels = |addr: IpAddr| matches!(addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let others = link.addrs.iter().filter(|held| !held.is_marked() && !kernels(held.addr));
    others.map(|held| Found { link: link.name.clone(), addr: held.addr, prefix: held.prefix }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_kernel_keeps_no_marks_what_is_kept_may_be_ours_and_the_work_is_not_done() {
        let kept = vec![Found { link: "kube-lb0".into(), addr: IpAddr::from([10, 0, 0, 1]), prefix: 32 }];
        let cleaned = |marks, kept| Cleaned { marks, kept, ..Cleaned::default() }.is_complete();
        assert!(cleaned(true, kept.clone()), "an operator's");
        assert!(!cleaned(false, kept));
        assert!(cleaned(false, Vec::new()));
    }
}

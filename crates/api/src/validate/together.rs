//! What is wrong with objects only because of each other: the same object twice, one address in two groups, groups too
//! far apart, two configurations of one speaker, an interface that is not advertised.

use std::collections::BTreeMap;

use purelb_core::bgp::{Candidate, Configuration, choose, imports};
use purelb_core::group::{Group, Placement, clashes};

use super::object::{Found, Said, Site};
use super::{Fault, Finding, Severity};

/// Everything that is wrong between the objects of one configuration, whatever files and versions they are in.
pub fn check(found: &[Found]) -> Vec<Finding> {
    let (first, repeated) = firsts(found);
    let groups = first.iter().filter_map(|one| match &one.said {
        Said::Group(group) => Some((&one.site, group)),
        _ => None,
    });
    let groups: Vec<_> = groups.collect();
    let mut findings = repeated;
    findings.extend(between(&groups));
    findings.extend(apart(&groups));
    findings.extend(speakers(&first));
    findings
}

/// Configurations of one speaker, of which one counts, and what that one does not advertise.
fn speakers(found: &[&Found]) -> Vec<Finding> {
    let configurations = found.iter().filter_map(|one| match &one.said {
        Said::Bgp(configuration) => Some((&one.site, configuration)),
        _ => None,
    });
    let configurations: Vec<_> = configurations.collect();
    let candidate = |(_, configuration): &(&Site, &Configuration)| Candidate {
        namespace: configuration.namespace.clone(),
        name: configuration.name.clone(),
        created: 0,
        leaving: false,
    };
    let candidates: Vec<_> = configurations.iter().map(candidate).collect();
    let choice = choose(&candidates, "");
    let warning = |i: usize, field: &str, fault: Fault| configurations[i].0.finding(Severity::Warning, field, &fault);
    let ignored = choice.ignored.into_iter().map(|(i, reason)| warning(i, "metadata.name", reason.into()));
    let mut findings: Vec<_> = ignored.collect();
    let chosen = choice.chosen.filter(|i| !configurations[*i].1.import.interfaces.is_empty());
    for (i, agent) in chosen.into_iter().flat_map(|i| found.iter().map(move |one| (i, one))) {
        if let Said::Agent(config) = &agent.said
            && !imports(&configurations[i].1.import, &config.virtual_interface)
        {
            let (agent, interface) = (config.name.clone(), config.virtual_interface.clone());
            let fault = Fault::VirtualInterfaceNotImported { agent, interface };
            findings.push(warning(i, "spec.netlinkImport.interfaceList", fault));
        }
    }
    findings
}

/// The objects without repetitions, and a finding for each repetition.
fn firsts(found: &[Found]) -> (Vec<&Found>, Vec<Finding>) {
    let mut seen: BTreeMap<_, &Site> = BTreeMap::new();
    let (mut firsts, mut repeated) = (Vec::new(), Vec::new());
    for one in found {
        let site = &one.site;
        match seen.get(&(&site.kind, &site.namespace, &site.name)).filter(|_| !site.name.is_empty()) {
            Some(first) => {
                let fault = Fault::ObjectDuplicate { first: first.place() };
                repeated.push(site.finding(Severity::Error, "metadata.name", &fault));
            }
            None => {
                seen.insert((&site.kind, &site.namespace, &site.name), site);
                firsts.push(one);
            }
        }
    }
    (firsts, repeated)
}

/// Names and addresses that two groups claim.
fn between(groups: &[(&Site, &Group)]) -> Vec<Finding> {
    let read: Vec<Group> = groups.iter().map(|(_, group)| (*group).clone()).collect();
    clashes(&read)
        .into_iter()
        .map(|clash| {
            let (site, problem) = (groups[clash.refused].0, clash.problem);
            site.finding(Severity::Error, &problem.field, &problem.reason.into())
        })
        .collect()
}

/// Groups that PureLB reads only from its own namespace, in more namespaces than one.
fn apart(groups: &[(&Site, &Group)]) -> Vec<Finding> {
    let placed =
        || groups.iter().filter(|(site, group)| group.placement != Placement::Auto && !site.namespace.is_empty());
    let Some((_, first)) = placed().next() else { return Vec::new() };
    let elsewhere = placed().filter(|(site, _)| site.namespace != first.namespace);
    elsewhere
        .map(|(site, _)| {
            let fault = Fault::NamespacesDiffer { namespace: site.namespace.clone(), other: first.key() };
            site.finding(Severity::Warning, "metadata.namespace", &fault)
        })
        .collect()
}

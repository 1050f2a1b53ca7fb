//! From an LBNodeAgent, in the words of either version, to the configuration of node agents.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};
use purelb_core::agent::{AddressOptions, AgentConfig, Garp, LocalInterface};
use purelb_core::reason::Reason;
use regex::Regex;

use super::{Notes, Reading, duration, selector};
use crate::node_agent::{AddressLifetime, GarpConfig, LBNodeAgent, LocalAgent};

/// What `localInterface` says when its author said nothing.
const DEFAULT_ROUTE: &str = "default";
/// What `dummyInterface` says when its author said nothing.
const VIRTUAL_INTERFACE: &str = "kube-lb0";

/// Reads an LBNodeAgent. One without `local` gives no configuration and no problem: it says nothing.
pub fn agent(object: &LBNodeAgent) -> Reading<AgentConfig> {
    let mut notes = Notes::default();
    let config = read(object, &mut notes);
    notes.reading(config)
}

/// Whether an LBNodeAgent is for a node with these labels. One whose selector cannot be evaluated is for none.
pub fn selects(object: &LBNodeAgent, labels: &BTreeMap<String, String>) -> bool {
    match object.spec.node_selector.clone().map(Selector::try_from) {
        None => true,
        Some(Ok(selector)) => selector.matches(labels),
        Some(Err(_)) => false,
    }
}

fn read(object: &LBNodeAgent, notes: &mut Notes) -> Option<AgentConfig> {
    let unusable = object.spec.node_selector.iter().flat_map(|found| selector::check("spec.nodeSelector", found));
    notes.problems.extend(unusable);
    let selects = notes.problems.is_empty();
    let local = object.spec.local.as_ref()?;
    let local_interface = local_interface(local, notes);
    let virtual_interface = virtual_interface(local, notes);
    let interfaces = interfaces(&local.interfaces, notes);
    let garp = garp(local, notes);
    let options = local.address_config.clone().unwrap_or_default();
    let mut address_options = |name: &str, written: Option<AddressLifetime>| {
        written
            .map(|written| lifetimes(&format!("spec.local.addressConfig.{name}"), &written, notes))
            .unwrap_or_default()
    };
    let on_nic = address_options("localInterface", options.local_interface);
    let on_virtual = address_options("dummyInterface", options.dummy_interface);
    selects.then_some(AgentConfig {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        local_interface: local_interface?,
        interfaces,
        virtual_interface: virtual_interface?,
        garp,
        on_nic,
        on_virtual,
    })
}

/// One setting under its v2 and its v1 name.
struct Named<'a> {
    new: &'static str,
    new_value: &'a Option<String>,
    old: &'static str,
    old_value: &'a Option<String>,
    default: &'static str,
}

impl Named<'_> {
    /// The field that counts and its value.
    ///
    /// An object written through one version is stored with the other's defaults beside what its author wrote, so a
    /// value that is no default wins whatever its name; of two such, the v2 name's.
    fn resolve(&self, notes: &mut Notes) -> (String, String) {
        let said = |value: &Option<String>| value.clone().filter(|text| !text.is_empty() && text != self.default);
        let (field, value) = match (said(self.new_value), said(self.old_value)) {
            (Some(new_value), old_value) => {
                if let Some(old_value) = old_value.filter(|old_value| *old_value != new_value) {
                    let new_value = new_value.clone();
                    let reason = Reason::OldNameIgnored { old: self.old, old_value, new: self.new, new_value };
                    notes.warning(format!("spec.local.{}", self.old), reason);
                }
                (self.new, new_value)
            }
            (None, Some(old_value)) => (self.old, old_value),
            (None, None) => (self.new, self.default.to_owned()),
        };
        (format!("spec.local.{field}"), value)
    }
}

fn local_interface(local: &LocalAgent, notes: &mut Notes) -> Option<LocalInterface> {
    let named = Named {
        new: "localInterface",
        new_value: &local.local_interface,
        old: "localint",
        old_value: &local.localint,
        default: DEFAULT_ROUTE,
    };
    let (field, text) = named.resolve(notes);
    if text == DEFAULT_ROUTE {
        return Some(LocalInterface::DefaultRoute);
    }
    let pattern = Regex::new(&text).map(|_| LocalInterface::Matching(text.clone()));
    let pattern = pattern.map_err(|error| Reason::InterfacePattern { text, problem: gist(&error) });
    notes.accept(field, pattern)
}

/// The last line of the parser's message; the lines before draw the pattern again.
fn gist(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn virtual_interface(local: &LocalAgent, notes: &mut Notes) -> Option<String> {
    let named = Named {
        new: "dummyInterface",
        new_value: &local.dummy_interface,
        old: "extlbint",
        old_value: &local.extlbint,
        default: VIRTUAL_INTERFACE,
    };
    let (field, text) = named.resolve(notes);
    interface_name(field, text, notes)
}

fn interfaces(names: &[String], notes: &mut Notes) -> Vec<String> {
    let named = names.iter().enumerate().map(|(i, name)| (format!("spec.local.interfaces[{i}]"), name.clone()));
    named.filter_map(|(field, name)| interface_name(field, name, notes)).collect()
}

/// The kernel's rule for interface names: it keeps 15 bytes and gives `/`, `:` and blanks other meanings.
pub(super) fn interface_name(field: String, text: String, notes: &mut Notes) -> Option<String> {
    let legal = (1..=15).contains(&text.len())
        && !matches!(text.as_str(), "." | "..")
        && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    if legal {
        return Some(text);
    }
    notes.problem(field, Reason::InterfaceName { text });
    None
}

fn garp(local: &LocalAgent, notes: &mut Notes) -> Option<Garp> {
    // 0.13 stored `sendgarp: false` in every object, so only true is somebody's word.
    let old = local.sendgarp == Some(true);
    let written = match &local.garp_config {
        Some(written) => written.clone(),
        None if old => GarpConfig::default(),
        None => return None,
    };
    if old && !written.enabled {
        let (old_value, new_value) = ("true".to_owned(), "false".to_owned());
        let reason = Reason::OldNameIgnored { old: "sendgarp", old_value, new: "garpConfig.enabled", new_value };
        notes.warning("spec.local.sendgarp", reason);
    }
    Some(Garp {
        enabled: written.enabled,
        initial_delay: pause("initialDelay", &written.initial_delay, "100ms", Duration::from_millis(100), notes),
        count: count(written.count, notes),
        interval: pause("interval", &written.interval, "500ms", Duration::from_millis(500), notes),
        verify_before_send: written.verify_before_send,
    })
}

fn pause(name: &str, text: &str, fallback: &'static str, default: Duration, notes: &mut Notes) -> Duration {
    duration::parse(text).unwrap_or_else(|| {
        let reason = Reason::DurationSyntax { text: text.to_owned(), fallback };
        notes.warning(format!("spec.local.garpConfig.{name}"), reason);
        default
    })
}

fn count(value: i64, notes: &mut Notes) -> u8 {
    if !(1..=10).contains(&value) {
        notes.warning("spec.local.garpConfig.count", Reason::NumberOutOfRange { value, lowest: 1, highest: 10 });
    }
    u8::try_from(value.clamp(1, 10)).unwrap_or(1)
}

fn lifetimes(path: &str, written: &AddressLifetime, notes: &mut Notes) -> AddressOptions {
    let valid_lifetime = seconds(format!("{path}.validLifetime"), written.valid_lifetime, notes);
    let mut preferred_lifetime = seconds(format!("{path}.preferredLifetime"), written.preferred_lifetime, notes);
    // 0 is "for ever", which nothing is longer than.
    if let (Some(valid @ 1..), Some(preferred)) = (valid_lifetime, preferred_lifetime)
        && preferred > valid
    {
        notes.warning(format!("{path}.preferredLifetime"), Reason::LifetimesReversed { preferred, valid });
        preferred_lifetime = Some(valid);
    }
    AddressOptions { valid_lifetime, preferred_lifetime, no_prefix_route: written.no_prefix_route }
}

fn seconds(field: String, value: Option<i64>, notes: &mut Notes) -> Option<u32> {
    let value = value?;
    // The kernel reads all ones as "for ever", for which 0 is the word here.
    let highest = i64::from(u32::MAX - 1);
    let read = u32::try_from(value).ok().filter(|read| *read < u32::MAX);
    notes.accept(field, read.ok_or(Reason::NumberOutOfRange { value, lowest: 0, highest }))
}

#[cfg(test)]
mod tests;

//! From a ServiceGroup, in any form that was ever written, to a group of ranges or of an IPAM.

use kube::ResourceExt;
use purelb_core::group::{Group, Placement, Source};
use purelb_core::reason::Reason;

use super::entries::{self, Flat};
use super::{Notes, Reading};
use crate::service_group::{DEFAULT_SOCKET, External, Netbox, ServiceGroup, ServiceGroupSpec};

/// The tenant that a NetBox group uses if it names none, as PureLB's first releases defaulted it.
const DEFAULT_TENANT: &str = "ipam-purelb";

/// Where a group's addresses may come from, in the order in which they count if several are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Local,
    Remote,
    External,
    Netbox,
    Flat,
}

impl Form {
    const ALL: [Form; 5] = [Form::Local, Form::Remote, Form::External, Form::Netbox, Form::Flat];

    fn is_in(self, spec: &ServiceGroupSpec) -> bool {
        match self {
            Form::Local => spec.local.is_some(),
            Form::Remote => spec.remote.is_some(),
            Form::External => spec.external.is_some(),
            Form::Netbox => spec.netbox.is_some(),
            Form::Flat => Flat::of_spec(spec).is_written(),
        }
    }

    fn field(self) -> &'static str {
        match self {
            Form::Local => "spec.local",
            Form::Remote => "spec.remote",
            Form::External => "spec.external",
            Form::Netbox => "spec.netbox",
            Form::Flat => "spec.pool",
        }
    }
}

/// Reads a ServiceGroup.
pub fn group(object: &ServiceGroup) -> Reading<Group> {
    let mut notes = Notes::default();
    let group = read(object, &mut notes);
    notes.reading(group)
}

fn read(object: &ServiceGroup, notes: &mut Notes) -> Option<Group> {
    let spec = &object.spec;
    let name = object.name_any();
    if let Some(written) = spec.name.as_ref().filter(|written| **written != name) {
        notes.warning("spec.name", Reason::NameIgnored { written: written.clone(), name: name.clone() });
    }
    check_namespaces(spec, notes);
    let form = choose(spec, notes)?;
    let placement = placement(spec, form, notes);
    // What is wrong with the source is worth saying even if nobody knows where its addresses would go.
    let source = source(spec, form, placement, notes);
    let (placement, source) = (placement?, source?);
    Some(Group {
        namespace: object.namespace().unwrap_or_default(),
        name,
        placement,
        source,
        skip_ipv6_dad: form == Form::Local && spec.local.as_ref().is_some_and(|local| local.skip_ipv6_dad),
        namespaces: spec.namespaces.clone(),
        enforce_namespaces: spec.enforce_namespaces,
        namespace_default: spec.namespace_default,
    })
}

fn check_namespaces(spec: &ServiceGroupSpec, notes: &mut Notes) {
    let flags = [("enforceNamespaces", spec.enforce_namespaces), ("namespaceDefault", spec.namespace_default)];
    for (flag, _) in flags.into_iter().filter(|(_, set)| *set && spec.namespaces.is_empty()) {
        notes.problem(format!("spec.{flag}"), Reason::NamespacesMissing { flag });
    }
}

/// The form that counts; the others that are written too get a warning.
fn choose(spec: &ServiceGroupSpec, notes: &mut Notes) -> Option<Form> {
    let mut written = Form::ALL.into_iter().filter(|form| form.is_in(spec));
    let Some(form) = written.next() else {
        notes.problem("spec", Reason::NoSource);
        return None;
    };
    for ignored in written {
        let reason = Reason::SourceIgnored { ignored: ignored.field(), used: form.field() };
        notes.warning(ignored.field(), reason);
    }
    Some(form)
}

/// Where the addresses go. The flat form and NetBox are v1's, where every group is automatic.
fn placement(spec: &ServiceGroupSpec, form: Form, notes: &mut Notes) -> Option<Placement> {
    let stated = match form {
        Form::Netbox | Form::Flat => return Some(Placement::Auto),
        Form::Local if spec.placement.is_some() => return Some(Placement::Auto),
        Form::Local => return Some(Placement::Local),
        Form::Remote => Placement::Remote,
        Form::External => announce(spec.external.as_ref()?, notes)?,
    };
    if spec.placement.is_some() {
        let source_field = if form == Form::Remote { "remote" } else { "external" };
        notes.problem("spec.placement", Reason::PlacementContradicted { source_field });
    }
    Some(stated)
}

fn announce(external: &External, notes: &mut Notes) -> Option<Placement> {
    match external.announce.as_str() {
        "local" => Some(Placement::Local),
        "remote" => Some(Placement::Remote),
        other => {
            notes.problem("spec.external.announce", Reason::ExternalAnnounce { announce: other.to_owned() });
            None
        }
    }
}

fn source(spec: &ServiceGroupSpec, form: Form, placement: Option<Placement>, notes: &mut Notes) -> Option<Source> {
    let lenient = placement == Some(Placement::Auto);
    match form {
        Form::Local => {
            let local = spec.local.as_ref()?;
            entries::ranges("spec.local", &local.pools, Flat::of_local(local), lenient, notes).map(Source::Ranges)
        }
        Form::Remote => {
            let remote = spec.remote.as_ref()?;
            entries::ranges("spec.remote", remote, Flat::default(), lenient, notes).map(Source::Ranges)
        }
        Form::External => Some(external(spec.external.as_ref()?, notes)),
        Form::Netbox => netbox(spec.netbox.as_ref()?, notes),
        Form::Flat => {
            let none = crate::service_group::Pools::default();
            entries::ranges("spec", &none, Flat::of_spec(spec), lenient, notes).map(Source::Ranges)
        }
    }
}

fn external(external: &External, notes: &mut Notes) -> Source {
    if external.provider.is_empty() {
        let reason = Reason::FieldMissing { field: "provider", example: "the name of the IPAM, such as netbox" };
        notes.problem("spec.external.provider", reason);
    }
    let socket = if external.socket.is_empty() { DEFAULT_SOCKET } else { &external.socket };
    Source::External { provider: external.provider.clone(), socket: socket.to_owned() }
}

fn netbox(netbox: &Netbox, notes: &mut Notes) -> Option<Source> {
    if netbox.url.is_empty() {
        let reason =
            Reason::FieldMissing { field: "url", example: "the address of the server, such as https://netbox.example" };
        notes.problem("spec.netbox.url", reason);
        return None;
    }
    Some(Source::Netbox {
        url: netbox.url.clone(),
        tenant: netbox.tenant.clone().unwrap_or_else(|| DEFAULT_TENANT.to_owned()),
        aggregation: netbox.aggregation.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;

//! A BGPConfiguration as it comes, whatever is in it.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::api::ObjectMeta;
use purelb_core::bgp::Candidate;
use purelb_core::reason::Problem;
use serde::Deserialize;

use crate::bgp_configuration::{BGPConfiguration, BGPConfigurationSpec, BGPConfigurationStatus};
use crate::read::object::{Raw, salvaged};

/// A BGPConfiguration as far as it can be read, with the fields that cannot. One that an older CRD let in must not hide
/// all others.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Raw")]
pub struct BgpObject {
    /// The object, without the fields that have a wrong type.
    pub object: BGPConfiguration,
    /// The fields of its spec that have a wrong type.
    pub unread: Vec<Problem>,
}

impl From<BGPConfiguration> for BgpObject {
    fn from(object: BGPConfiguration) -> Self {
        Self { object, unread: Vec::new() }
    }
}

impl From<Raw> for BgpObject {
    fn from(raw: Raw) -> Self {
        let (metadata, spec, status, unread) = raw.parts::<BGPConfigurationSpec>();
        // What is wrong with the status is nobody's concern: it is about to be written anew.
        let status = status.map(|status| salvaged::<BGPConfigurationStatus>(status).0);
        Self { object: BGPConfiguration { metadata, spec, status }, unread }
    }
}

impl Resource for BgpObject {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        BGPConfiguration::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        BGPConfiguration::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        BGPConfiguration::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        BGPConfiguration::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.object.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.object.metadata
    }
}

/// What decides whether the object counts.
pub fn bgp_candidate(read: &BgpObject) -> Candidate {
    let metadata = &read.object.metadata;
    Candidate {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        leaving: metadata.deletion_timestamp.is_some(),
    }
}

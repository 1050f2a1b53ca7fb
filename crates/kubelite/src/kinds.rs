//! The kinds the server serves: a table for the built-in ones, and the registry that custom resources join.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::builtin;
use crate::names::NameRule;
use crate::rules::Rules;
use crate::status::Subject;
use crate::table::Column;

/// One kind and all the ways to reach it.
pub(crate) struct Resource {
    /// Where its objects are kept; `plural.group`, which is also the name of a custom resource's definition.
    pub bucket: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub name_rule: NameRule,
    pub traits: Traits,
    pub served: Vec<Served>,
    pub rules: Arc<dyn Rules>,
}

/// Small differences between kinds that are not worth a method.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits {
    /// A PUT to a name that does not exist creates the object.
    pub create_on_update: bool,
    /// A PUT must carry the resourceVersion it was based on.
    pub versioned_update: bool,
    /// DELETE answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// `metadata.generation` counts the changes of everything but metadata and status.
    pub counts_generations: bool,
    /// An instance of a custom resource: lists keep the type fields, strategic merge patches are refused.
    pub custom: bool,
}

/// One group and version in which a kind is served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Served {
    pub group: String,
    pub version: String,
    /// There is a `status` subresource.
    pub status: bool,
    /// What field selectors may ask for besides name and namespace.
    pub fields: Vec<Field>,
    /// What `kubectl get` prints.
    pub columns: Arc<[Column]>,
}

impl Served {
    /// `apiVersion` of objects in this version.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// A field that selectors know: its label and where its value is found, first hit first.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub label: String,
    pub pointers: Vec<String>,
    /// What an absent field counts as.
    pub default: &'static str,
}

impl Field {
    pub(crate) fn read(&self, object: &Value) -> String {
        let found = self.pointers.iter().filter_map(|pointer| object.pointer(pointer));
        let mut texts = found.filter_map(|value| match value {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        });
        texts.next().unwrap_or_else(|| self.default.into())
    }
}

impl Resource {
    /// An object of this kind as most error messages name it.
    pub(crate) fn subject(&self, served: &Served, name: &str) -> Subject {
        Subject::new(&served.group, &self.plural, name)
    }

    /// An object of this kind as validation errors name it.
    pub(crate) fn kind_subject(&self, name: &str) -> Subject {
        let group = self.bucket.split_once('.').map_or("", |(_, group)| group);
        Subject::new(group, &self.kind, name)
    }
}

/// All kinds, by group, version and plural name.
pub(crate) struct Registry {
    resources: BTreeMap<String, Arc<Resource>>,
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn new() -> Self {
        let resources = builtin::resources().into_iter().map(|it| (it.bucket.clone(), Arc::new(it))).collect();
        Self { resources }
    }

    /// Adds or replaces a custom kind; the built-in ones cannot be replaced.
    pub(crate) fn insert(&mut self, resource: Resource) {
        if self.by_bucket(&resource.bucket).is_some_and(|known| !known.traits.custom) {
            return;
        }
        self.resources.insert(resource.bucket.clone(), Arc::new(resource));
    }

    pub(crate) fn remove(&mut self, bucket: &str) {
        if self.by_bucket(bucket).is_some_and(|known| known.traits.custom) {
            self.resources.remove(bucket);
        }
    }

    /// The kind and the version behind a URL.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<(Arc<Resource>, Served)> {
        self.resources.values().filter(|it| it.plural == plural).find_map(|it| {
            let served = it.served.iter().find(|served| served.group == group && served.version == version)?;
            Some((it.clone(), served.clone()))
        })
    }

    pub(crate) fn by_bucket(&self, bucket: &str) -> Option<&Arc<Resource>> {
        self.resources.get(bucket)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }
}

/// Buckets that other files look into by name.
pub(crate) mod bucket {
    pub(crate) const SERVICES: &str = "services";
    pub(crate) const NAMESPACES: &str = "namespaces";
    pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
}

//! One request to a resource, resolved: which kind, which version, which object.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::{Resource, Served};
use crate::status::Subject;
use crate::store::{Key, Object};
use crate::table::Include;

/// In which form objects travel to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Full,
    /// `PartialObjectMetadata`: type and metadata only.
    MetadataOnly,
    /// A `Table` for people; where there is nothing to tabulate, the same as `Full`.
    Table(Include),
}

/// A resolved request.
pub(crate) struct Call {
    pub resource: Arc<Resource>,
    pub served: Served,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub form: Form,
}

impl Call {
    /// Where the addressed object is kept.
    pub(crate) fn key(&self) -> Key {
        self.key_of(self.name.as_deref().unwrap_or_default())
    }

    /// Where an object of this name would be kept.
    pub(crate) fn key_of(&self, name: &str) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or_default(), name)
    }

    /// The addressed object as error messages name it.
    pub(crate) fn subject(&self) -> Subject {
        self.subject_of(self.name.as_deref().unwrap_or_default())
    }

    pub(crate) fn subject_of(&self, name: &str) -> Subject {
        self.resource.subject(&self.served, name)
    }

    /// A stored object as the client sees it.
    pub(crate) fn show<'a>(&self, object: &'a Object) -> Cow<'a, Value> {
        self.reduce(self.resource.rules.show(&self.served, object.value()))
    }

    /// An object that was not stored, for example after a dry run.
    pub(crate) fn show_value(&self, stored: &Value) -> Value {
        self.reduce(self.resource.rules.show(&self.served, stored)).into_owned()
    }

    fn reduce<'a>(&self, shown: Cow<'a, Value>) -> Cow<'a, Value> {
        match self.form {
            Form::Full | Form::Table(_) => shown,
            Form::MetadataOnly => Cow::Owned(json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": shown["metadata"],
            })),
        }
    }
}

//! What distinguishes one kind from another when its objects are written and read.

use std::borrow::Cow;

use serde_json::Value;

use crate::kinds::Served;
use crate::openapi::Schemas;
use crate::service::Allocations;
use crate::status::Cause;

/// What the rules of a kind may look at besides the object itself.
pub(crate) struct Ground<'a> {
    /// Cluster addresses and node ports that Services hold.
    pub allocations: &'a Allocations,
    /// The time as it appears in objects.
    pub now: String,
    /// Whether the addresses of load balancers have modes; Kubernetes before 1.30 drops them.
    pub ip_modes: bool,
}

/// How one kind treats its objects. Every method has the answer of a kind without peculiarities as default.
///
/// Objects come in three forms: as a client of a served version sees them (*shown*), as the rules compare and check them
/// (*working*), and as they are kept (*stored*). For most kinds all three are the same.
pub(crate) trait Rules: Send + Sync {
    /// Reads what a client sent, in the form of `served`, into working form: unknown fields go, defaults come.
    ///
    /// # Errors
    /// A sentence if the JSON does not have the shape of the kind.
    fn decode(&self, served: &Served, body: Value) -> Result<Value, String>;

    /// Adds the kind's schema to a document and returns its name there.
    fn describe(&self, served: &Served, schemas: &mut Schemas) -> String;

    /// From stored to shown.
    fn show<'a>(&self, _served: &Served, stored: &'a Value) -> Cow<'a, Value> {
        Cow::Borrowed(stored)
    }

    /// From stored to working.
    fn recall<'a>(&self, _served: &Served, stored: &'a Value) -> Cow<'a, Value> {
        Cow::Borrowed(stored)
    }

    /// From working to stored.
    fn save(&self, working: Value) -> Value {
        working
    }

    /// Completes a new object and says what is wrong with it.
    fn create(&self, _ground: &Ground<'_>, _served: &Served, _new: &mut Value) -> Vec<Cause> {
        Vec::new()
    }

    /// Completes a changed object and says what is wrong with the change.
    fn update(&self, _ground: &Ground<'_>, _served: &Served, _old: &Value, _new: &mut Value) -> Vec<Cause> {
        Vec::new()
    }

    /// The same for a change through the status subresource.
    fn update_status(&self, _ground: &Ground<'_>, _served: &Served, old: &Value, new: &mut Value) -> Vec<Cause> {
        crate::object::carry(old, new, "spec");
        Vec::new()
    }
}

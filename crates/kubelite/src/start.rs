//! How a server comes to life: its options and the objects that every cluster has.

use std::path::Path;
use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::json;

use crate::call::{Call, Form};
use crate::journal::{DataError, Journal};
use crate::kinds::bucket;
use crate::query::{FieldValidation, WriteOptions};
use crate::service::Allocations;
use crate::state::{Clock, State};
use crate::store::Store;
use crate::{Kubelite, Shared, write};

/// Options of a [`Kubelite`].
pub struct Builder {
    clock: Clock,
    history: usize,
    service_ranges: Vec<IpNet>,
    ip_modes: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self { clock: Arc::new(Timestamp::now), history: 20_000, service_ranges: Vec::new(), ip_modes: true }
    }
}

impl Builder {
    /// Where timestamps come from; the system clock unless said otherwise.
    pub fn clock(self, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// How many changes are kept for watches; a watcher that falls further behind gets 410 Gone.
    pub fn history(self, changes: usize) -> Self {
        Self { history: changes, ..self }
    }

    /// The ranges of cluster addresses, one per family, the default family first. Without it `10.96.0.0/16` and
    /// `fd00:96::/112`.
    pub fn service_ranges(self, ranges: impl IntoIterator<Item = IpNet>) -> Self {
        Self { service_ranges: ranges.into_iter().collect(), ..self }
    }

    /// As Kubernetes 1.29: `ipMode` is accepted in a Service's status, and not kept.
    pub fn without_ip_modes(self) -> Self {
        Self { ip_modes: false, ..self }
    }

    /// Starts the server.
    pub fn build(self) -> Kubelite {
        let store = Store::new(self.history);
        self.start(store)
    }

    /// Starts the server with the objects of a folder, and keeps all changes in it. The folder is made if it is not there,
    /// and belongs to this server until the last handle to it is dropped.
    ///
    /// What a client was told is written survives the death of the process at any moment, and resourceVersions go on
    /// where they stopped. Only the loss of the whole machine may cost the last seconds: the disk is not waited for.
    ///
    /// # Errors
    /// If another server has the folder, or it cannot be read or written.
    pub fn open(self, folder: &Path) -> Result<Kubelite, DataError> {
        let (journal, kept) = Journal::open(folder)?;
        let store = Store::resume(self.history, kept, journal);
        let server = self.start(store);
        server.shared.lock().store.commit()?;
        Ok(server)
    }

    fn start(self, store: Store) -> Kubelite {
        let allocations =
            if self.service_ranges.is_empty() { Allocations::default() } else { Allocations::new(self.service_ranges) };
        let mut state = State::new(store, allocations, self.clock.clone());
        state.ip_modes = self.ip_modes;
        state.recall();
        furnish(&mut state);
        Kubelite { shared: Arc::new(Shared { state: Mutex::new(state), clock: self.clock }) }
    }
}

/// Writes what is there before the first client comes, unless it was there before.
fn furnish(state: &mut State) {
    if !state.store.bucket(bucket::NAMESPACES).is_empty() {
        return;
    }
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let object = json!({"metadata": {"name": name}});
        create(state, "namespaces", None, &object);
    }
    let first = state.ground().allocations.first_address();
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": first.to_string(), "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
    });
    create(state, "services", Some("default"), &service);
}

fn create(state: &mut State, plural: &str, namespace: Option<&str>, object: &serde_json::Value) {
    let (resource, served) = state.registry.find("", "v1", plural).expect("the built-in table has this kind");
    let call = Call { resource, served, namespace: namespace.map(str::to_owned), name: None, form: Form::Full };
    let options = WriteOptions { dry_run: false, field_validation: FieldValidation::Ignore };
    let written = write::create(state, &call, &options, object.to_string().as_bytes());
    written.expect("what every cluster has is valid");
}

//! Writing to Services: one merge patch each, and Events once it is accepted.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use purelb_api::read::ServiceObject;
use purelb_core::pool::ServiceKey;
use serde_json::Value;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::event::{ServiceNews, service_news};
use super::metrics::Metrics;

/// How long a call to the API server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something to write.
#[derive(Clone, Debug)]
pub struct Job {
    /// The Service.
    pub service: ServiceKey,
    /// The merge patch, which carries the version it was decided on.
    pub patch: Value,
}

/// A write that has come to its end.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Done {
    /// The Service.
    pub service: ServiceKey,
    /// How it went.
    pub outcome: Outcome,
}

/// How a write went.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Outcome {
    /// The Service looks like this now.
    Written(Box<ServiceNews>),
    /// Somebody else was faster; nothing was written.
    Conflict,
    /// There is no such Service any more.
    Gone,
    /// It was refused, or nobody knows what became of it. Written twice, it does no harm.
    Failed,
}

/// Does one job to its end.
pub async fn run(client: Client, metrics: Metrics, job: Job) -> Done {
    let (namespace, name) = job.service.split_once('/').unwrap_or(("default", &job.service));
    let services: Api<ServiceObject> = Api::namespaced(client, namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(&job.patch));
    let outcome = match timeout(PATIENCE, services.patch(name, &params, &patch)).await {
        Ok(Ok(object)) => Outcome::Written(service_news(&object)),
        Ok(Err(error)) => failure(&job.service, &error),
        Err(_) => {
            warn!(svc = %job.service, "the API server did not answer a write in time; it is tried again");
            Outcome::Failed
        }
    };
    match outcome {
        Outcome::Written(_) => metrics.updates.inc(),
        _ => metrics.update_errors.inc(),
    };
    Done { service: job.service, outcome }
}

fn failure(service: &str, error: &Error) -> Outcome {
    match error {
        Error::Api(status) if status.code == 404 => Outcome::Gone,
        Error::Api(status) if status.code == 409 => {
            debug!(svc = service, "somebody else wrote the Service first");
            Outcome::Conflict
        }
        error => {
            warn!(svc = service, %error, "the Service could not be written; may the agent patch services?");
            Outcome::Failed
        }
    }
}

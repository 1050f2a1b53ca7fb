//! Writing this node's BGPNodeStatus.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use purelb_api::{BGPNodeStatus, BGPNodeStatusStatus, write};
use purelb_core::bgp::status::NodeReport;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::agent::metrics::BgpMetrics;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A report and what is needed to write it.
pub struct Writing {
    /// The cluster.
    pub client: Client,
    /// Where it is counted.
    pub metrics: BgpMetrics,
    /// What there is to say.
    pub report: NodeReport,
    /// The UID of the Node, with which the object goes.
    pub node_uid: String,
    /// What the object shows, as far as this process knows.
    pub previous: Option<BGPNodeStatusStatus>,
    /// The time that is written into it.
    pub now: Timestamp,
}

/// Writes a report, in place of the one before. Answers with what the object shows now, or nothing if it failed.
pub async fn write(writing: Writing) -> Option<BGPNodeStatusStatus> {
    let written = timeout(PATIENCE, put(&writing)).await;
    let at = writing.now.as_microsecond() as f64 / 1e6;
    let status = written.as_ref().ok().and_then(|answer| answer.as_ref().ok());
    let size = |status| serde_json::to_vec(status).map_or(0, |text| text.len());
    writing.metrics.status_written(status.map(|status| (at, size(status))));
    match written {
        Ok(Ok(status)) => return Some(status),
        Ok(Err(error)) if is_absent(&error) => {
            debug!("the cluster does not have BGPNodeStatuses; nothing is reported");
        }
        Ok(Err(error)) => warn!(%error, "the BGPNodeStatus could not be written; it is tried again"),
        Err(_) => warn!("the API server did not take the BGPNodeStatus in time; it is tried again"),
    }
    None
}

async fn put(writing: &Writing) -> Result<BGPNodeStatusStatus, Error> {
    let Writing { report, node_uid, now, .. } = writing;
    let api: Api<BGPNodeStatus> = Api::all(writing.client.clone());
    let previous = match &writing.previous {
        Some(previous) => Some(previous.clone()),
        // A predecessor may have written it: the condition keeps its time.
        None => api.get_opt(&report.node).await?.and_then(|object| object.status),
    };
    let status = write::node_status(report, previous.as_ref(), *now);
    let patch = |shown| Patch::Merge(write::node_status_patch(shown, &status));
    match api.patch_status(&report.node, &PatchParams::default(), &patch(previous.as_ref())).await {
        Err(error) if is_absent(&error) => {
            let object = serde_json::from_value(write::node_status_object(&report.node, node_uid));
            api.create(&PostParams::default(), &object.map_err(Error::SerdeError)?).await?;
            api.patch_status(&report.node, &PatchParams::default(), &patch(None)).await?;
        }
        answer => drop(answer?),
    }
    Ok(status)
}

fn is_absent(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

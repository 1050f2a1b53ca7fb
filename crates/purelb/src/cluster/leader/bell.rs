//! A watch on the lease that says when to look; what is true, only a look says.

use std::pin::Pin;

use futures::{Stream, StreamExt, future};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tracing::debug;

use super::LEASE_NAME;
use crate::cluster::watch::Growing;

/// The version of the lease each time it changes; none when it is deleted.
pub(super) fn versions(leases: Api<Lease>) -> impl Stream<Item = Option<String>> {
    let only = watcher::Config::default().fields(&format!("metadata.name={LEASE_NAME}"));
    watcher(leases, only).backoff(Growing::after_trouble()).filter_map(|event| {
        future::ready(match event {
            Ok(watcher::Event::Apply(lease) | watcher::Event::InitApply(lease)) => Some(lease.resource_version()),
            Ok(watcher::Event::Delete(_)) => Some(None),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
            Err(error) => {
                debug!(%error, "cannot watch the lease {LEASE_NAME}; looking at it now and then instead");
                None
            }
        })
    })
}

/// Waits until the lease is at another version than the one known; whether it was written, not deleted.
pub(super) async fn rung(mut bell: Pin<&mut impl Stream<Item = Option<String>>>, known: Option<String>) -> bool {
    while let Some(version) = bell.next().await {
        if version.is_none() || version != known {
            return version.is_some();
        }
    }
    future::pending().await
}

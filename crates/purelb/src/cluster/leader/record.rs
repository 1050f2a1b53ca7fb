//! What stands in the Lease object: who holds it, how long that counts, and how it is rewritten.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::LEASE_NAME;

/// The holder's identity; a released lease has none.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

/// How long the holder may count on its latest renewal, by its own words.
pub(super) fn duration(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// The term of the latest holder.
pub(super) fn term(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    transitions.and_then(|transitions| u64::try_from(transitions).ok()).unwrap_or(0)
}

/// The lease as `identity` writes it to lead, or to go on leading, in `term`.
pub(super) fn held(base: Option<&Lease>, identity: &str, term: u64, lasts: Duration, clock: Timestamp) -> Lease {
    let mut lease = base.cloned().unwrap_or_else(empty);
    let renews = holder(&lease) == Some(identity) && self::term(&lease) == term;
    let now = MicroTime(after(&lease, clock));
    let spec = lease.spec.get_or_insert_default();
    if !renews {
        spec.acquire_time = Some(now.clone());
    }
    spec.renew_time = Some(now);
    spec.holder_identity = Some(identity.to_owned());
    spec.lease_transitions = Some(i32::try_from(term).unwrap_or(i32::MAX));
    spec.lease_duration_seconds = Some(whole_seconds(lasts));
    lease
}

/// The lease as its holder leaves it, free for anybody at once.
pub(super) fn released(base: &Lease, clock: Timestamp) -> Lease {
    let mut lease = base.clone();
    let now = MicroTime(after(&lease, clock));
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = None;
    spec.lease_duration_seconds = Some(1);
    spec.renew_time = Some(now);
    lease
}

/// What changes the lease on the API server into this one, if it is still at the version this one was made from. Unlike
/// an update, a patch never creates an object that somebody has deleted.
pub(super) fn patch(lease: &Lease) -> Value {
    let spec = lease.spec.clone().unwrap_or_default();
    json!({
        "metadata": {"resourceVersion": lease.metadata.resource_version},
        "spec": {
            "holderIdentity": spec.holder_identity,
            "leaseDurationSeconds": spec.lease_duration_seconds,
            "leaseTransitions": spec.lease_transitions,
            "acquireTime": spec.acquire_time,
            "renewTime": spec.renew_time,
        },
    })
}

fn empty() -> Lease {
    let metadata = ObjectMeta { name: Some(LEASE_NAME.to_owned()), ..ObjectMeta::default() };
    Lease { metadata, spec: Some(LeaseSpec::default()) }
}

/// The clock's time, but later than the renewal before it. Others take a changed lease for life, and a renewal that
/// changes nothing, because the clock stands still or was set back, would not be a write at all.
fn after(lease: &Lease, clock: Timestamp) -> Timestamp {
    let before = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let least = before.and_then(|before| before.0.checked_add(SignedDuration::from_micros(1)).ok());
    least.map_or(clock, |least| least.max(clock))
}

/// Rounded up: others may wait too long, never too short.
fn whole_seconds(lasts: Duration) -> i32 {
    let seconds = lasts.as_secs() + u64::from(lasts.subsec_nanos() > 0);
    i32::try_from(seconds.max(1)).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_millis(14_200);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_always_changes_the_lease() {
        let first = held(None, "a", 1, LASTS, at(100));
        let frozen = held(Some(&first), "a", 1, LASTS, at(100));
        let set_back = held(Some(&frozen), "a", 1, LASTS, at(40));
        let spec = |lease: &Lease| lease.spec.clone().unwrap();
        assert_eq!(spec(&first).acquire_time, Some(MicroTime(at(100))));
        assert_eq!(spec(&set_back).acquire_time, spec(&first).acquire_time);
        assert!(spec(&first).renew_time < spec(&frozen).renew_time);
        assert!(spec(&frozen).renew_time < spec(&set_back).renew_time);
    }

    #[test]
    fn others_are_told_to_wait_rather_too_long_than_too_short() {
        assert_eq!(duration(&held(None, "a", 1, LASTS, at(0))), Some(Duration::from_secs(15)));
    }

    #[test]
    fn a_released_lease_has_no_holder_and_keeps_its_term() {
        let lease = released(&held(None, "a", 7, LASTS, at(0)), at(1));
        assert_eq!((holder(&lease), term(&lease), duration(&lease)), (None, 7, Some(Duration::from_secs(1))));
    }
}

//! Who may hold addresses of external IPAMs: PureLB's own record of it, in a ConfigMap beside the allocator.
//!
//! The record must outlive the Service that got an address and the group it came from, so that it is on neither of them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::ConfigMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The name of the ConfigMap, in the namespace PureLB is installed in.
pub const RECORD: &str = "purelb-external-holders";
/// Changes with every write, so that a late write of somebody who no longer leads meets another version and fails.
const STAMP: &str = "purelb.io/stamp";

/// The groups of external IPAMs that somebody may hold addresses of, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Each with where its IPAM is, and who holds what.
    pub groups: BTreeMap<String, GroupHolders>,
}

/// Who may hold addresses of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct GroupHolders {
    /// The IPAM's socket, which is to be told even when the group is gone.
    pub socket: String,
    /// The Services as `namespace/name`, with the addresses they have, or have had and the IPAM was not told yet.
    pub services: BTreeMap<String, Vec<IpAddr>>,
}

impl Holders {
    /// Reads the record. An entry that cannot be read is left as it is: nobody but PureLB has any business there.
    pub fn read(object: &ConfigMap) -> Self {
        let entries = object.data.iter().flatten();
        let groups = entries.filter_map(|(group, text)| Some((group.clone(), serde_json::from_str(text).ok()?)));
        Self { groups: groups.collect() }
    }

    /// Whether a Service is named as a holder of addresses of a group.
    pub fn names(&self, group: &str, service: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.services.contains_key(service))
    }

    /// The ConfigMap that says all this, to be created.
    pub fn object(&self, stamp: &str) -> Value {
        let metadata = json!({"name": RECORD, "annotations": {STAMP: stamp}});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": self.entries()})
    }

    /// The merge patch that makes the record say this instead of `before`, which it said in this version.
    pub fn patch(&self, before: &Self, version: &str, stamp: &str) -> Value {
        let data = crate::write::difference(&before.entries(), &self.entries());
        let metadata = json!({"resourceVersion": version, "annotations": {STAMP: stamp}});
        json!({"metadata": metadata, "data": data})
    }

    fn entries(&self) -> Map<String, Value> {
        let entry = |(group, holders): (&String, &GroupHolders)| (group.clone(), json!(json!(holders).to_string()));
        self.groups.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(services: &[(&str, &[&str])]) -> Holders {
        let services = services
            .iter()
            .map(|(service, addrs)| ((*service).to_owned(), addrs.iter().map(|addr| addr.parse().unwrap()).collect()));
        let group = GroupHolders { socket: "/run/ipam.sock".into(), services: services.collect() };
        Holders { groups: [("ext".to_owned(), group)].into() }
    }

    fn config_map(object: &Value) -> ConfigMap {
        serde_json::from_value(object.clone()).unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let both = holders(&[("test/web", &["192.0.2.1", "2001:db8::1"]), ("test/asks", &[])]);
        let mut object = both.object("1-1");
        assert_eq!(Holders::read(&config_map(&object)), both);
        let less = holders(&[("test/asks", &[])]);
        json_patch::merge(&mut object, &less.patch(&both, "7", "1-2"));
        assert_eq!(Holders::read(&config_map(&object)), less);
        assert!(less.names("ext", "test/asks") && !less.names("ext", "test/web") && !less.names("other", "test/asks"));
        json_patch::merge(&mut object, &Holders::default().patch(&less, "8", "1-3"));
        assert_eq!(object["data"], json!({}), "an empty group leaves nothing behind");
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_neither_used_nor_removed() {
        let mut object = json!({"metadata": {"name": RECORD}, "data": {"odd": "not ours"}});
        let read = Holders::read(&config_map(&object));
        assert_eq!(read, Holders::default());
        json_patch::merge(&mut object, &holders(&[("test/web", &[])]).patch(&read, "7", "1-1"));
        assert_eq!(object["data"]["odd"], "not ours");
    }

    #[test]
    fn every_write_changes_the_object_so_that_a_late_one_fails() {
        let same = holders(&[("test/web", &["192.0.2.1"])]);
        let mut object = same.object("1-1");
        let before = object.clone();
        json_patch::merge(&mut object, &same.patch(&same, "7", "2-1"));
        assert_ne!(object["metadata"]["annotations"], before["metadata"]["annotations"]);
        assert_eq!(object["data"], before["data"]);
    }
}

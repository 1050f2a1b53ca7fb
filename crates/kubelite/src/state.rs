//! Everything behind the one lock of the server, and what follows from a write.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::custom;
use crate::kinds::{Registry, Resource, bucket};
use crate::rules::Ground;
use crate::service::Allocations;
use crate::store::{Key, Object, Store};

/// Where the server takes the time from.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The whole state of the server.
pub(crate) struct State {
    pub store: Store,
    pub registry: Registry,
    allocations: Allocations,
    clock: Clock,
    random: RandomState,
    draws: u64,
    /// Whether the addresses of load balancers have modes.
    pub ip_modes: bool,
}

impl State {
    pub(crate) fn new(store: Store, allocations: Allocations, clock: Clock) -> Self {
        let registry = Registry::new();
        Self { store, registry, allocations, clock, random: RandomState::new(), draws: 0, ip_modes: true }
    }

    /// Makes what follows from the stored objects: custom kinds and taken addresses.
    pub(crate) fn recall(&mut self) {
        let definitions: Vec<Object> = self.store.bucket(bucket::DEFINITIONS).values().cloned().collect();
        let services: Vec<Object> = self.store.bucket(bucket::SERVICES).values().cloned().collect();
        for definition in &definitions {
            self.follow(bucket::DEFINITIONS, None, Some(definition));
        }
        for service in &services {
            self.follow(bucket::SERVICES, None, Some(service));
        }
    }

    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground { allocations: &self.allocations, now: self.now(), ip_modes: self.ip_modes }
    }

    /// The time as it appears in objects, to the second.
    pub(crate) fn now(&self) -> String {
        (self.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn draw(&mut self) -> u64 {
        self.draws += 1;
        self.random.hash_one(self.draws)
    }

    /// A new `metadata.uid`: a random UUID of version 4.
    pub(crate) fn new_uid(&mut self) -> String {
        let bits = (u128::from(self.draw()) << 64) | u128::from(self.draw());
        let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// The random part of a generated name: five characters that form no words.
    pub(crate) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut draw = self.draw();
        let mut letter = || {
            let index = usize::try_from(draw % 27).unwrap_or_default();
            draw /= 27;
            char::from(LETTERS[index])
        };
        (0..5).map(|_| letter()).collect()
    }

    /// Writes an object in stored form, and all that depends on it.
    pub(crate) fn put(&mut self, resource: &Resource, key: Key, value: Value) -> Object {
        let before = self.store.object(&resource.bucket, &key).cloned();
        let after = self.store.put(&resource.bucket, key, value);
        self.follow(&resource.bucket, before.as_ref(), Some(&after));
        after
    }

    /// Removes an object, and all that depends on it; the result carries the revision of the removal.
    pub(crate) fn remove(&mut self, resource: &Resource, key: &Key) -> Option<Object> {
        let gone = self.store.remove(&resource.bucket, key)?;
        self.follow(&resource.bucket, Some(&gone), None);
        self.finish_namespace(&key.namespace);
        Some(gone)
    }

    fn follow(&mut self, changed: &str, before: Option<&Object>, after: Option<&Object>) {
        match changed {
            bucket::SERVICES => {
                self.allocations.replace(before.map(|it| it.value()), after.map(|it| it.value()));
            }
            bucket::DEFINITIONS => match after.and_then(|after| custom::resource(after.value())) {
                Some(resource) => self.registry.insert(resource),
                None => self.forget_kind(before),
            },
            _ => {}
        }
    }

    /// A definition is gone: so are its kind and all objects of it.
    fn forget_kind(&mut self, definition: Option<&Object>) {
        let Some(name) = definition.map(|it| crate::object::name(it.value()).to_owned()) else { return };
        if !self.registry.by_bucket(&name).is_some_and(|resource| resource.traits.custom) {
            return;
        }
        let keys: Vec<Key> = self.store.bucket(&name).keys().cloned().collect();
        for key in keys {
            self.store.remove(&name, &key);
        }
        self.registry.remove(&name);
    }

    /// Removes a namespace that is being deleted once nothing is left in it.
    pub(crate) fn finish_namespace(&mut self, namespace: &str) {
        let key = Key::new("", namespace);
        let ending = |object: &Object| crate::object::is_being_deleted(object.value());
        if !self.store.object(bucket::NAMESPACES, &key).is_some_and(ending) {
            return;
        }
        let holds = |it: &Arc<Resource>| self.store.bucket(&it.bucket).keys().any(|key| key.namespace == namespace);
        if !self.registry.all().any(holds) {
            self.store.remove(bucket::NAMESPACES, &key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::new(Store::new(10), Allocations::default(), Arc::new(|| Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn uids_look_like_random_uuids_and_differ() {
        let mut state = state();
        let (one, two) = (state.new_uid(), state.new_uid());
        assert_ne!(one, two);
        assert_eq!(one.len(), 36);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]), "{one}");
    }

    #[test]
    fn the_clock_is_told_to_the_second() {
        assert_eq!(state().now(), "1970-01-01T00:00:00Z");
    }
}

//! A restless user and a restless operator: what they ask for next, decided by a seed alone.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

/// A small generator (splitmix64): the same story for the same seed, everywhere.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = usize::try_from(self.roll(from.len() as u64)).expect("an index fits");
        &from[index]
    }
}

/// A request to the API server about a Service of this name; several are sent one after the other.
pub type Request = (Method, String, Value);

/// What a Service is about, for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// In a large group, of one family or two, perhaps ready to share.
    Roomy,
    /// In a group that is too small for all.
    Tight,
    /// On an address that others want too.
    Pinned,
    /// With an address of every range of a group.
    Everywhere,
    /// In a group that fills its ranges evenly.
    Even,
}

/// Who creates, edits and deletes Services.
pub struct User {
    services: BTreeMap<String, Kind>,
    /// How many Services there are to be, about.
    population: usize,
}

impl User {
    pub fn new(population: usize) -> Self {
        Self { services: BTreeMap::new(), population }
    }

    /// The next wish.
    pub fn wish(&mut self, dice: &mut Dice) -> Vec<Request> {
        let crowd = self.services.len() as u64 * 4 / self.population as u64;
        match dice.roll(8) {
            roll if roll + crowd < 5 || self.services.is_empty() => self.create(dice),
            0 | 1 => self.delete(dice),
            2 => self.replace(dice),
            _ => self.edit(dice),
        }
    }

    fn create(&mut self, dice: &mut Dice) -> Vec<Request> {
        let name = format!("s{:04}", dice.roll(10_000));
        if self.services.contains_key(&name) {
            return Vec::new();
        }
        let kind = *dice.pick(&[
            Kind::Roomy,
            Kind::Roomy,
            Kind::Roomy,
            Kind::Tight,
            Kind::Tight,
            Kind::Pinned,
            Kind::Everywhere,
            Kind::Even,
        ]);
        self.services.insert(name.clone(), kind);
        vec![(Method::POST, String::new(), service(&name, kind, dice))]
    }

    fn delete(&mut self, dice: &mut Dice) -> Vec<Request> {
        let (name, _) = self.any(dice);
        self.services.remove(&name);
        vec![(Method::DELETE, name, Value::Null)]
    }

    /// Deleted and created again under the same name in one breath.
    fn replace(&mut self, dice: &mut Dice) -> Vec<Request> {
        let (name, kind) = self.any(dice);
        let new = service(&name, kind, dice);
        vec![(Method::DELETE, name, Value::Null), (Method::POST, String::new(), new)]
    }

    fn edit(&mut self, dice: &mut Dice) -> Vec<Request> {
        let (name, kind) = self.any(dice);
        let edits = if kind == Kind::Roomy { 10 } else { 4 };
        let patch = match dice.roll(edits) {
            0 => json!({"spec": {"ports": [port(dice)]}}),
            1 => json!({"spec": {"type": "ClusterIP"}}),
            2 => annotated(json!({"purelb.io/re-evaluate": "true"})),
            // Also back from ClusterIP.
            3 => json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}}),
            4 => json!({"spec": {"ipFamilyPolicy": "SingleStack"}}),
            5 => json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}}),
            6 => annotated(json!({"purelb.io/allow-shared-ip": key(dice)})),
            7 => json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}}),
            8 => annotated(json!({"purelb.io/service-group": dice.pick(&["wide", "other"])})),
            _ => annotated(json!({
                "purelb.io/service-group": dice.pick(&["wide", "other"]),
                "purelb.io/re-evaluate": "true",
            })),
        };
        vec![(Method::PATCH, name, patch)]
    }

    fn any(&self, dice: &mut Dice) -> (String, Kind) {
        let names: Vec<_> = self.services.iter().collect();
        let (name, kind) = dice.pick(&names);
        ((*name).clone(), **kind)
    }
}

fn annotated(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

fn service(name: &str, kind: Kind, dice: &mut Dice) -> Value {
    let (annotations, policy) = match kind {
        Kind::Roomy => (
            json!({"purelb.io/service-group": dice.pick(&["wide", "other"]), "purelb.io/allow-shared-ip": key(dice)}),
            *dice.pick(&["SingleStack", "RequireDualStack", "PreferDualStack"]),
        ),
        Kind::Tight => (json!({"purelb.io/service-group": "tight"}), "SingleStack"),
        Kind::Pinned => (json!({"purelb.io/addresses": format!("10.4.0.{}", 8 + dice.roll(4))}), "SingleStack"),
        Kind::Everywhere => (json!({"purelb.io/service-group": "many"}), "SingleStack"),
        Kind::Even => (json!({"purelb.io/service-group": "even"}), "SingleStack"),
    };
    let given = annotations.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let annotations: serde_json::Map<_, _> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": false,
            "ipFamilyPolicy": policy,
            "ports": [port(dice)],
        },
    })
}

/// Most Services do not share.
fn key(dice: &mut Dice) -> Value {
    if dice.roll(4) == 0 { json!(format!("key-{}", dice.roll(6))) } else { Value::Null }
}

fn port(dice: &mut Dice) -> Value {
    json!({"port": dice.pick(&[80, 443, 8080, 8443])})
}

/// The groups, each with the forms an operator gives it; the first is the one it ends with.
pub const GROUPS: [&str; 6] = ["wide", "other", "tight", "named", "many", "even"];

/// A group with two ranges, which takes from both: complete, without taking from both, or broken.
fn of_two_ranges(flag: &str, octets: [&str; 2], form: u64) -> Value {
    let ranges = [format!("10.{}.1.0-10.{0}.8.255", octets[0]), format!("10.{}.1.0-10.{0}.8.255", octets[1])];
    let broken = format!("10.{}.8.255-10.{0}.1.0", octets[1]);
    let pools = [&ranges[0], if form >= 2 { &broken } else { &ranges[1] }];
    let pools = pools.map(|pool| json!({"pool": pool, "subnet": "10.0.0.0/8"}));
    json!({"remote": {"v4pools": pools, flag: form == 0}})
}

/// The form of a group: complete, shrunk or broken.
pub fn form(group: &str, form: u64) -> Value {
    match group {
        "many" => return of_two_ranges("multiPool", ["5", "6"], form),
        "even" => return of_two_ranges("balancePools", ["7", "8"], form),
        _ => {}
    }
    let range =
        |full: &str, shrunk: &str, broken: &str| [full, shrunk, broken][usize::from(form.min(2) as u8)].to_owned();
    let (v4, v6) = match group {
        "wide" => (
            range("10.1.1.0-10.1.8.255", "10.1.1.0-10.1.1.31", "10.1.8.255-10.1.1.0"),
            Some(range("2001:db8:1::1000/116", "2001:db8:1::1000/124", "2001:db8:1::1000/116")),
        ),
        "other" => (
            range("10.2.1.0-10.2.8.255", "10.2.1.0-10.2.1.7", "10.2.8.255-10.2.1.0"),
            Some(range("2001:db8:2::1000/116", "2001:db8:2::1000/124", "2001:db8:2::1000/116")),
        ),
        "tight" => (range("10.3.0.8-10.3.0.15", "10.3.0.8-10.3.0.10", "10.3.0.15-10.3.0.8"), None),
        _ => (range("10.4.0.8/30", "10.4.0.8/31", "10.4.0.11-10.4.0.8"), None),
    };
    let mut local =
        json!({"v4pools": [{"pool": v4, "subnet": format!("{}/16", v4.split(['-', '/']).next().unwrap_or_default())}]});
    if let Some(v6) = v6 {
        local["v6pools"] = json!([{"pool": v6, "subnet": format!("{}/64", v6.split('/').next().unwrap_or_default())}]);
    }
    json!({"local": local})
}

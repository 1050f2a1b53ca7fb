//! The desk without any I/O: a small API server in the test answers its jobs, well or badly.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use purelb_api::read;
use purelb_core::alloc::Notice;
use serde_json::{Value, json};

use super::*;
use crate::allocator::job::{Outcome, SweepOutcome};

mod chaos;
mod external;
mod fence;
mod origin;
mod rival;
mod stories;

const UNKNOWN: fn() -> Outcome = || Outcome::Unsure("no answer".to_owned());
const REFUSED: fn() -> Outcome = || Outcome::Refused("not allowed".to_owned());

fn is_read(job: &Job) -> bool {
    matches!(job, Job::Read { .. })
}

/// The Services as an API server has them.
#[derive(Default)]
struct Api {
    version: u64,
    uids: u64,
    services: BTreeMap<String, Value>,
}

impl Api {
    fn create(&mut self, name: &str, annotations: Value) {
        self.uids += 1;
        let object = json!({
            "metadata": {
                "name": name, "namespace": "test", "uid": format!("u{}", self.uids), "annotations": annotations,
            },
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]},
            "status": {},
        });
        self.services.insert(name.to_owned(), object);
        self.stamp(name);
    }

    /// Somebody's edit, which asks for no version.
    fn edit(&mut self, name: &str, patch: Value) {
        json_patch::merge(self.services.get_mut(name).unwrap(), &patch);
        if patch["spec"]["type"] == "ClusterIP" {
            // As the API server does it.
            self.services.get_mut(name).unwrap()["status"]["loadBalancer"] = json!({});
        }
        self.stamp(name);
    }

    fn stamp(&mut self, name: &str) {
        self.version += 1;
        self.services.get_mut(name).unwrap()["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    fn patch(&mut self, name: &str, patch: &Value) -> Outcome {
        let Some(object) = self.services.get_mut(name) else { return Outcome::Gone };
        let (meta, asked) = (&object["metadata"], &patch["metadata"]);
        if meta["uid"] != asked["uid"] || meta["resourceVersion"] != asked["resourceVersion"] {
            return Outcome::Conflict;
        }
        let before = object.clone();
        json_patch::merge(object, patch);
        // A write that changes nothing is none.
        if *object != before {
            self.stamp(name);
        }
        self.read(name)
    }

    fn read(&self, name: &str) -> Outcome {
        match self.services.get(name) {
            None => Outcome::Gone,
            Some(object) if object["spec"]["type"] == "LoadBalancer" => Outcome::Is(self.record(name)),
            Some(object) => Outcome::Retyped(self.record(name), object["spec"]["type"].as_str().unwrap().to_owned()),
        }
    }

    fn record(&self, name: &str) -> Box<ServiceRecord> {
        record(&self.services[name])
    }

    /// What `kubectl get service` shows.
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.record(name).view.addresses()
    }

    fn balancers(&self) -> Vec<ServiceRecord> {
        let all = self.services.values().filter(|object| object["spec"]["type"] == "LoadBalancer");
        all.map(|object| *record(object)).collect()
    }
}

fn record(object: &Value) -> Box<ServiceRecord> {
    Box::new(read::service(&serde_json::from_value(object.clone()).unwrap()))
}

/// A group in PureLB's own namespace.
fn group(name: &str, version: u64, spec: Value, status: Value) -> GroupObject {
    let metadata = json!({"name": name, "namespace": "home", "resourceVersion": version.to_string()});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// The same in a certain version and generation.
fn group_of_generation(name: &str, (version, generation): (u64, u64), spec: Value, status: Value) -> GroupObject {
    let mut group = group(name, version, spec, status);
    group.object.metadata.generation = Some(generation.cast_signed());
    group
}

fn local(pool: &str) -> Value {
    json!({"local": {"v4pools": [{"pool": pool, "subnet": "10.0.0.0/16"}]}})
}

/// An API server, a desk, and time.
struct Town {
    api: Api,
    desk: Desk,
    at: Instant,
    /// What Services were told without a write.
    told: Vec<(ServiceKey, Notice)>,
}

impl Town {
    /// A desk in its first term that knows the groups and all Services, and has done nothing yet.
    fn new(groups: Vec<GroupObject>, api: Api) -> Self {
        let at = Instant::now();
        let mut town = Self { api, desk: desk(1, at), at, told: Vec::new() };
        town.open(groups);
        town
    }

    /// The desk hears everything there is.
    fn open(&mut self, groups: Vec<GroupObject>) {
        for news in opening(groups, &self.api) {
            self.hear(news);
        }
    }

    /// Another leader takes over, with fresh lists; nothing that the last one believed survives.
    fn succeeded(self, groups: Vec<GroupObject>) -> Self {
        let mut town = Self { desk: desk(2, self.at), ..self };
        town.open(groups);
        town
    }

    /// A town with one group whose first Services are served.
    fn served(pool: &str, services: &[&str]) -> Self {
        let mut town = Self::new(vec![group("default", 1, local(pool), json!(null))], Api::default());
        for name in services {
            town.create(name);
        }
        town.settle();
        town
    }

    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn hear(&mut self, news: News) {
        self.desk.hear(news, self.now(), self.at);
    }

    fn create(&mut self, name: &str) {
        self.api.create(name, json!({}));
        self.tell(name);
    }

    /// The watch tells of a Service as it is now.
    fn tell(&mut self, name: &str) {
        self.hear(News::Service(Change::Here(self.api.record(name))));
    }

    /// The watch tells that a Service is gone or retyped.
    fn tell_gone(&mut self, last: Box<ServiceRecord>) {
        self.hear(News::Service(Change::Gone(last)));
    }

    fn delete(&mut self, name: &str) -> Box<ServiceRecord> {
        record(&self.api.services.remove(name).unwrap())
    }

    /// The next job for the API server; what is only told is remembered.
    fn job(&mut self) -> Option<Job> {
        loop {
            match self.desk.next_job(self.now(), self.at)? {
                Job::Tell { service: (service, _), notice } => self.told.push((service, notice)),
                Job::Sweep { .. } => self.sweep(),
                job => return Some(job),
            }
        }
    }

    /// All on one page.
    fn sweep(&mut self) {
        let others = self.api.services.iter().filter(|(_, object)| object["spec"]["type"] != "LoadBalancer");
        let marked =
            others.filter(|(_, object)| record(object).is_marked()).map(|(name, _)| format!("test/{name}").into());
        let outcome = SweepOutcome::Found(marked.collect(), None);
        self.desk.done(Done::Swept(outcome), self.now(), self.at);
    }

    fn jobs(&mut self) -> Vec<Job> {
        std::iter::from_fn(|| self.job()).collect()
    }

    /// The API server does a job.
    fn carry_out(&mut self, job: &Job) -> Outcome {
        match job {
            Job::Patch { service, patch, .. } => self.api.patch(name(service), patch),
            Job::Read { service } => self.api.read(name(service)),
            other => panic!("not for the API server: {other:?}"),
        }
    }

    fn done(&mut self, job: &Job, outcome: Outcome) {
        let (Job::Patch { service, .. } | Job::Read { service } | Job::Ask { service, .. }) = job else { panic!() };
        self.desk.done(Done::Service(service.clone(), outcome), self.now(), self.at);
    }

    fn wait(&mut self, pause: Duration) {
        self.at += pause;
    }

    /// Lets everything happen that is to happen now, and the watch tell of it.
    fn settle(&mut self) {
        while let Some(job) = self.job() {
            let outcome = self.carry_out(&job);
            self.done(&job, outcome);
            let (Job::Patch { service, .. } | Job::Read { service }) = &job else { continue };
            if self.api.services.get(name(service)).is_some_and(|object| object["spec"]["type"] == "LoadBalancer") {
                self.tell(name(service));
            }
        }
    }
}

fn desk(term: u64, at: Instant) -> Desk {
    Desk::new(Scope { classes: Vec::new(), default_announcer: true }, "home", term, at)
}

/// What a new desk hears first.
fn opening(groups: Vec<GroupObject>, api: &Api) -> VecDeque<News> {
    let mut news = VecDeque::from([News::Service(Change::Restarted), News::Group(Change::Restarted)]);
    news.extend(api.balancers().into_iter().map(|record| News::Service(Change::Here(Box::new(record)))));
    news.extend(groups.into_iter().map(|group| News::Group(Change::Here(Box::new(group)))));
    news.extend([News::Node(Change::Restarted), News::Node(Change::Complete)]);
    news.extend([News::Lease(Change::Restarted), News::Lease(Change::Complete)]);
    news.extend([News::Group(Change::Complete), News::Service(Change::Complete)]);
    news
}

fn name(service: &str) -> &str {
    service.trim_start_matches("test/")
}

fn addrs(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// The addresses a patch would give; `None` for a touch.
fn given(job: &Job) -> Option<Vec<&str>> {
    let Job::Patch { patch, .. } = job else { panic!("{job:?}") };
    let ingress = patch["status"].get("loadBalancer")?["ingress"].as_array();
    Some(ingress.into_iter().flatten().map(|entry| entry["ip"].as_str().unwrap()).collect())
}

//! Anything in any order: writes that are lost, delayed or applied without an answer, users, edits, new leaders.

use proptest::prelude::*;

use super::fence::LIFE_OF_A_WRITE;
use super::*;
use crate::allocator::job::GroupOutcome;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Fewer addresses than Services, and forms of the group that have only some in common. In some, each Service is to have an
/// address of every range.
const FORMS: [(&[&str], bool); 4] = [
    (&["10.0.0.10-10.0.0.12"], false),
    (&["10.0.0.11-10.0.0.13"], false),
    (&["10.0.0.10-10.0.0.11", "10.0.1.10-10.0.1.11"], true),
    (&["10.0.0.10-10.0.0.11", "10.0.1.10-10.0.1.11"], false),
];

/// One thing that happens; the numbers choose among what there is.
#[derive(Clone, Debug)]
enum Event {
    Create(usize),
    Delete(usize),
    Retype(usize, bool),
    /// A user asks for another look, so that the address may change.
    ReEvaluate(usize),
    /// Somebody edits a label: only the version changes.
    Label(usize),
    EditGroup(usize),
    /// The group's status is written, if it says something old.
    Report,
    /// The watch tells some of what it has not told yet.
    Hear(usize),
    /// The watch was broken for too long.
    Relist,
    /// The desk's next jobs are sent.
    Send(usize),
    /// A job in flight reaches the API server; its answer is on its way.
    Reach(usize),
    /// A job in flight ends.
    Arrive(usize, Fate),
    /// A write that nobody waits for any more arrives, unless it is too old.
    Late(usize),
    Wait(u64),
    /// A new leader; what the last one sent may still arrive.
    NewLeader,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    AppliedUnanswered,
    Lost,
    Delayed,
    Refused,
}

fn event() -> impl Strategy<Value = Event> {
    let fate = prop_oneof![
        6 => Just(Fate::Answered),
        1 => Just(Fate::AppliedUnanswered),
        1 => Just(Fate::Lost),
        2 => Just(Fate::Delayed),
        1 => Just(Fate::Refused),
    ];
    let n = 0..NAMES.len();
    prop_oneof![
        4 => n.clone().prop_map(Event::Create),
        2 => n.clone().prop_map(Event::Delete),
        2 => (n.clone(), any::<bool>()).prop_map(|(n, away)| Event::Retype(n, away)),
        1 => n.clone().prop_map(Event::ReEvaluate),
        2 => n.prop_map(Event::Label),
        2 => (0..FORMS.len()).prop_map(Event::EditGroup),
        4 => Just(Event::Report),
        8 => (1..20usize).prop_map(Event::Hear),
        1 => Just(Event::Relist),
        8 => (1..4usize).prop_map(Event::Send),
        4 => (0..8usize).prop_map(Event::Reach),
        10 => (0..8usize, fate).prop_map(|(n, fate)| Event::Arrive(n, fate)),
        4 => (0..8usize).prop_map(Event::Late),
        4 => (1..5u64).prop_map(Event::Wait),
        1 => (5..90u64).prop_map(Event::Wait),
        2 => Just(Event::NewLeader),
    ]
}

struct World {
    town: Town,
    /// Which form the group has, how often it was edited or its status written, how often it was edited, and its status.
    form: usize,
    versions: u64,
    generation: u64,
    status: Value,
    news: VecDeque<News>,
    /// Jobs in flight, with the time they were sent and the answer if they have reached the API server.
    flying: Vec<(Job, Instant, Option<Outcome>)>,
    /// Patches that may still arrive, and until when.
    late: Vec<(Job, Instant)>,
    term: u64,
}

impl World {
    fn new() -> Self {
        let at = Instant::now();
        let town = Town { api: Api::default(), desk: desk(0, at), at, told: Vec::new() };
        let news = VecDeque::new();
        let mut world = Self {
            town,
            form: 0,
            versions: 1,
            generation: 1,
            status: Value::Null,
            news,
            flying: vec![],
            late: vec![],
            term: 0,
        };
        world.lead();
        world
    }

    fn group(&self) -> GroupObject {
        let (pools, multi_pool) = FORMS[self.form];
        let pools: Vec<_> = pools.iter().map(|pool| json!({"pool": pool, "subnet": "10.0.0.0/16"})).collect();
        let spec = json!({"remote": {"v4pools": pools, "multiPool": multi_pool}});
        group_of_generation("default", (self.versions, self.generation), spec, self.status.clone())
    }

    /// The group was edited, or its status written.
    fn regroup(&mut self) {
        self.versions += 1;
        let group = self.group();
        self.news.push_back(News::Group(Change::Here(Box::new(group))));
    }

    /// The desk writes what there is to say of the group.
    fn report(&mut self) {
        for job in self.town.desk.statuses(self.town.now(), self.town.at) {
            let Job::PatchGroup { patch, .. } = job else { continue };
            let current = patch["metadata"]["resourceVersion"].as_str() == Some(self.versions.to_string().as_str());
            let outcome = if current {
                json_patch::merge(&mut self.status, &patch["status"]);
                self.regroup();
                GroupOutcome::Is(Box::new(self.group()))
            } else {
                GroupOutcome::Conflict
            };
            let done = Done::Group("home".to_owned(), "default".to_owned(), outcome);
            self.town.desk.done(done, self.town.now(), self.town.at);
        }
    }

    /// A new leader with fresh lists; what the last one sent is still on its way.
    fn lead(&mut self) {
        self.term += 1;
        let open =
            self.flying.drain(..).filter(|(job, _, answer)| answer.is_none() && matches!(job, Job::Patch { .. }));
        self.late.extend(open.map(|(job, sent, _)| (job, sent + LIFE_OF_A_WRITE)));
        self.town.desk = desk(self.term, self.town.at);
        let groups = vec![self.group()];
        self.news = opening(groups, &self.town.api);
    }

    /// The change of one Service, as the watch will tell it.
    fn changed(&mut self, name: &str, before: Option<Value>) {
        let is_balancer = |object: &Value| object["spec"]["type"] == "LoadBalancer";
        let now = self.town.api.services.get(name);
        if now == before.as_ref() {
            return;
        }
        match (now, before) {
            (Some(now), _) if is_balancer(now) => self.news.push_back(News::Service(Change::Here(record(now)))),
            (_, Some(before)) if is_balancer(&before) => {
                // It carries the version of what took it away.
                self.town.api.version += 1;
                let mut gone = record(&before);
                gone.resource_version = self.town.api.version.to_string();
                self.news.push_back(News::Service(Change::Gone(gone)));
            }
            _ => {}
        }
    }

    fn user(&mut self, n: usize, act: impl FnOnce(&mut Api, &str)) {
        let name = NAMES[n];
        let before = self.town.api.services.get(name).cloned();
        act(&mut self.town.api, name);
        self.changed(name, before);
    }

    /// The API server gets a job; the laws are checked at every write that is applied.
    fn apply(&mut self, job: &Job) -> Outcome {
        let (Job::Patch { service, .. } | Job::Read { service }) = job else { panic!() };
        let name = name(service).to_owned();
        let before = self.town.api.services.get(&name).cloned();
        let outcome = self.town.carry_out(job);
        if let (Some(before), Some(after)) = (&before, self.town.api.services.get(&name)) {
            unmoved(before, after);
        }
        self.unique();
        self.changed(&name, before);
        outcome
    }

    /// Law 1: no address has two holders.
    fn unique(&self) {
        let mut holders: BTreeMap<IpAddr, &String> = BTreeMap::new();
        for (name, object) in &self.town.api.services {
            for addr in record(object).view.addresses() {
                let other = holders.insert(addr, name);
                assert_eq!(other, None, "{addr} of {name} has another holder");
            }
        }
    }

    fn happen(&mut self, event: &Event) {
        match *event {
            Event::Create(n) if !self.exists(n) => self.user(n, |api, name| api.create(name, json!({}))),
            Event::Delete(n) => self.user(n, |api, name| drop(api.services.remove(name))),
            Event::Retype(n, away) if self.exists(n) => {
                let kind = if away { "ClusterIP" } else { "LoadBalancer" };
                self.user(n, |api, name| api.edit(name, json!({"spec": {"type": kind}})));
            }
            Event::ReEvaluate(n) if self.exists(n) => {
                let asked = json!({"metadata": {"annotations": {"purelb.io/re-evaluate": "true"}}});
                self.user(n, |api, name| api.edit(name, asked));
            }
            Event::Label(n) if self.exists(n) => {
                self.user(n, |api, name| api.edit(name, json!({"metadata": {"labels": {"x": "y"}}})));
            }
            Event::EditGroup(form) => {
                self.generation += u64::from(self.form != form);
                self.form = form;
                self.regroup();
            }
            Event::Report => self.report(),
            Event::Hear(some) => self.hear(some),
            Event::Relist => self.relist(),
            Event::Send(some) => self.send(some),
            Event::Reach(n) if !self.flying.is_empty() => {
                let n = n % self.flying.len();
                if self.flying[n].2.is_none() {
                    let job = self.flying[n].0.clone();
                    self.flying[n].2 = Some(self.apply(&job));
                }
            }
            Event::Arrive(n, fate) if !self.flying.is_empty() => self.arrive(n, fate),
            Event::Late(n) if !self.late.is_empty() => {
                let (job, _) = self.late.swap_remove(n % self.late.len());
                self.apply(&job);
            }
            Event::Wait(seconds) => self.wait(Duration::from_secs(seconds)),
            Event::NewLeader => self.lead(),
            _ => {}
        }
    }

    /// Time passes, and what was sent too long ago arrives no more.
    fn wait(&mut self, pause: Duration) {
        self.town.wait(pause);
        self.late.retain(|(_, until)| self.town.at < *until);
    }

    fn exists(&self, n: usize) -> bool {
        self.town.api.services.contains_key(NAMES[n])
    }

    fn hear(&mut self, some: usize) {
        for news in self.news.drain(..some.min(self.news.len())).collect::<Vec<_>>() {
            self.town.hear(news);
        }
    }

    fn relist(&mut self) {
        self.news.retain(|news| !matches!(news, News::Service(_)));
        self.news.push_back(News::Service(Change::Restarted));
        let all = self.town.api.balancers();
        self.news.extend(all.into_iter().map(|record| News::Service(Change::Here(Box::new(record)))));
        self.news.push_back(News::Service(Change::Complete));
    }

    fn send(&mut self, some: usize) {
        let jobs: Vec<_> = std::iter::from_fn(|| self.town.job()).take(some).collect();
        self.flying.extend(jobs.into_iter().map(|job| (job, self.town.at, None)));
    }

    fn arrive(&mut self, n: usize, fate: Fate) {
        let (job, sent, answer) = self.flying.swap_remove(n % self.flying.len());
        let unknown = Outcome::Unsure("no answer".to_owned());
        let open = answer.is_none() && matches!(job, Job::Patch { .. });
        let outcome = match (fate, open) {
            (Fate::Answered, _) => answer.unwrap_or_else(|| self.apply(&job)),
            (Fate::AppliedUnanswered, true) => {
                self.apply(&job);
                unknown
            }
            (Fate::Delayed, true) => {
                self.late.push((job.clone(), sent + LIFE_OF_A_WRITE));
                unknown
            }
            (Fate::Refused, true) => Outcome::Refused("not allowed".to_owned()),
            _ => unknown,
        };
        self.town.done(&job, outcome);
    }

    /// From now on nothing goes wrong: everybody who can be served is, and then there is peace.
    fn calm_down(&mut self) {
        while let Some((job, _)) = self.late.pop() {
            self.apply(&job);
        }
        for _ in 0..200 {
            self.hear(usize::MAX);
            self.send(usize::MAX);
            if self.flying.is_empty() && self.news.is_empty() {
                let Some(wake) = self.town.desk.next_wake(self.town.at) else { break };
                self.town.at = wake;
            }
            while !self.flying.is_empty() {
                self.arrive(0, Fate::Answered);
            }
        }
        assert_eq!(self.town.desk.next_wake(self.town.at), None, "nothing is left to be tried again");
        let (served, waiting): (Vec<_>, Vec<_>) =
            self.town.api.balancers().into_iter().partition(|record| !record.view.addresses().is_empty());
        let pool = self.town.desk.book().slot("default").unwrap();
        let free = pool.pool.size(purelb_core::addr::Family::V4) - pool.pool.held().count() as u128;
        assert!(waiting.is_empty() || free == 0, "{free} addresses are free and {} wait", waiting.len());
        let held = self.town.desk.book().holdings().count();
        assert_eq!(held, served.len(), "the book says what the Services say");
    }
}

/// Law 2: what a Service has, it keeps, unless somebody asked for another look.
fn unmoved(before: &Value, after: &Value) {
    let (before, after) = (record(before), record(after));
    let kept = before.view.addresses().iter().all(|addr| after.view.addresses().contains(addr));
    assert!(kept || before.view.asks.re_evaluate, "{} lost its address unasked", before.view.key);
}

proptest! {
    #[test]
    fn laws_1_and_2_hold_at_every_write_and_peace_returns(events in proptest::collection::vec(event(), 1..140)) {
        let mut world = World::new();
        for event in &events {
            world.happen(event);
        }
        world.calm_down();
    }
}

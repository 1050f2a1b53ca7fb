//! Doing what the desk wants done: each job is a few calls, and its end is told to the desk.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, Resource};
use purelb_api::holders::{Holders, RECORD};
use purelb_api::read::{self, GroupObject, ServiceObject};
use purelb_core::alloc::{ExternalRequest, Notice};
use purelb_core::pool::ServiceKey;
use purelb_core::reason::Reason;
use purelb_core::report::Stock;
use purelb_ipam::{Ipam, IpamError, Stats, Wanted};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::job::{
    Done, GroupOutcome, Job, NoAddress, NotReleased, Outcome, RecordOutcome, Release, StatusOutcome, SweepOutcome,
};
use super::metrics::Metrics;
use crate::cluster::leader::{Answer, Leadership, Standing};
use crate::cluster::recorder::Recorder;
use crate::http::Readiness;

/// How long a call to the API server may take. Shorter than the margin of the lease: a write sent in the last moment of a
/// leadership has arrived or failed before the next leader starts.
const PATIENCE: Duration = Duration::from_secs(4);

/// How many Services that are no LoadBalancers are read at a time.
const PAGE: u32 = 200;

/// Everything a job needs.
#[derive(Clone)]
pub struct Workshop {
    /// The cluster.
    pub client: Client,
    /// Where Events go.
    pub recorder: Recorder,
    /// Whether this process may write.
    pub leadership: watch::Receiver<Leadership>,
    /// Whether it truly may.
    pub standing: Standing,
    /// What it waits for.
    pub readiness: Readiness,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The namespace PureLB keeps its own objects in.
    home: Arc<str>,
    sidecars: Arc<Mutex<BTreeMap<String, Ipam>>>,
}

impl Workshop {
    /// A workshop without any connection to a sidecar yet.
    pub fn new(
        client: Client,
        recorder: Recorder,
        (leadership, standing): (watch::Receiver<Leadership>, Standing),
        readiness: Readiness,
        metrics: Arc<Metrics>,
        home: &str,
    ) -> Self {
        Self { client, recorder, leadership, standing, readiness, metrics, home: home.into(), sidecars: Arc::default() }
    }

    /// Does one job to its end.
    pub async fn run(self, term: u64, job: Job) -> Done {
        match job {
            Job::Patch { service, patch, notices } => {
                let outcome = self.patch(term, &service, &patch, notices).await;
                Done::Service(service, outcome)
            }
            Job::Read { service } => {
                let outcome = self.read(&service).await;
                Done::Service(service, outcome)
            }
            Job::Ask { service, sharing_key, request } => {
                let outcome = self.ask(term, &service, sharing_key.as_deref(), &request).await;
                Done::Service(service, outcome)
            }
            Job::Release(release) => {
                let result = self.release(term, &release).await;
                Done::Released(release, result)
            }
            Job::Count { socket, group } => {
                let result = self.count(&socket, &group).await;
                Done::Counted(socket, group, result)
            }
            Job::PatchAgent { agent, patch } => {
                let outcome = self.patch_object(term, &agent, &patch, true).await;
                Done::Agent(agent.namespace.unwrap_or_default(), agent.name.unwrap_or_default(), outcome)
            }
            Job::PatchBgp { object, patch } => {
                let outcome = self.patch_object(term, &object, &patch, true).await;
                Done::Bgp(object.namespace.unwrap_or_default(), object.name.unwrap_or_default(), outcome)
            }
            Job::ReleaseBgp { object, patch } => {
                let outcome = self.patch_object(term, &object, &patch, false).await;
                Done::Bgp(object.namespace.unwrap_or_default(), object.name.unwrap_or_default(), outcome)
            }
            Job::Tell { service: (service, uid), notice } => {
                self.tell(&reference("v1", "Service", &metadata(&service, uid)), vec![notice]);
                Done::Told
            }
            Job::Confirm => {
                self.standing.doubt();
                Done::Confirmed(self.standing.confirm(term).await)
            }
            Job::Sweep { from } => Done::Swept(self.sweep(from).await),
            Job::ReadRecord => Done::Record(self.read_record().await),
            Job::WriteRecord { body, create } => Done::Record(self.write_record(term, &body, create).await),
            Job::PatchGroup { group, patch, notices } => {
                let outcome = self.patch_group(term, &group, &patch, notices).await;
                Done::Group(group.namespace.unwrap_or_default(), group.name.unwrap_or_default(), outcome)
            }
        }
    }

    fn may_write(&self, term: u64) -> bool {
        self.standing.by_the_clock(term)
    }

    async fn patch(&self, term: u64, service: &ServiceKey, patch: &Value, notices: Vec<Notice>) -> Outcome {
        if self.standing.confirm(term).await != Answer::Leads {
            return Outcome::NotSent;
        }
        let (api, name) = self.services(service);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let call = api.patch_status(name, &params, &patch);
        match timeout(PATIENCE, call).await {
            Ok(Ok(object)) => {
                self.metrics.updated();
                self.tell(&reference("v1", "Service", &object.metadata), notices);
                seen(&object)
            }
            Ok(Err(error)) => {
                self.metrics.update_failed();
                let outcome = failure(service, &error);
                if matches!(outcome, Outcome::Conflict) {
                    // Who was faster may be the next leader.
                    self.standing.doubt();
                }
                outcome
            }
            Err(_) => {
                self.metrics.update_failed();
                Outcome::Unsure(format!("no answer within {PATIENCE:?}"))
            }
        }
    }

    async fn read(&self, service: &ServiceKey) -> Outcome {
        let (api, name) = self.services(service);
        match timeout(PATIENCE, api.get(name)).await {
            Ok(Ok(object)) => seen(&object),
            Ok(Err(error)) if is(&error, 404) => Outcome::Gone,
            Ok(Err(error)) => Outcome::Unsure(error.to_string()),
            Err(_) => Outcome::Unsure(format!("no answer within {PATIENCE:?}")),
        }
    }

    /// One page; nothing of it is kept but the names of those with marks of ours.
    async fn sweep(&self, from: Option<String>) -> SweepOutcome {
        let api: Api<ServiceObject> = Api::all(self.client.clone());
        let params = ListParams { continue_token: from, ..ListParams::default() };
        let params = params.fields("spec.type!=LoadBalancer").limit(PAGE);
        match timeout(PATIENCE, api.list(&params)).await {
            Ok(Ok(page)) => {
                let records = page.items.iter().map(read::service);
                let marked = records.filter(read::ServiceRecord::is_marked).map(|record| record.view.key).collect();
                SweepOutcome::Found(marked, page.metadata.continue_.filter(|token| !token.is_empty()))
            }
            Ok(Err(error)) if is(&error, 410) => SweepOutcome::Expired,
            Ok(Err(_)) | Err(_) => SweepOutcome::Failed,
        }
    }

    async fn patch_group(&self, term: u64, group: &ObjectMeta, patch: &Value, notices: Vec<Notice>) -> GroupOutcome {
        if !self.may_write(term) {
            return GroupOutcome::Unsure("the leadership has ended".to_owned());
        }
        let (namespace, name) =
            (group.namespace.as_deref().unwrap_or_default(), group.name.as_deref().unwrap_or_default());
        let api: Api<GroupObject> = Api::namespaced(self.client.clone(), namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let outcome = match timeout(PATIENCE, api.patch_status(name, &params, &patch)).await {
            Ok(Ok(read)) => {
                self.metrics.status_write("success");
                self.tell(&reference("purelb.io/v2", "ServiceGroup", group), notices);
                return GroupOutcome::Is(Box::new(read));
            }
            Ok(Err(error)) => group_failure(&error),
            Err(_) => ("other", GroupOutcome::Unsure(format!("no answer within {PATIENCE:?}"))),
        };
        self.metrics.status_write(outcome.0);
        if let GroupOutcome::Refused(why) | GroupOutcome::Unsure(why) = &outcome.1 {
            warn!(sg = name, namespace, error = why, "the group's status could not be written; it is tried again");
        }
        outcome.1
    }

    /// Patches an object of ours, or its status.
    async fn patch_object<K>(&self, term: u64, object: &ObjectMeta, patch: &Value, status: bool) -> StatusOutcome<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        if !self.may_write(term) {
            return StatusOutcome::Failed;
        }
        let (namespace, name) =
            (object.namespace.as_deref().unwrap_or_default(), object.name.as_deref().unwrap_or_default());
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let call = async {
            if status { api.patch_status(name, &params, &patch).await } else { api.patch(name, &params, &patch).await }
        };
        match timeout(PATIENCE, call).await {
            Ok(Ok(object)) => StatusOutcome::Is(Box::new(object)),
            Ok(Err(error)) => {
                debug!(kind = %K::kind(&()), name, namespace, %error, "the object could not be written; it is tried again");
                StatusOutcome::Failed
            }
            Err(_) => StatusOutcome::Failed,
        }
    }

    async fn read_record(&self) -> RecordOutcome {
        match timeout(PATIENCE, self.record().get_opt(RECORD)).await {
            Ok(found) => recorded(found),
            Err(_) => RecordOutcome::Unsure,
        }
    }

    async fn write_record(&self, term: u64, body: &Value, create: bool) -> RecordOutcome {
        if self.standing.confirm(term).await != Answer::Leads {
            return RecordOutcome::Unsure;
        }
        let api = self.record();
        let call = async {
            match serde_json::from_value(body.clone()) {
                Ok(object) if create => api.create(&PostParams::default(), &object).await,
                _ => api.patch(RECORD, &PatchParams::default(), &Patch::Merge(body)).await,
            }
        };
        match timeout(PATIENCE, call).await {
            Ok(Err(error)) if is(&error, 409) => {
                self.standing.doubt();
                RecordOutcome::Conflict
            }
            Ok(written) => recorded(written.map(Some)),
            Err(_) => RecordOutcome::Unsure,
        }
    }

    fn record(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.home)
    }

    /// Another leader may be asking the same IPAM by now: who leads no longer asks nothing, and frees nothing.
    async fn ask(&self, term: u64, service: &str, key: Option<&str>, request: &ExternalRequest) -> Outcome {
        if self.standing.confirm(term).await != Answer::Leads {
            return Outcome::NotSent;
        }
        let ipam = self.sidecar(&request.socket).named(&request.provider);
        let answer = ipam.allocate(&request.group, service, key, Wanted::Families(&request.families)).await;
        Outcome::Answer(answer.map_err(|error| NoAddress {
            silent: matches!(error, IpamError::Unreachable { .. } | IpamError::Silent { .. }),
            reason: Reason::ExternalFailed { group: request.group.clone(), why: error.to_string() },
        }))
    }

    async fn release(&self, term: u64, release: &Release) -> Result<(), NotReleased> {
        if self.standing.confirm(term).await != Answer::Leads {
            return Err(NotReleased { why: "the leadership has ended".to_owned(), unsure: false });
        }
        let ipam = self.sidecar(&release.socket);
        let result = match release.addr {
            Some(addr) => ipam.release(&release.group, &release.service, addr).await,
            None => ipam.release_all(&release.group, &release.service).await,
        };
        match &result {
            Ok(()) => {
                info!(svc = %release.service, pool = release.group, addr = ?release.addr, "given back to the IPAM")
            }
            Err(error) => {
                warn!(svc = %release.service, pool = release.group, %error, "the IPAM could not be told; it is told again");
            }
        }
        result.map_err(|error| NotReleased { unsure: error.is_unsure(), why: error.to_string() })
    }

    async fn count(&self, socket: &str, group: &str) -> Result<Stock, String> {
        let stats = self.sidecar(socket).stats(group).await;
        stats.map(stock).map_err(|error| {
            debug!(pool = group, %error, "the IPAM does not say how full the group is");
            error.to_string()
        })
    }

    /// One connection for each socket, for as long as the process lives.
    fn sidecar(&self, socket: &str) -> Ipam {
        let mut sidecars = self.sidecars.lock().unwrap_or_else(PoisonError::into_inner);
        let metrics = self.metrics.clone();
        let new = || {
            Ipam::new(socket).observed(move |call| metrics.sidecar_rpc(call.socket, call.method, call.code, call.took))
        };
        sidecars.entry(socket.to_owned()).or_insert_with(new).clone()
    }

    fn services<'a>(&self, service: &'a str) -> (Api<ServiceObject>, &'a str) {
        let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
        (Api::namespaced(self.client.clone(), namespace), name)
    }

    fn tell(&self, about: &ObjectReference, notices: Vec<Notice>) {
        for notice in notices {
            info!(object = about.name, namespace = about.namespace, reason = notice.reason, "{}", notice.message);
            self.recorder.tell(about, notice);
        }
    }
}

/// A Service as the API server answered with it.
fn seen(object: &ServiceObject) -> Outcome {
    let record = Box::new(read::service(object));
    match read::service_type(object) {
        "LoadBalancer" => Outcome::Is(record),
        other => Outcome::Retyped(record, other.to_owned()),
    }
}

/// What an error says about whether something was written.
fn failure(service: &str, error: &Error) -> Outcome {
    match error {
        Error::Api(status) if status.code == 404 => Outcome::Gone,
        Error::Api(status) if status.code == 409 => {
            debug!(svc = service, "somebody else wrote the Service first");
            Outcome::Conflict
        }
        // Too many requests were not carried out; server errors may have been.
        Error::Api(status) if status.code == 429 || status.code >= 500 => Outcome::Unsure(error.to_string()),
        Error::Api(_) => {
            warn!(svc = service, %error, "the API server refuses the write");
            Outcome::Refused(error.to_string())
        }
        _ => Outcome::Unsure(error.to_string()),
    }
}

/// The same about the record of external holders.
fn recorded(found: Result<Option<ConfigMap>, Error>) -> RecordOutcome {
    match found {
        Ok(found) => RecordOutcome::Is(
            found.map(|object| (object.metadata.resource_version.clone().unwrap_or_default(), Holders::read(&object))),
        ),
        // That it is gone, or there already, is told by reading it.
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => RecordOutcome::Conflict,
        Err(Error::Api(status)) if status.code != 429 && status.code < 500 => {
            warn!(
                configmap = RECORD,
                error = status.message,
                "nobody can be put on record; external IPAMs are not asked"
            );
            RecordOutcome::Refused(status.message)
        }
        Err(error) => {
            debug!(configmap = RECORD, %error, "whether the record was written is not known; it is read again");
            RecordOutcome::Unsure
        }
    }
}

/// The same about a group's status, with the word the metric has for it.
fn group_failure(error: &Error) -> (&'static str, GroupOutcome) {
    match error {
        Error::Api(status) if status.code == 409 => ("conflict", GroupOutcome::Conflict),
        Error::Api(status) if status.code == 403 => ("forbidden", GroupOutcome::Refused(error.to_string())),
        Error::Api(status) if status.code != 429 && status.code < 500 => {
            ("other", GroupOutcome::Refused(error.to_string()))
        }
        _ => ("other", GroupOutcome::Unsure(error.to_string())),
    }
}

/// What an IPAM says about its pool, in the words of reports.
fn stock(stats: Stats) -> Stock {
    Stock {
        in_use_v4: stats.in_use_v4,
        in_use_v6: stats.in_use_v6,
        size: stats.size.map(|size| (size.v4, size.v6)),
        addresses: stats.display_addresses,
    }
}

fn is(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

fn metadata(service: &str, uid: String) -> ObjectMeta {
    let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
    let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    ObjectMeta { namespace, name, uid: Some(uid), ..ObjectMeta::default() }
}

fn reference(api_version: &str, kind: &str, metadata: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        field_path: None,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use rstest::rstest;

    use super::*;

    fn refusal(code: u16) -> Error {
        Error::Api(Box::new(Status::failure("no", "Reason").with_code(code)))
    }

    #[rstest]
    #[case(409, "conflict")]
    #[case(403, "forbidden")]
    #[case(404, "other")]
    #[case(422, "other")]
    #[case(429, "other")]
    #[case(500, "other")]
    fn sts_3_a_status_that_is_not_written_has_a_word_for_why(#[case] code: u16, #[case] word: &str) {
        let (said, outcome) = group_failure(&refusal(code));
        assert_eq!(said, word);
        let certain = matches!(outcome, GroupOutcome::Refused(_) | GroupOutcome::Conflict);
        assert_eq!(certain, code != 429 && code < 500, "{outcome:?}");
    }

    #[rstest]
    #[case(404, "Gone")]
    #[case(409, "Conflict")]
    #[case(403, "Refused")]
    #[case(422, "Refused")]
    #[case(429, "Unsure")]
    #[case(500, "Unsure")]
    #[case(504, "Unsure")]
    fn whether_a_write_may_have_arrived_is_never_guessed(#[case] code: u16, #[case] outcome: &str) {
        let said = format!("{:?}", failure("test/web", &refusal(code)));
        assert!(said.starts_with(outcome), "{said}");
    }

    #[tokio::test]
    async fn who_leads_no_longer_asks_no_ipam_and_frees_nothing() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let (recorder, _) = Recorder::new(client.clone(), "test");
        let (leader, leadership) = watch::channel(Leadership::Standby);
        let standing = Standing::new(Api::namespaced(client.clone(), "home"), "me".to_owned(), leader, PATIENCE);
        let metrics = Arc::new(Metrics::new(&mut prometheus_client::registry::Registry::default()));
        let workshop = Workshop::new(client, recorder, (leadership, standing), Readiness::default(), metrics, "home");
        let (group, socket, service) = ("ext".to_owned(), "/nowhere/ipam.sock".to_owned(), ServiceKey::from("test/a"));
        let (provider, families) = ("acme".to_owned(), Vec::new());
        let request = ExternalRequest { group: group.clone(), provider, socket: socket.clone(), families };
        let ask = Job::Ask { service: service.clone(), sharing_key: None, request };
        let asked = workshop.clone().run(1, ask).await;
        assert!(matches!(asked, Done::Service(_, Outcome::NotSent)), "{asked:?}");
        let release = Job::Release(Release { socket, group, service, addr: None });
        let told = workshop.run(1, release).await;
        assert!(matches!(&told, Done::Released(_, Err(not)) if !not.unsure), "{told:?}");
    }
}

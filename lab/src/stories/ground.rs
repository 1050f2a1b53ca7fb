//! The ground a story stands on: a client, a namespace of its own, and the verbs of the API in plain JSON.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::stream::BoxStream;
use futures::{AsyncBufReadExt, StreamExt};
use http::{Method, Request};
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};

use super::manifest;

/// How long a story waits for something that must come. Never waited for in full unless the story fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server and a fresh namespace on it.
pub struct Ground {
    /// A client with all rights.
    pub client: Client,
    /// A namespace that no other story uses.
    pub namespace: String,
    /// What this server has forgotten.
    pub past: Past,
}

/// A time the server no longer knows: its history was compacted after this was read. Empty for a server that remembers
/// everything.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The namespace with the Events that were listed then.
    pub namespace: String,
    /// The resourceVersion of that list.
    pub resource_version: String,
    /// The token for the second page of that list.
    pub continue_token: String,
}

impl Past {
    /// Lists Events page by page, and writes more, so that the first page is history.
    ///
    /// Events, because the API server reads them from etcd directly: of most other kinds its watch cache keeps a
    /// history of its own, and a compacted etcd would not show. The caller compacts up to the version returned beside.
    pub async fn record(client: &Client) -> Result<(Self, u64)> {
        let ground = Ground::named(client.clone(), "past", Self::default()).await?;
        let path = ground.core("events");
        for name in ["first", "second"] {
            ground.create(&path, &manifest::event(&ground.namespace, name)).await?;
        }
        let page = ground.get(&format!("{path}?limit=1")).await?;
        // A watch reads from the version after the one it names, so one more is not enough.
        ground.create(&path, &manifest::event(&ground.namespace, "third")).await?;
        let last = ground.create(&path, &manifest::event(&ground.namespace, "fourth")).await?;
        let past = Self {
            namespace: ground.namespace,
            resource_version: text(&page["metadata"]["resourceVersion"])?,
            continue_token: text(&page["metadata"]["continue"])?,
        };
        Ok((past, version(&last)?))
    }
}

/// The three patch formats that PureLB sends, and one that nobody knows.
#[derive(Clone, Copy, Debug)]
pub enum PatchType {
    /// RFC 7386.
    Merge,
    /// RFC 6902.
    Json,
    /// Kubernetes' own, which knows merge keys.
    Strategic,
    /// No server has heard of it.
    Unknown,
}

impl PatchType {
    fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Unknown => "application/x-unheard-of",
        }
    }
}

impl Ground {
    /// Makes a namespace whose name starts with `story`, so that any number of stories and runs can share a server.
    pub async fn fresh(client: Client, past: Past) -> Result<Self> {
        Self::named(client, "story", past).await
    }

    async fn named(client: Client, prefix: &str, past: Past) -> Result<Self> {
        let mut ground = Self { client, namespace: String::new(), past };
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": format!("{prefix}-")}});
        let made = ground.create("/api/v1/namespaces", &namespace).await.context("cannot make a namespace")?;
        ground.namespace = text(&made["metadata"]["name"])?;
        Ok(ground)
    }

    /// A second namespace on the same server.
    pub async fn neighbour(&self) -> Result<Self> {
        Self::fresh(self.client.clone(), self.past.clone()).await
    }

    /// A path of the core group in this namespace: `core("services/web/status")`.
    #[must_use]
    pub fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// A path of a named group in this namespace: `group("coordination.k8s.io/v1", "leases")`.
    #[must_use]
    pub fn group(&self, group: &str, rest: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{rest}", self.namespace)
    }

    /// GET.
    pub async fn get(&self, path: &str) -> kube::Result<Value> {
        self.send(Method::GET, path, "application/json", Vec::new()).await
    }

    /// POST.
    pub async fn create(&self, path: &str, object: &Value) -> kube::Result<Value> {
        self.send(Method::POST, path, "application/json", object.to_string().into()).await
    }

    /// PUT.
    pub async fn replace(&self, path: &str, object: &Value) -> kube::Result<Value> {
        self.send(Method::PUT, path, "application/json", object.to_string().into()).await
    }

    /// DELETE without options.
    pub async fn delete(&self, path: &str) -> kube::Result<Value> {
        self.send(Method::DELETE, path, "application/json", Vec::new()).await
    }

    /// DELETE with options, such as preconditions.
    pub async fn delete_with(&self, path: &str, options: &Value) -> kube::Result<Value> {
        self.send(Method::DELETE, path, "application/json", options.to_string().into()).await
    }

    /// PATCH.
    pub async fn patch(&self, path: &str, kind: PatchType, patch: &Value) -> kube::Result<Value> {
        self.send(Method::PATCH, path, kind.content_type(), patch.to_string().into()).await
    }

    /// Any request, well formed or not.
    pub async fn send(&self, method: Method, path: &str, content: &str, body: Vec<u8>) -> kube::Result<Value> {
        let request = Request::builder().method(method).uri(path).header("content-type", content).body(body);
        self.client.request(request.map_err(kube::Error::HttpError)?).await
    }

    /// Opens a watch; `query` continues the path, as in `?watch=1&resourceVersion=7`.
    pub async fn watch(&self, path: &str, query: &str) -> Result<Watch> {
        let request = Request::get(format!("{path}?watch=1&{query}")).body(Vec::new())?;
        let stream = self.client.request_stream(request).await?;
        let events = stream.lines().map(|line| Ok(serde_json::from_str(&line?)?)).boxed();
        Ok(Watch { events })
    }

    /// Installs PureLB's own CRDs if they are not there yet, and waits until the server serves them.
    pub async fn install_crds(&self) -> Result<()> {
        for crd in purelb_api::crds() {
            let crd = serde_json::to_value(crd)?;
            let created = self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await;
            if let Err(kube::Error::Api(status)) = &created
                && status.reason == "AlreadyExists"
            {
                continue;
            }
            created.with_context(|| format!("the server refuses the CRD {}", crd["metadata"]["name"]))?;
        }
        for plural in ["servicegroups", "lbnodeagents"] {
            for version in ["v1", "v2"] {
                self.served(&format!("/apis/purelb.io/{version}/{plural}")).await?;
            }
        }
        Ok(())
    }

    /// Waits until a path answers.
    pub async fn served(&self, path: &str) -> Result<()> {
        self.until(path, true).await.with_context(|| format!("{path} is still not served"))
    }

    /// Waits until a path is not found any more.
    pub async fn gone(&self, path: &str) -> Result<()> {
        self.until(path, false).await.with_context(|| format!("{path} is still there"))
    }

    async fn until(&self, path: &str, there: bool) -> Result<()> {
        let settled = async {
            while self.found(path).await? != there {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, settled).await?
    }

    async fn found(&self, path: &str) -> Result<bool> {
        match self.get(path).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(true),
        }
    }
}

/// An open watch.
pub struct Watch {
    events: BoxStream<'static, Result<Value>>,
}

impl Watch {
    /// The next event, which must come.
    pub async fn next(&mut self) -> Result<Value> {
        let event = tokio::time::timeout(PATIENCE, self.events.next()).await.context("no event came on the watch")?;
        event.context("the watch ended")?
    }

    /// The next event as `TYPE name`.
    pub async fn next_brief(&mut self) -> Result<String> {
        let event = self.next().await?;
        Ok(format!("{} {}", text(&event["type"])?, text(&event["object"]["metadata"]["name"])?))
    }

    /// The next event, which must be of this type and about this name; its object is returned.
    pub async fn expect(&mut self, kind: &str, name: &str) -> Result<Value> {
        let mut event = self.next().await?;
        ensure!(
            event["type"] == kind && event["object"]["metadata"]["name"] == name,
            "expected {kind} {name}, got {event}"
        );
        Ok(event["object"].take())
    }

    /// Whatever comes until the server ends the watch, which must have been given a timeout.
    pub async fn until_the_end(mut self) -> Result<Vec<Value>> {
        let all = async {
            let mut events = Vec::new();
            while let Some(event) = self.events.next().await {
                events.push(event?);
            }
            Ok(events)
        };
        tokio::time::timeout(PATIENCE, all).await.context("the watch did not end at its timeout")?
    }
}

/// The refusal that a request must have met, with this code and reason.
pub fn refused<T: std::fmt::Debug>(result: kube::Result<T>, code: u16, reason: &str) -> Result<Box<Status>> {
    match result {
        Ok(value) => bail!("expected {code} {reason}, but the server said yes: {value:?}"),
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == code && status.reason == reason, "expected {code} {reason}, got {status:?}");
            Ok(status)
        }
        Err(error) => Err(error).context("expected an answer of the API server"),
    }
}

/// The refusal of a write that was decided on an old version of the object, 409.
pub fn conflict<T: std::fmt::Debug>(result: kube::Result<T>, resource: &str, name: &str) -> Result<()> {
    let status = refused(result, 409, "Conflict")?;
    let words = format!(
        "Operation cannot be fulfilled on {resource} \"{name}\": the object has been modified; \
         please apply your changes to the latest version and try again"
    );
    ensure!(status.message == words, "expected {words:?}, got {:?}", status.message);
    Ok(())
}

/// The refusal of an invalid object, 422, which must name this field among its causes.
pub fn invalid<T: std::fmt::Debug>(result: kube::Result<T>, field: &str) -> Result<Box<Status>> {
    let status = refused(result, 422, "Invalid")?;
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    ensure!(causes.iter().any(|cause| cause.field == field), "expected a cause that names {field}, got {status:?}");
    Ok(status)
}

/// Whether every field of `part` is in `whole`, at any depth.
#[must_use]
pub fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields.iter().all(|(name, value)| contains(&whole[name], value)),
        Value::Array(items) => whole.as_array().is_some_and(|whole| {
            whole.len() == items.len() && whole.iter().zip(items).all(|(whole, item)| contains(whole, item))
        }),
        value => whole == value,
    }
}

/// A text that must be there.
pub(super) fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("expected a text, got {value}"))?.to_owned())
}

/// The resourceVersion of an object, as the number that it is since Kubernetes 1.35.
pub(super) fn version(object: &Value) -> Result<u64> {
    let text = text(&object["metadata"]["resourceVersion"])?;
    text.parse().with_context(|| format!("the resourceVersion {text} is no number"))
}

/// The names in a list, in its order.
pub(super) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array();
    items.into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

//! Get and list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::call::{Call, Form};
use crate::kinds::{Resource, Served};
use crate::object;
use crate::query::{Freshness, ListOptions};
use crate::select::{FieldSelector, LabelSelector};
use crate::state::State;
use crate::status::Refusal;
use crate::store::{Bucket, Key, Object, TooOld};
use crate::table;

/// Which objects of a kind a request is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    namespace: Option<String>,
    name: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    served: Served,
}

impl Filter {
    /// # Errors
    /// If a field selector asks for a field the kind does not offer.
    pub(crate) fn new(call: &Call, options: &ListOptions) -> Result<Self, Refusal> {
        for field in options.fields.fields() {
            check_field(&call.resource, &call.served, field)?;
        }
        Ok(Self {
            namespace: call.namespace.clone(),
            name: call.name.clone(),
            labels: options.labels.clone(),
            fields: options.fields.clone(),
            served: call.served.clone(),
        })
    }

    pub(crate) fn admits(&self, key: &Key, object: &Object) -> bool {
        let read = |label: &str| match label {
            "metadata.name" => key.name.clone(),
            "metadata.namespace" => key.namespace.clone(),
            _ => {
                let field = self.served.fields.iter().find(|field| field.label == label);
                field.map(|field| field.read(object.value())).unwrap_or_default()
            }
        };
        self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
            && self.name.as_ref().is_none_or(|name| *name == key.name)
            && self.labels.admits(object.value())
            && self.fields.admits(read)
    }

    fn selects(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

fn check_field(resource: &Resource, served: &Served, label: &str) -> Result<(), Refusal> {
    let plain = served.fields.is_empty() && !resource.traits.custom;
    let known = match label {
        "metadata.name" => true,
        "metadata.namespace" => resource.namespaced || plain,
        _ => served.fields.iter().any(|field| field.label == label),
    };
    if known {
        return Ok(());
    }
    Err(Refusal::BadRequest(if plain {
        format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {label}")
    }))
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub revision: u64,
    pub items: Vec<Object>,
    pub continue_token: Option<String>,
    /// Known only where nothing is selected.
    pub remaining: Option<usize>,
}

/// A single object.
pub(crate) fn get(state: &State, call: &Call) -> Result<Object, Refusal> {
    let found = state.store.object(&call.resource.bucket, &call.key());
    found.cloned().ok_or_else(|| Refusal::NotFound(call.subject()))
}

/// A list or a page of it.
pub(crate) fn list(state: &State, call: &Call, options: &ListOptions) -> Result<Page, Refusal> {
    let filter = Filter::new(call, options)?;
    if !options.continue_token.is_empty() {
        return next_page(state, call, options, &filter);
    }
    let store = &state.store;
    let bucket = &call.resource.bucket;
    let current = store.revision();
    match options.freshness()? {
        Freshness::NotOlderThan(wanted) | Freshness::Exact(wanted) if wanted > current => {
            Err(Refusal::FutureRevision { wanted, current })
        }
        Freshness::Exact(revision) => {
            let past = store.bucket_at(bucket, revision).map_err(|_| too_old_list())?;
            Ok(page(&past, revision, options.limit, None, &filter))
        }
        Freshness::Any => Ok(page(store.bucket(bucket), current, 0, None, &filter)),
        Freshness::Latest | Freshness::NotOlderThan(_) => {
            Ok(page(store.bucket(bucket), current, options.limit, None, &filter))
        }
    }
}

fn too_old_list() -> Refusal {
    Refusal::Expired("The resourceVersion for the provided list is too old.".into(), None)
}

fn next_page(state: &State, call: &Call, options: &ListOptions, filter: &Filter) -> Result<Page, Refusal> {
    let (revision, after) = read_token(&options.continue_token)?;
    let store = &state.store;
    let bucket = &call.resource.bucket;
    let Some(revision) = revision else {
        return Ok(page(store.bucket(bucket), store.revision(), options.limit, Some(&after), filter));
    };
    if revision > store.revision() {
        return Err(Refusal::FutureRevision { wanted: revision, current: store.revision() });
    }
    match store.bucket_at(bucket, revision) {
        Ok(past) => Ok(page(&past, revision, options.limit, Some(&after), filter)),
        Err(TooOld { .. }) => Err(Refusal::Expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
             results. Continuing with the provided token results in an inconsistent list - objects that were created, \
             modified, or deleted between the time the first chunk was returned and now may show up in the list."
                .into(),
            Some(token(None, &after)),
        )),
    }
}

fn page(bucket: &Bucket, revision: u64, limit: usize, after: Option<&Key>, filter: &Filter) -> Page {
    let in_order = bucket.iter().filter(|(key, _)| after.is_none_or(|after| *key > after));
    let mut wanted = in_order.filter(|(key, object)| filter.admits(key, object));
    let most = if limit == 0 { usize::MAX } else { limit };
    let chosen: Vec<(&Key, &Object)> = wanted.by_ref().take(most).collect();
    let left = if limit == 0 { 0 } else { wanted.count() };
    let last = chosen.last().filter(|_| left > 0);
    Page {
        revision,
        continue_token: last.map(|(key, _)| token(Some(revision), key)),
        remaining: (left > 0 && !filter.selects()).then_some(left),
        items: chosen.into_iter().map(|(_, object)| object.clone()).collect(),
    }
}

/// Where a list goes on, and at which revision; without one it goes on with the newest state.
fn token(revision: Option<u64>, after: &Key) -> String {
    let revision = revision.map_or_else(|| json!(-1), |revision| json!(revision));
    let start = format!("{}/{}\0", after.namespace, after.name);
    URL_SAFE_NO_PAD.encode(json!({"v": "meta.k8s.io/v1", "rv": revision, "start": start}).to_string())
}

fn read_token(token: &str) -> Result<(Option<u64>, Key), Refusal> {
    let bad = |why: &str| Refusal::BadRequest(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).map_err(|error| bad(&error.to_string()))?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
    if value["v"] != "meta.k8s.io/v1" {
        return Err(bad("server does not recognize this encoded version"));
    }
    let start = value["start"].as_str().unwrap_or_default();
    let (namespace, name) = start.split_once('/').ok_or_else(|| bad("no start key"))?;
    Ok((value["rv"].as_u64(), Key::new(namespace, name.trim_end_matches('\0'))))
}

/// An object as the client wants to see it.
pub(crate) fn render_one(call: &Call, object: &Object, now: Timestamp) -> Value {
    let shown = call.show(object);
    let Form::Table(include) = call.form else { return shown.into_owned() };
    let columns = &call.served.columns;
    let metadata = json!({"resourceVersion": object::meta(&shown, "resourceVersion")});
    table::table(&metadata, &table::header(columns), &[table::row(columns, &shown, include, now)])
}

/// A page as the client wants to see it.
pub(crate) fn render(call: &Call, page: &Page, now: Timestamp) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(token) = &page.continue_token {
        metadata["continue"] = json!(token);
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    let (kind, api_version) = match call.form {
        Form::Full => (call.resource.list_kind.clone(), call.served.api_version()),
        Form::MetadataOnly => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        Form::Table(include) => {
            let columns = &call.served.columns;
            let row = |object| table::row(columns, &call.show(object), include, now);
            let rows: Vec<Value> = page.items.iter().map(row).collect();
            return table::table(&metadata, &table::header(columns), &rows);
        }
    };
    let bare = !call.resource.traits.custom && call.form == Form::Full;
    let item = |object: &Object| {
        let shown = call.show(object);
        if bare { object::without_type(&shown) } else { shown.into_owned() }
    };
    let items: Vec<Value> = page.items.iter().map(item).collect();
    json!({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_survives_the_journey() {
        let key = Key::new("default", "web");
        assert_eq!(read_token(&token(Some(7), &key)), Ok((Some(7), key.clone())));
        assert_eq!(read_token(&token(None, &key)), Ok((None, key)));
        for bad in ["abc", "%%", "e30", ""] {
            assert_eq!(read_token(bad).expect_err(bad).code(), 400);
        }
    }
}

//! Delete and deletecollection.

use serde_json::{Value, json};

use crate::call::Call;
use crate::kinds::bucket;
use crate::object;
use crate::query::{ListOptions, WriteOptions, invalid_options};
use crate::read::{self, Page};
use crate::state::State;
use crate::status::{Cause, Refusal};
use crate::store::{Key, Object};

/// What a delete request asks for besides the object.
#[derive(Debug, Default)]
pub(crate) struct DeleteOptions {
    dry_run: bool,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the body, which may be empty, on top of the query parameters.
    pub(crate) fn read(options: &WriteOptions, body: &[u8]) -> Result<Self, Refusal> {
        let bad = |why: &str| Refusal::BadRequest(format!("couldn't get version/kind; json parse error: {why}"));
        let body: Value = match body {
            [] => json!({}),
            bytes => serde_json::from_slice(bytes).map_err(|error| bad(&error.to_string()))?,
        };
        if !body.is_object() && !body.is_null() {
            return Err(bad("not an object"));
        }
        let mut causes = Vec::new();
        if let Some(policy) = body["propagationPolicy"].as_str()
            && !matches!(policy, "Foreground" | "Background" | "Orphan")
        {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::unsupported("propagationPolicy", policy, &known));
        }
        let dry_run: Vec<&Value> = body["dryRun"].as_array().into_iter().flatten().collect();
        if dry_run.iter().any(|word| **word != "All") {
            causes.push(Cause::unsupported("dryRun", &dry_run, &["All"]));
        }
        if !causes.is_empty() {
            return Err(invalid_options("DeleteOptions", causes));
        }
        let precondition = |field: &str| body["preconditions"][field].as_str().map(str::to_owned);
        Ok(Self {
            dry_run: options.dry_run || !dry_run.is_empty(),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }
}

/// Deletes an object, or marks it as being deleted while finalizers hold it.
pub(crate) fn delete(state: &mut State, call: &Call, options: &DeleteOptions) -> Result<Value, Refusal> {
    let object = read::get(state, call)?;
    check_preconditions(call, options, &object)?;
    if call.resource.bucket == bucket::NAMESPACES {
        return delete_namespace(state, call, options, &object);
    }
    let held = !object::finalizers(object.value()).is_empty();
    let answer = |shown: &Object| {
        if held || call.resource.traits.returns_deleted { call.show(shown).into_owned() } else { done(call, shown) }
    };
    if options.dry_run {
        return Ok(answer(&object));
    }
    Ok(answer(&end(state, call, &call.key(), &object)))
}

/// Removes an object, or marks it; returns its new or last state.
fn end(state: &mut State, call: &Call, key: &Key, object: &Object) -> Object {
    if object::finalizers(object.value()).is_empty() {
        return state.remove(&call.resource, key).unwrap_or_else(|| object.clone());
    }
    if object::is_being_deleted(object.value()) {
        return object.clone();
    }
    let mut marked = object.value().clone();
    let metadata = object::map_at(&mut marked, "metadata");
    metadata.insert("deletionTimestamp".into(), json!(state.now()));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
        metadata.insert("generation".into(), json!(generation.saturating_add(1)));
    }
    state.put(&call.resource, key.clone(), marked)
}

fn done(call: &Call, object: &Object) -> Value {
    let mut details = json!({
        "name": object::name(object.value()), "kind": call.resource.plural, "uid": object::meta(object.value(), "uid"),
    });
    if !call.served.group.is_empty() {
        details["group"] = json!(call.served.group);
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

fn check_preconditions(call: &Call, options: &DeleteOptions, object: &Object) -> Result<(), Refusal> {
    let conflict = |why: String| {
        let subject = call.resource.kind_subject(object::name(object.value()));
        Err(Refusal::Conflict(subject, why))
    };
    let (uid, version) = (object::meta(object.value(), "uid"), object::meta(object.value(), "resourceVersion"));
    match (&options.uid, &options.resource_version) {
        (Some(wanted), _) if wanted != uid => conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been \
             deleted and then recreated"
        )),
        (_, Some(wanted)) if wanted != version => conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). \
             The object might have been modified"
        )),
        _ => Ok(()),
    }
}

/// Namespaces that a cluster cannot do without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Ends a namespace and everything in it. There is no controller to wait for: what no finalizer holds goes at once.
fn delete_namespace(
    state: &mut State,
    call: &Call,
    options: &DeleteOptions,
    object: &Object,
) -> Result<Value, Refusal> {
    let name = object::name(object.value()).to_owned();
    if IMMORTAL.contains(&name.as_str()) {
        return Err(Refusal::Forbidden(call.subject(), "this namespace may not be deleted".into(), Vec::new()));
    }
    if options.dry_run || object::is_being_deleted(object.value()) {
        return Ok(call.show(object).into_owned());
    }
    let mut marked = object.value().clone();
    object::map_at(&mut marked, "metadata").insert("deletionTimestamp".into(), json!(state.now()));
    object::map_at(&mut marked, "status").insert("phase".into(), json!("Terminating"));
    let marked = state.put(&call.resource, call.key(), marked);
    empty_namespace(state, &name);
    state.finish_namespace(&name);
    Ok(call.show(&marked).into_owned())
}

fn empty_namespace(state: &mut State, namespace: &str) {
    let resources: Vec<_> = state.registry.all().filter(|it| it.namespaced).cloned().collect();
    for resource in resources {
        let Some(served) = resource.served.first().cloned() else { continue };
        let inside =
            |(key, object): (&Key, &Object)| (key.namespace == namespace).then(|| (key.clone(), object.clone()));
        let objects: Vec<(Key, Object)> = state.store.bucket(&resource.bucket).iter().filter_map(inside).collect();
        let call =
            Call { resource, served, namespace: Some(namespace.into()), name: None, form: crate::call::Form::Full };
        for (key, object) in objects {
            end(state, &call, &key, &object);
        }
    }
}

/// Deletes all objects of a list and answers with them.
pub(crate) fn delete_collection(
    state: &mut State,
    call: &Call,
    list: &ListOptions,
    options: &DeleteOptions,
) -> Result<Page, Refusal> {
    let page = read::list(state, call, list)?;
    for object in page.items.iter().filter(|_| !options.dry_run) {
        check_preconditions(call, options, object)?;
        end(state, call, &call.key_of(object::name(object.value())), object);
    }
    Ok(page)
}

//! Create, update and patch.

use serde_json::{Value, json};

use crate::body;
use crate::call::Call;
use crate::kinds::bucket;
use crate::meta;
use crate::object;
use crate::patch::Patch;
use crate::query::WriteOptions;
use crate::state::State;
use crate::status::{Cause, MODIFIED, Refusal};
use crate::store::{Key, Object};

/// What a write answers with.
#[derive(Debug)]
pub(crate) struct Written {
    /// 201 if the object is new.
    pub created: bool,
    /// The object as the client sees it.
    pub object: Value,
    /// Sentences for `Warning` headers.
    pub warnings: Vec<String>,
}

/// How often a colliding generated name is drawn again.
const NAME_DRAWS: usize = 8;

/// Creates an object from a request body.
pub(crate) fn create(state: &mut State, call: &Call, options: &WriteOptions, body: &[u8]) -> Result<Written, Refusal> {
    let (new, warnings) = body::decode(call, options, body)?;
    if !object::meta(&new, "resourceVersion").is_empty() {
        return Err(Refusal::Internal("resourceVersion should not be set on objects to be created".into()));
    }
    let object = insert(state, call, options, new)?;
    Ok(Written { created: true, object, warnings })
}

fn insert(state: &mut State, call: &Call, options: &WriteOptions, mut new: Value) -> Result<Value, Refusal> {
    place(call, &mut new)?;
    check_namespace(state, call, object::name(&new))?;
    let generated = object::name(&new).is_empty() && !object::meta(&new, "generateName").is_empty();
    for _ in 0..if generated { NAME_DRAWS } else { 1 } {
        if generated {
            let name = format!("{}{}", object::meta(&new, "generateName"), state.new_suffix());
            object::set_meta(&mut new, "name", &name);
        }
        match insert_named(state, call, options, new.clone()) {
            Err(Refusal::AlreadyExists(_)) if generated => {}
            outcome => return outcome,
        }
    }
    Err(Refusal::AlreadyExists(call.subject_of(object::name(&new))))
}

fn insert_named(state: &mut State, call: &Call, options: &WriteOptions, mut new: Value) -> Result<Value, Refusal> {
    let (uid, now) = (state.new_uid(), state.now());
    meta::on_create(&call.resource, &mut new, &uid, &now);
    let mut causes = meta::faults(&call.resource, &new);
    causes.extend(call.resource.rules.create(&state.ground(), &call.served, &mut new));
    refuse_if_any(call, &new, causes)?;
    let key = call.key_of(object::name(&new));
    if state.store.object(&call.resource.bucket, &key).is_some() {
        return Err(Refusal::AlreadyExists(call.subject_of(&key.name)));
    }
    let stored = call.resource.rules.save(new);
    if options.dry_run {
        return Ok(call.show_value(&stored));
    }
    let object = state.put(&call.resource, key, stored);
    Ok(call.show(&object).into_owned())
}

/// Puts an object into the namespace of the request.
fn place(call: &Call, new: &mut Value) -> Result<(), Refusal> {
    let wanted = call.namespace.as_deref().unwrap_or_default();
    let given = object::namespace(new);
    if call.resource.namespaced && !given.is_empty() && given != wanted {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Refusal::BadRequest(why.into()));
    }
    object::set_meta(new, "namespace", wanted);
    Ok(())
}

/// New objects need a namespace that exists and is not on its way out.
fn check_namespace(state: &State, call: &Call, name: &str) -> Result<(), Refusal> {
    let Some(namespace) = call.namespace.as_deref() else { return Ok(()) };
    let Some(found) = state.store.object(bucket::NAMESPACES, &Key::new("", namespace)) else {
        return Err(Refusal::NotFound(crate::status::Subject::new("", bucket::NAMESPACES, namespace)));
    };
    if object::is_being_deleted(found.value()) {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        };
        return Err(Refusal::Forbidden(call.subject_of(name), why, vec![cause]));
    }
    Ok(())
}

fn refuse_if_any(call: &Call, object: &Value, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() {
        return Ok(());
    }
    let mut subject = call.resource.kind_subject(object::name(object));
    // Custom objects may lie about their kind; the answer quotes them.
    if let Some(kind) = object["kind"].as_str().filter(|_| call.resource.traits.custom) {
        subject.kind = kind.into();
    }
    Err(Refusal::Invalid(subject, causes))
}

/// Replaces an object, or its status, with a request body.
pub(crate) fn update(
    state: &mut State,
    call: &Call,
    options: &WriteOptions,
    body: &[u8],
    status: bool,
) -> Result<Written, Refusal> {
    let (mut new, warnings) = body::decode(call, options, body)?;
    check_name(call, &new)?;
    let Some(stored) = state.store.object(&call.resource.bucket, &call.key()).cloned() else {
        if status || !call.resource.traits.create_on_update {
            return Err(Refusal::NotFound(call.subject()));
        }
        object::set_meta(&mut new, "resourceVersion", "");
        let object = insert(state, call, options, new)?;
        return Ok(Written { created: true, object, warnings });
    };
    check_uid(call, &new, stored.value())?;
    if call.resource.traits.versioned_update && object::meta(&new, "resourceVersion").is_empty() {
        let cause = Cause::invalid("metadata.resourceVersion", 0, "must be specified for an update");
        return Err(Refusal::Invalid(call.subject(), vec![cause]));
    }
    let object = replace(state, call, options, &stored, new, status)?;
    Ok(Written { created: false, object, warnings })
}

/// Applies a patch to an object or its status.
pub(crate) fn patch(
    state: &mut State,
    call: &Call,
    options: &WriteOptions,
    patch: &Patch,
    status: bool,
) -> Result<Written, Refusal> {
    let found = state.store.object(&call.resource.bucket, &call.key()).cloned();
    let stored = found.ok_or_else(|| Refusal::NotFound(call.subject()))?;
    let shown = call.resource.rules.show(&call.served, stored.value());
    let patched = patch.apply(&call.resource.kind, &shown)?;
    let (new, warnings) = body::decode_patched(call, options, patched)?;
    check_name(call, &new)?;
    let object = replace(state, call, options, &stored, new, status)?;
    Ok(Written { created: false, object, warnings })
}

fn check_name(call: &Call, new: &Value) -> Result<(), Refusal> {
    let (wanted, given) = (call.name.as_deref().unwrap_or_default(), object::name(new));
    if given == wanted {
        return Ok(());
    }
    Err(Refusal::BadRequest(if given.is_empty() {
        format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({wanted})")
    }))
}

fn check_uid(call: &Call, new: &Value, old: &Value) -> Result<(), Refusal> {
    let (wanted, actual) = (object::meta(new, "uid"), object::meta(old, "uid"));
    if wanted.is_empty() || wanted == actual {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {actual}");
    Err(Refusal::Conflict(call.subject(), why))
}

/// Puts `new` in the place of what is stored, if it is allowed and makes a difference.
fn replace(
    state: &mut State,
    call: &Call,
    options: &WriteOptions,
    stored: &Object,
    mut new: Value,
    status: bool,
) -> Result<Value, Refusal> {
    place(call, &mut new)?;
    check_revision(call, &new, stored.value())?;
    let rules = &call.resource.rules;
    let old = rules.recall(&call.served, stored.value());
    meta::on_update(&old, &mut new);
    let mut causes = meta::update_faults(&old, &new);
    causes.extend(meta::faults(&call.resource, &new));
    let ground = state.ground();
    causes.extend(if status {
        rules.update_status(&ground, &call.served, &old, &mut new)
    } else {
        rules.update(&ground, &call.served, &old, &mut new)
    });
    refuse_if_any(call, &new, causes)?;
    meta::count_generation(&call.resource, call.served.status, &old, &mut new);
    object::set_meta(&mut new, "resourceVersion", object::meta(stored.value(), "resourceVersion"));
    let saved = rules.save(new);
    if saved == *stored.value() || options.dry_run {
        return Ok(call.show_value(&saved));
    }
    if object::is_being_deleted(&saved) && object::finalizers(&saved).is_empty() {
        state.remove(&call.resource, &call.key());
        return Ok(call.show_value(&saved));
    }
    let object = state.put(&call.resource, call.key(), saved);
    Ok(call.show(&object).into_owned())
}

fn check_revision(call: &Call, new: &Value, old: &Value) -> Result<(), Refusal> {
    let wanted = object::meta(new, "resourceVersion");
    let actual = object::meta(old, "resourceVersion");
    if wanted.is_empty() || wanted == "0" || wanted == actual {
        return Ok(());
    }
    if wanted.parse::<u64>().is_err() {
        return Err(Refusal::Internal(format!("strconv.ParseUint: parsing {}: invalid syntax", json!(wanted))));
    }
    Err(Refusal::Conflict(call.subject(), MODIFIED.into()))
}

//! HTTP in, HTTP out: routing of requests to verbs, negotiation of formats.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use serde_json::Value;

use crate::Shared;
use crate::call::{Call, Form};
use crate::delete::{self, DeleteOptions};
use crate::kinds::bucket;
use crate::patch::Patch;
use crate::path::{ResourcePath, Target};
use crate::query::{ListOptions, Query, WriteOptions};
use crate::status::Refusal;
use crate::table::Include;
use crate::write::{self, Written};
use crate::{discovery, openapi, protobuf, read, watch};

/// The body of an answer; that of a watch streams.
pub type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// Larger request bodies are refused, as the API server does.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// Answers one request.
pub(crate) async fn answer<B>(shared: Arc<Shared>, request: http::Request<B>) -> Response<ResponseBody>
where
    B: Body,
    B::Error: Into<tower::BoxError>,
{
    let (parts, body) = request.into_parts();
    let outcome = match Limited::new(body, LARGEST_BODY).collect().await {
        Ok(body) => route(&shared, &parts, &body.to_bytes()),
        Err(_) => Err(Refusal::BodyTooLarge(LARGEST_BODY)),
    };
    outcome.unwrap_or_else(|refusal| refuse(&refusal))
}

pub(crate) fn refuse(refusal: &Refusal) -> Response<ResponseBody> {
    let code = StatusCode::from_u16(refusal.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if *refusal == Refusal::UnknownPath {
        return text(code, refusal.to_string());
    }
    json(code, &refusal.to_status())
}

fn respond(code: StatusCode, content_type: &'static str, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn full(bytes: Bytes) -> ResponseBody {
    Full::new(bytes).boxed_unsync()
}

fn json(code: StatusCode, value: &Value) -> Response<ResponseBody> {
    respond(code, "application/json", full(value.to_string().into()))
}

fn text(code: StatusCode, text: String) -> Response<ResponseBody> {
    respond(code, "text/plain; charset=utf-8", full(text.into()))
}

fn written(written: Written) -> Response<ResponseBody> {
    let code = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = json(code, &written.object);
    for warning in written.warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

fn route(shared: &Arc<Shared>, parts: &Parts, body: &[u8]) -> Result<Response<ResponseBody>, Refusal> {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let form = match negotiate(&parts.headers)? {
        Form::Table(_) => Form::Table(Include::read(&query)?),
        other => other,
    };
    let target = Target::parse(parts.uri.path())?;
    let path = match target {
        Target::Resource(path) => path,
        _ if parts.method != Method::GET => return Err(Refusal::MethodNotAllowed),
        Target::Health => return Ok(text(StatusCode::OK, "ok".into())),
        other => return describe(shared, &other).map(|value| json(StatusCode::OK, &value)),
    };
    let watch_path = path.watch;
    let (call, status) = resolve(shared, path, form)?;
    if call.name.is_some() && !watch_path {
        return one(shared, parts, &call, &query, body, status);
    }
    many(shared, parts, call, &query, body, watch_path)
}

fn describe(shared: &Shared, target: &Target) -> Result<Value, Refusal> {
    let state = shared.lock();
    match target {
        Target::Version => Ok(discovery::version()),
        Target::CoreVersions => Ok(discovery::core_versions()),
        Target::Groups => Ok(discovery::groups(&state.registry)),
        Target::Group(group) => discovery::group(&state.registry, group),
        Target::Resources { group, version } => discovery::resources(&state.registry, group, version),
        Target::Documents => Ok(openapi::index(&state.registry)),
        Target::Document { group, version } => openapi::document(&state.registry, group, version),
        Target::Health | Target::Resource(_) => Err(Refusal::UnknownPath),
    }
}

/// Finds the kind behind a path; the flag says whether its status is addressed.
fn resolve(shared: &Shared, path: ResourcePath, form: Form) -> Result<(Call, bool), Refusal> {
    let state = shared.lock();
    let found = state.registry.find(&path.group, &path.version, &path.plural);
    let (resource, served) = found.ok_or_else(|| discovery::unknown(&state.registry, &path.group))?;
    if (path.name.is_some() || path.namespace.is_some()) && resource.namespaced != path.namespace.is_some() {
        return Err(discovery::unknown(&state.registry, &path.group));
    }
    let status = match path.subresource.as_deref() {
        None => false,
        Some("status") if served.status => true,
        Some(_) => return Err(Refusal::UnknownResource),
    };
    Ok((Call { resource, served, namespace: path.namespace, name: path.name, form }, status))
}

/// Requests about one object.
fn one(
    shared: &Shared,
    parts: &Parts,
    call: &Call,
    query: &Query,
    body: &[u8],
    status: bool,
) -> Result<Response<ResponseBody>, Refusal> {
    // Each arm takes the lock for one statement: answers are rendered outside it.
    match parts.method {
        Method::GET => {
            let object = read::get(&shared.lock(), call)?;
            Ok(json(StatusCode::OK, &read::render_one(call, &object, shared.now())))
        }
        Method::PUT => {
            let body = &object_text(&parts.headers, body)?;
            let options = WriteOptions::read(query, "UpdateOptions")?;
            let done = shared.write(|state| write::update(state, call, &options, body, status))?;
            Ok(written(done))
        }
        Method::PATCH => {
            let kind = content_type(&parts.headers);
            let patch = Patch::parse(&kind, call.resource.traits.custom, body)?;
            let options = WriteOptions::read(query, "PatchOptions")?;
            let done = shared.write(|state| write::patch(state, call, &options, &patch, status))?;
            Ok(written(done))
        }
        Method::DELETE if !status => {
            let options = WriteOptions::read(query, "DeleteOptions")?;
            let options = DeleteOptions::read(&options, body)?;
            let gone = shared.write(|state| delete::delete(state, call, &options))?;
            Ok(json(StatusCode::OK, &gone))
        }
        _ => Err(Refusal::MethodNotAllowed),
    }
}

/// Requests about a collection.
fn many(
    shared: &Arc<Shared>,
    parts: &Parts,
    call: Call,
    query: &Query,
    body: &[u8],
    watch_path: bool,
) -> Result<Response<ResponseBody>, Refusal> {
    // Writing needs a namespace where there is one.
    let complete = call.namespace.is_some() == call.resource.namespaced;
    match parts.method {
        Method::GET => {
            let mut options = ListOptions::read(query)?;
            options.watch |= watch_path;
            if options.watch { watch_many(shared, call, &options) } else { list_many(shared, &call, &options) }
        }
        Method::POST if complete => {
            let body = &object_text(&parts.headers, body)?;
            let options = WriteOptions::read(query, "CreateOptions")?;
            let done = shared.write(|state| write::create(state, &call, &options, body))?;
            Ok(written(done))
        }
        Method::DELETE if complete && call.resource.bucket != bucket::NAMESPACES => {
            let list = ListOptions::read(query)?;
            let options = DeleteOptions::read(&WriteOptions::read(query, "DeleteOptions")?, body)?;
            let page = shared.write(|state| delete::delete_collection(state, &call, &list, &options))?;
            Ok(json(StatusCode::OK, &read::render(&call, &page, shared.now())))
        }
        _ => Err(Refusal::MethodNotAllowed),
    }
}

fn list_many(shared: &Shared, call: &Call, options: &ListOptions) -> Result<Response<ResponseBody>, Refusal> {
    let page = read::list(&shared.lock(), call, options)?;
    Ok(json(StatusCode::OK, &read::render(call, &page, shared.now())))
}

fn watch_many(shared: &Arc<Shared>, call: Call, options: &ListOptions) -> Result<Response<ResponseBody>, Refusal> {
    let lines = watch::open(shared.clone(), call, options)?;
    let frames = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
    Ok(respond(StatusCode::OK, "application/json", StreamBody::new(frames).boxed_unsync()))
}

fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The body of a create or update as JSON text.
fn object_text<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, Refusal> {
    match content_type(headers).as_str() {
        "" | "application/json" => Ok(Cow::Borrowed(body)),
        "application/vnd.kubernetes.protobuf" => protobuf::to_json(body).map(Cow::Owned),
        _ => Err(Refusal::UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: application/json".into(),
        )),
    }
}

/// The first format in the `Accept` header that can be served.
fn negotiate(headers: &HeaderMap) -> Result<Form, Refusal> {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Ok(Form::Full);
    }
    let form = |entry: &str| {
        let mut parts = entry.split(';').map(str::trim);
        let is_json = matches!(parts.next(), Some("application/json" | "application/*" | "*/*"));
        let parameters: Vec<&str> = parts.collect();
        match parameters.iter().find_map(|parameter| parameter.strip_prefix("as=")) {
            _ if !is_json => None,
            None => Some(Form::Full),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if parameters.contains(&"v=v1") => {
                Some(Form::MetadataOnly)
            }
            Some("Table") if parameters.contains(&"v=v1") => Some(Form::Table(Include::Metadata)),
            Some(_) => None,
        }
    };
    accept.split(',').find_map(form).ok_or(Refusal::NotAcceptable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(accept: &'static str) -> Result<Form, Refusal> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        negotiate(&headers)
    }

    #[test]
    fn the_first_format_that_can_be_served_is_taken() {
        assert_eq!(accepting("application/json"), Ok(Form::Full));
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(accepting(table), Ok(Form::Table(Include::Metadata)));
        assert_eq!(accepting("application/json;as=Table;v=v9;g=meta.k8s.io,application/json"), Ok(Form::Full));
        assert_eq!(accepting("application/vnd.kubernetes.protobuf, */*"), Ok(Form::Full));
        let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(accepting(partial), Ok(Form::MetadataOnly));
        assert_eq!(accepting("application/xml"), Err(Refusal::NotAcceptable));
    }
}

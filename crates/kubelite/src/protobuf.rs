//! Objects in Kubernetes' binary form, which `kubectl create KIND` sends whatever the server says it understands.
//!
//! Only what kubectl makes that way is read: Namespaces, Services, Secrets, ConfigMaps and Deployments. Answers are JSON.

mod fields;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::status::Refusal;
use fields::{FIELDS, Type};

/// What every object in this form begins with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages are never nested deeper than the kinds themselves.
const DEEPEST: usize = 16;

/// Why bytes are no object.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("the object is cut short or garbled")]
    Garbled,
    #[error("field {1} of {0} is understood here only as JSON: write the object to a file and use kubectl create -f")]
    Unknown(String, u64),
}

/// The JSON text of an object in binary form.
///
/// # Errors
/// If it is garbled, or has a field that is not known here. Nothing is dropped silently.
pub(crate) fn to_json(body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let object = envelope(body).map_err(|fault| Refusal::UnsupportedMediaType(fault.to_string()))?;
    Ok(object.to_string().into_bytes())
}

fn envelope(body: &[u8]) -> Result<Value, Fault> {
    let outer = message("Unknown", body.strip_prefix(MAGIC).ok_or(Fault::Garbled)?, 0)?;
    let kind = outer["typeMeta"]["kind"].as_str().unwrap_or_default();
    let raw = STANDARD.decode(outer["raw"].as_str().unwrap_or_default()).map_err(|_| Fault::Garbled)?;
    let mut object = message(kind, &raw, 0)?;
    object["kind"] = json!(kind);
    object["apiVersion"] = outer["typeMeta"]["apiVersion"].clone();
    Ok(object)
}

/// A value as it stands on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn number(&self) -> Result<i64, Fault> {
        match self {
            // Negative numbers travel as their two's complement.
            Self::Number(number) => Ok(number.cast_signed()),
            Self::Bytes(_) => Err(Fault::Garbled),
        }
    }

    fn bytes(&self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Fault::Garbled),
        }
    }

    fn text(&self) -> Result<&'a str, Fault> {
        str::from_utf8(self.bytes()?).map_err(|_| Fault::Garbled)
    }

    fn is_zero(&self) -> bool {
        matches!(self, Self::Number(0) | Self::Bytes([]))
    }
}

fn message(name: &str, mut bytes: &[u8], depth: usize) -> Result<Value, Fault> {
    if depth > DEEPEST {
        return Err(Fault::Garbled);
    }
    let mut object = Map::new();
    while !bytes.is_empty() {
        let (number, wire) = next_field(&mut bytes)?;
        match FIELDS.iter().find(|(owner, known, ..)| *owner == name && *known == number) {
            Some((_, _, field, kind)) => add(&mut object, field, *kind, &wire, depth)?,
            None if wire.is_zero() => {}
            None => return Err(Fault::Unknown(name.into(), number)),
        }
    }
    Ok(Value::Object(object))
}

/// Puts a field into an object. Zeros mean absence, but for fields that may be set to zero.
fn add(object: &mut Map<String, Value>, field: &str, kind: Type, wire: &Wire<'_>, depth: usize) -> Result<(), Fault> {
    let list = |object: &mut Map<String, Value>, value: Value| {
        let items = object.entry(field).or_insert_with(|| json!([]));
        items.as_array_mut().expect("only lists are put here").push(value);
    };
    match kind {
        Type::Ignored => {}
        Type::Text | Type::Number | Type::Flag if wire.is_zero() => {}
        Type::Text => drop(object.insert(field.into(), json!(wire.text()?))),
        Type::Number | Type::SetNumber => drop(object.insert(field.into(), json!(wire.number()?))),
        Type::Flag | Type::SetFlag => drop(object.insert(field.into(), json!(wire.number()? != 0))),
        Type::Bytes => drop(object.insert(field.into(), json!(STANDARD.encode(wire.bytes()?)))),
        Type::Message(name) => drop(object.insert(field.into(), message(name, wire.bytes()?, depth + 1)?)),
        Type::Texts => list(object, json!(wire.text()?)),
        Type::Messages(name) => list(object, message(name, wire.bytes()?, depth + 1)?),
        Type::Map(entry) => {
            let entry = message(entry, wire.bytes()?, depth + 1)?;
            let key = entry["key"].as_str().unwrap_or_default().to_owned();
            let members = object.entry(field).or_insert_with(|| json!({}));
            members[key] = entry.get("value").cloned().unwrap_or_else(|| json!(""));
        }
        Type::NumberOrText => {
            let either = message("IntOrString", wire.bytes()?, depth + 1)?;
            let value = if either["type"] == 1 { either["strVal"].clone() } else { json!(either["intVal"].as_i64()) };
            object.insert(field.into(), if value.is_null() { json!(0) } else { value });
        }
    }
    Ok(())
}

fn next_field<'a>(bytes: &mut &'a [u8]) -> Result<(u64, Wire<'a>), Fault> {
    let tag = varint(bytes)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(bytes)?),
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| Fault::Garbled)?;
            let (value, rest) = bytes.split_at_checked(length).ok_or(Fault::Garbled)?;
            *bytes = rest;
            Wire::Bytes(value)
        }
        _ => return Err(Fault::Garbled),
    };
    Ok((tag >> 3, wire))
}

/// Seven bits per byte, the lowest first; the eighth says that more follow.
fn varint(bytes: &mut &[u8]) -> Result<u64, Fault> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Fault::Garbled)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Fault::Garbled)
}

#[cfg(test)]
mod tests;

//! The schemas of what is accepted and has no effect: known to the API server, so that nothing is refused or lost.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// What `kubectl explain` says of everything inside.
const NOTE: &str = "Accepted and without effect.";

/// One object of the schema, with the types of its fields.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let properties: serde_json::Map<_, _> =
        fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({"type": "object", "description": NOTE, "properties": properties})
}

/// The same, with fields that must be there.
fn demanding<const N: usize>(required: &[&str], fields: [(&str, Value); N]) -> Value {
    let mut schema = object(fields);
    schema["required"] = json!(required);
    schema
}

fn list(items: Value) -> Value {
    json!({"type": "array", "description": NOTE, "items": items})
}

/// A text; which ones make sense matters to nobody, for they have no effect.
fn word() -> Value {
    json!({"type": "string", "description": NOTE})
}

fn words() -> Value {
    list(word())
}

fn number() -> Value {
    json!({"type": "integer", "format": "int64", "description": NOTE})
}

fn truth() -> Value {
    json!({"type": "boolean", "description": NOTE})
}

fn schema(value: Value) -> Schema {
    Schema::try_from(value).unwrap_or_default()
}

/// A text.
pub fn text(_: &mut SchemaGenerator) -> Schema {
    schema(word())
}

/// True or false.
pub fn flag(_: &mut SchemaGenerator) -> Schema {
    schema(truth())
}

/// An entry of a Secret, as Kubernetes describes it.
pub fn secret_key(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["key"],
        "properties": {
            "name": {"type": "string", "description": "The Secret."},
            "key": {"type": "string", "description": "The entry of its data."},
            "optional": {
                "type": "boolean",
                "description": "True talks without a password while there is no such Secret or entry.",
            },
        },
    })
}

/// `global.routeSelectionOptions`.
pub fn route_selection(_: &mut SchemaGenerator) -> Schema {
    schema(object([("alwaysCompareMed", truth()), ("advertiseInactiveRoutes", truth())]))
}

/// `global.defaultRouteDistance`.
pub fn route_distance(_: &mut SchemaGenerator) -> Schema {
    schema(object([("externalRouteDistance", number()), ("internalRouteDistance", number())]))
}

/// `global.confederation`.
pub fn confederation(_: &mut SchemaGenerator) -> Schema {
    schema(object([("enabled", truth()), ("identifier", number()), ("memberAsList", list(number()))]))
}

/// `applyPolicy`, of all neighbors, of one and of a group.
pub fn apply_policy(_: &mut SchemaGenerator) -> Schema {
    let policy = || object([("name", word()), ("policies", words()), ("defaultAction", word())]);
    schema(object([("importPolicy", policy()), ("exportPolicy", policy())]))
}

/// `afiSafis[].prefixLimit`.
pub fn prefix_limit(_: &mut SchemaGenerator) -> Schema {
    schema(object([("maxPrefixes", number()), ("shutdownThresholdPct", number())]))
}

/// `afiSafis[].addPaths`.
pub fn add_paths(_: &mut SchemaGenerator) -> Schema {
    schema(object([("receive", truth()), ("sendMax", number())]))
}

/// `neighbors[].routeReflector`.
pub fn route_reflector(_: &mut SchemaGenerator) -> Schema {
    let required = ["routeReflectorClient", "routeReflectorClusterId"];
    schema(demanding(&required, [("routeReflectorClient", truth()), ("routeReflectorClusterId", word())]))
}

/// `dynamicNeighbors`.
pub fn dynamic_neighbors(_: &mut SchemaGenerator) -> Schema {
    schema(list(object([("prefix", word()), ("peerGroup", word())])))
}

/// `netlinkExport`.
pub fn netlink_export(_: &mut SchemaGenerator) -> Schema {
    let rule = demanding(
        &["name"],
        [
            ("name", word()),
            ("communityList", words()),
            ("largeCommunityList", words()),
            ("vrf", word()),
            ("tableId", number()),
            ("metric", number()),
            ("validateNexthop", truth()),
        ],
    );
    schema(object([
        ("enabled", truth()),
        ("dampeningInterval", number()),
        ("routeProtocol", number()),
        ("rules", list(rule)),
    ]))
}

/// `vrfs`.
pub fn vrfs(_: &mut SchemaGenerator) -> Schema {
    let import = object([("enabled", truth()), ("interfaceList", words())]);
    let export = object([
        ("enabled", truth()),
        ("linuxVrf", word()),
        ("linuxTableId", number()),
        ("metric", number()),
        ("validateNexthop", truth()),
        ("communityList", words()),
        ("largeCommunityList", words()),
    ]);
    schema(list(demanding(
        &["name"],
        [
            ("name", word()),
            ("rd", word()),
            ("importRt", words()),
            ("exportRt", words()),
            ("netlinkImport", import),
            ("netlinkExport", export),
        ],
    )))
}

/// `policyDefinitions`.
pub fn policy_definitions(_: &mut SchemaGenerator) -> Schema {
    let set = || object([("name", word()), ("match", word())]);
    let conditions = object([
        ("prefixSet", set()),
        ("neighborSet", set()),
        ("asPathSet", set()),
        ("communitySet", set()),
        ("rpkiResult", word()),
    ]);
    let actions = object([
        ("routeAction", word()),
        ("community", object([("type", word()), ("communities", words())])),
        ("med", object([("type", word()), ("value", number())])),
        ("asPrepend", object([("asn", number()), ("repeat", number())])),
        ("localPref", number()),
    ]);
    let statement = object([("name", word()), ("conditions", conditions), ("actions", actions)]);
    schema(list(object([("name", word()), ("statements", list(statement))])))
}

/// `definedSets`.
pub fn defined_sets(_: &mut SchemaGenerator) -> Schema {
    let prefix = object([("ipPrefix", word()), ("maskLengthMin", number()), ("maskLengthMax", number())]);
    schema(list(object([("type", word()), ("name", word()), ("list", words()), ("prefixes", list(prefix))])))
}

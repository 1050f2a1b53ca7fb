//! What the author of an unknown field may have meant.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use crate::schema::{at, field};

/// How many letters may be wrong in a name for it to count as a slip.
const SLIPS: usize = 2;

/// A hint for the unknown field at `path`, such as `: did you mean v4pool?`; empty if nothing comes to mind.
pub fn hint(schema: &JSONSchemaProps, path: &str) -> String {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let siblings = at(schema, parent).and_then(|parent| parent.properties.as_ref());
    let near = siblings.into_iter().flat_map(|fields| fields.keys());
    let nearest = near.map(|sibling| (distance(name, sibling), sibling)).min();
    if let Some((_, sibling)) = nearest.filter(|(slips, sibling)| *slips <= SLIPS.min(sibling.len() / 3)) {
        return format!(": did you mean {sibling}?");
    }
    match elsewhere(schema, name, "") {
        Some(home) => format!(": {name} belongs under {home}"),
        None => String::new(),
    }
}

/// The first object in which a field of this name is at home.
fn elsewhere(schema: &JSONSchemaProps, name: &str, path: &str) -> Option<String> {
    let fields = schema.properties.as_ref()?;
    if fields.contains_key(name) && !path.is_empty() {
        return Some(path.to_owned());
    }
    fields.iter().find_map(|(inner, schema)| elsewhere(schema, name, &field(path, inner)))
}

/// How many letters must be changed, added or removed to get from one name to the other; upper and lower case are
/// alike.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.chars().enumerate() {
            let change = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("v4pool", "v4Pool", 0)]
    #[case("v4pools", "v4pool", 1)]
    #[case("sunbet", "subnet", 2)]
    #[case("", "pool", 4)]
    #[case("aggregate", "aggregation", 3)]
    fn distances(#[case] one: &str, #[case] other: &str, #[case] slips: usize) {
        assert_eq!(distance(one, other), slips);
        assert_eq!(distance(other, one), slips);
    }

    #[rstest]
    #[case("spec.local.v4Pool", ": did you mean v4pool?")]
    #[case("spec.local.v6pools[2].sunbet", ": did you mean subnet?")]
    #[case("spec.enforceNamespace", ": did you mean enforceNamespaces?")]
    #[case("spec.v4pools", ": v4pools belongs under spec.local")]
    #[case("spec.remote.skipIPv6DAD", ": skipIPv6DAD belongs under spec.local")]
    #[case("spec.local.gateway", "")]
    #[case("specs", ": did you mean spec?")]
    fn hints(#[case] path: &str, #[case] expected: &str) {
        let crd = crate::crds().remove(0);
        let schema = crd.spec.versions[1].schema.clone().unwrap().open_api_v3_schema.unwrap();
        assert_eq!(hint(&schema, path), expected);
    }
}

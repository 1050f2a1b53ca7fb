//! The entries of a Secret, as passwords that are never printed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use purelb_core::bgp::Password;

/// Reads a Secret: its name and its entries. A line end that an editor or `echo` left behind is no part of a password.
pub fn secret(object: &Secret) -> (String, BTreeMap<String, Password>) {
    let entries = object.data.iter().flatten().map(|(key, value)| {
        let end = value.0.iter().rposition(|octet| !matches!(octet, b'\n' | b'\r')).map_or(0, |last| last + 1);
        (key.clone(), Password::new(&value.0[..end]))
    });
    (object.name_any(), entries.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_password_ends_where_its_author_thinks_it_does() {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bgp"},
            "data": {"plain": "b3BlbnNlc2FtZQ==", "line": "b3BlbnNlc2FtZQo=", "empty": "", "blank": "Cg=="},
        });
        let (name, entries) = secret(&serde_json::from_value(object).unwrap());
        assert_eq!(name, "bgp");
        let passwords: Vec<_> = entries.iter().map(|(key, password)| (key.as_str(), password.expose())).collect();
        let expected: [(&str, &[u8]); 4] =
            [("blank", b""), ("empty", b""), ("line", b"opensesame"), ("plain", b"opensesame")];
        assert_eq!(passwords, expected);
    }
}

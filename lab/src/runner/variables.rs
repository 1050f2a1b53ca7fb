//! The environment and the command line of a container.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, EnvVar, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use super::Seat;
use super::images::Image;

/// Where every Pod finds the API server, by kube-proxy.
const API: [(&str, &str); 4] = [
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ("KUBERNETES_SERVICE_PORT", "443"),
    ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
    ("KUBERNETES_PORT", "tcp://10.96.0.1:443"),
];
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A Pod as its containers see it.
pub(super) struct View<'a> {
    pub(super) pod: &'a Pod,
    pub(super) seat: &'a Seat,
    pub(super) addresses: &'a [IpAddr],
    pub(super) hostname: &'a str,
}

impl View<'_> {
    /// All variables, later ones with the values of earlier ones.
    ///
    /// # Errors
    /// When the Pod asks for a source that the lab does not know.
    pub(super) fn variables(&self, container: &Container, image: &Image) -> Result<Vec<(String, String)>, String> {
        let fixed = [("PATH", PATH), ("HOSTNAME", self.hostname), ("HOME", "/")].into_iter().chain(API);
        let mut all: Vec<(String, String)> = fixed.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        all.extend(image.variables.iter().cloned());
        if container.env_from.as_ref().is_some_and(|from| !from.is_empty()) {
            return Err("the lab does not know envFrom".to_owned());
        }
        for variable in container.env.iter().flatten() {
            if let Some(value) = self.value(variable)? {
                all.push((variable.name.clone(), expand(&value, &all)));
            }
        }
        Ok(all)
    }

    /// The command line.
    pub(super) fn arguments(container: &Container, image: &Image, variables: &[(String, String)]) -> Vec<String> {
        let own = container.command.clone().filter(|command| !command.is_empty());
        let command = own.unwrap_or_else(|| image.entrypoint.clone());
        let line = command.iter().chain(container.args.iter().flatten());
        line.map(|word| expand(word, variables)).collect()
    }

    /// Nothing, where the Pod can do without it.
    fn value(&self, variable: &EnvVar) -> Result<Option<String>, String> {
        let Some(source) = &variable.value_from else { return Ok(Some(variable.value.clone().unwrap_or_default())) };
        if source.secret_key_ref.as_ref().is_some_and(|key| key.optional == Some(true)) {
            return Ok(None);
        }
        let field = source.field_ref.as_ref();
        let field =
            field.ok_or_else(|| format!("the lab does not know the source of the variable {}", variable.name))?;
        self.field(field).map(Some)
    }

    /// A field of the Pod, by the names of the downward API.
    pub(super) fn field(&self, selector: &ObjectFieldSelector) -> Result<String, String> {
        let join = |addresses: &[IpAddr]| addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
        let nodes = [IpAddr::from(self.seat.v4), IpAddr::from(self.seat.v6)];
        let spec = self.pod.spec.as_ref();
        Ok(match selector.field_path.as_str() {
            "metadata.name" => self.pod.name_any(),
            "metadata.namespace" => self.pod.namespace().unwrap_or_default(),
            "metadata.uid" => self.pod.uid().unwrap_or_default(),
            "spec.nodeName" => self.seat.name.clone(),
            "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
            "status.hostIP" => join(&nodes[..1]),
            "status.hostIPs" => join(&nodes),
            "status.podIP" => join(self.addresses.get(..1).unwrap_or_default()),
            "status.podIPs" => join(self.addresses),
            other => self.labelled(other).ok_or_else(|| format!("the lab does not know the field {other}"))?,
        })
    }

    /// `metadata.labels['key']` and the same of annotations.
    fn labelled(&self, path: &str) -> Option<String> {
        let (map, key) = path.strip_suffix("']")?.split_once("['")?;
        let map = match map {
            "metadata.labels" => self.pod.labels(),
            "metadata.annotations" => self.pod.annotations(),
            _ => return None,
        };
        Some(map.get(key).cloned().unwrap_or_default())
    }
}

/// Puts values in the place of `$(NAME)`; what names nothing stays, and `$$` is a dollar.
fn expand(text: &str, variables: &[(String, String)]) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        done += before;
        rest = after;
        if let Some(after) = rest.strip_prefix('$') {
            done.push('$');
            rest = after;
            continue;
        }
        let name = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        let known = name.and_then(|(name, after)| {
            let found = variables.iter().rev().find(|(known, _)| known == name);
            found.map(|(_, value)| (value, after))
        });
        match known {
            Some((value, after)) => {
                done += value;
                rest = after;
            }
            None => done.push('$'),
        }
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_brackets_become_values_and_all_else_stays() {
        let known = [("NODE".to_owned(), "node1".to_owned())];
        assert_eq!(expand("--node=$(NODE)", &known), "--node=node1");
        assert_eq!(expand("$(NONE) $NODE $$(NODE) 5$", &known), "$(NONE) $NODE $(NODE) 5$");
    }
}

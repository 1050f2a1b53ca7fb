//! The rules of ServiceGroup that span several fields, as CEL expressions and the sentences the API server answers
//! with.
//!
//! All of them look at objects, none at the items of a list: the API server estimates a rule's cost before it accepts a
//! CRD, and lists without a limit cost too much. A limit would refuse groups that clusters already store.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, ValidationRule};

/// A CEL expression and what to say when it is false.
#[derive(Clone, Copy)]
pub struct Rule {
    expression: &'static str,
    message: &'static str,
}

/// v1 groups may have no source (0.13 stored them so), or one that v2 does not count: the flat form, or NetBox.
pub const ONE_SOURCE: Rule = Rule {
    expression: "has(self.placement) || \
                 (has(self.local) ? 1 : 0) + (has(self.remote) ? 1 : 0) + (has(self.external) ? 1 : 0) == 1",
    message: "exactly one of local, remote, or external must be specified",
};

/// Remote and external groups have said already where they announce.
pub const AUTO_IS_LOCAL: Rule = Rule {
    expression: "!has(self.placement) || !(has(self.remote) || has(self.external))",
    message: "placement: Auto goes with local only, not with remote or external: delete placement (purelb.io/v1 always sets it: \
              write the group as purelb.io/v2)",
};

/// The form of v1 with a single range has no family, which v2 wants said.
pub const V1_RANGE: Rule = Rule {
    expression: "has(self.placement) || !has(self.local) || \
                 !(has(self.local.pool) || has(self.local.subnet) || has(self.local.aggregation))",
    message: "local.pool, local.subnet and local.aggregation belong to purelb.io/v1: write them as an entry of local.v4pools or \
              local.v6pools",
};

/// Relies on the default false of `enforceNamespaces`, which both versions have.
pub const ENFORCE_NAMESPACES: Rule = Rule {
    expression: "!self.enforceNamespaces || (has(self.namespaces) && size(self.namespaces) > 0)",
    message: "enforceNamespaces requires a non-empty namespaces list, otherwise it silently enforces nothing",
};

/// Relies on the default false of `namespaceDefault`, which both versions have.
pub const NAMESPACE_DEFAULT: Rule = Rule {
    expression: "!self.namespaceDefault || (has(self.namespaces) && size(self.namespaces) > 0)",
    message: "namespaceDefault requires a non-empty namespaces list, otherwise it defaults nothing",
};

/// For `local` and `remote`; relies on the defaults of both fields, which both versions have.
pub const ONE_WAY_TO_CHOOSE: Rule = Rule {
    expression: "!(self.multiPool && self.balancePools)",
    message: "multiPool and balancePools are mutually exclusive: set only one of them",
};

/// v1 only. A rule that mentions `oldSelf` is asked on updates alone. An object without placement was written as v2,
/// and writing it through v1 would default placement and so change how its addresses are announced.
pub const EDIT_AS_V2: Rule = Rule {
    expression: "has(oldSelf.placement) || !has(self.placement)",
    message: "this group was written as purelb.io/v2: edit it as v2 (kubectl edit servicegroups.v2.purelb.io NAME)",
};

/// Adds rules to the schema of an object.
pub fn add(schema: &mut JSONSchemaProps, rules: &[Rule]) {
    schema.x_kubernetes_validations.get_or_insert_default().extend(rules.iter().map(|rule| ValidationRule {
        rule: rule.expression.to_owned(),
        message: Some(rule.message.to_owned()),
        ..ValidationRule::default()
    }));
}

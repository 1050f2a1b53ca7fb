//! Asks a CEL interpreter what the API server would say of a ServiceGroup; for tests only.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube_cel::{CompiledSchema, Validator, compile_schema};
use serde_json::{Value, json};

use super::path::each;

/// The rules of one version of ServiceGroup.
pub struct Judge {
    schema: JSONSchemaProps,
    rules: CompiledSchema,
    validator: Validator,
}

impl Judge {
    /// The judge for one version.
    pub fn of(version: &str) -> Self {
        let crd = crate::crds().remove(0);
        let served = crd.spec.versions.into_iter().find(|served| served.name == version).unwrap();
        let schema = served.schema.unwrap().open_api_v3_schema.unwrap();
        // The interpreter would default the old object too. What is stored was defaulted by the version it was written
        // through, not by the one that looks at it, and the rule about editing depends on the difference.
        let mut bare = schema.clone();
        each(&mut bare, &mut |schema| schema.default = None);
        let rules = compile_schema(&serde_json::to_value(bare).unwrap());
        Judge { schema, rules, validator: Validator::new() }
    }

    /// What is said of a spec that is created or, with what was stored before, updated.
    pub fn refusals(&self, spec: &Value, old: Option<&Value>) -> Vec<String> {
        let mut object = json!({"spec": spec});
        crate::schema::fill(&self.schema, &mut object);
        let old = old.map(|spec| json!({"spec": spec}));
        let found = self.validator.validate_compiled(&self.rules, &object, old.as_ref());
        found.err().into_iter().flat_map(|errors| errors.into_vec()).map(|error| error.message).collect()
    }
}

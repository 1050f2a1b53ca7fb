//! What `purelb validate` tells operators about their manifests.

use std::path::Path;

use purelb_api::validate;
use purelb_api::validate::Report;

fn report(files: &[&str]) -> Report {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |file| std::fs::read_to_string(folder.join(file)).expect("the manifest is in tests/data");
    let texts: Vec<_> = files.iter().map(read).collect();
    validate(files.iter().copied().zip(texts.iter().map(String::as_str)))
}

/// The report as text, without the file names and the objects that every line begins with.
fn lines(report: &Report) -> Vec<String> {
    let line = |finding: &purelb_api::validate::Finding| {
        format!("{} {} {}: {} {}", finding.line, finding.severity, finding.name, finding.field, finding.reason)
    };
    report.findings.iter().map(line).collect()
}

#[test]
fn the_documentations_range_is_refused_with_the_range_its_author_meant() {
    let report = report(&["remotedual-as-printed.yaml"]);
    assert!(!report.is_clean());
    assert_eq!(
        report.to_string(),
        "remotedual-as-printed.yaml:10: error: ServiceGroup purelb-system/remotedual: spec.local.v4pools[0].pool: \
         range 172.32.100.225-172.30.100.229 runs backwards: 172.30.100.229 comes before 172.32.100.225; \
         write 172.32.100.225-172.32.100.229 instead\n\
         1 ServiceGroup and 0 LBNodeAgents in 1 file: 1 error, 0 warnings\n"
    );
}

#[test]
fn the_documentations_name_is_refused_with_a_legal_one() {
    let report = report(&["virtual-address-range-as-printed.yaml"]);
    assert_eq!(
        lines(&report),
        [
            "4 error VirtualAddressRange: metadata.name NameInvalid",
            "7 warning VirtualAddressRange: spec.name NameIgnored"
        ]
    );
    let sentence = &report.findings[0].sentence;
    assert!(sentence.contains("write \"virtualaddressrange\" instead"), "{sentence}");
}

#[test]
fn the_documentations_groups_with_their_slips_corrected_are_fine() {
    let report = report(&["seeds-corrected.yaml"]);
    assert!(report.is_clean());
    assert_eq!(
        report.to_string(),
        "2 ServiceGroups and 0 LBNodeAgents in 1 file (1 object of other kinds passed over): 0 errors, 0 warnings\n"
    );
}

#[test]
fn each_slip_is_named_once_where_it_is() {
    let report = report(&["slips.yaml"]);
    assert_eq!(
        lines(&report),
        [
            "9 error typo: spec.local.v4Pool FieldUnknown",
            "19 error misplaced: spec.v6pools FieldUnknown",
            "28 error two-sources: spec SourceCount",
            "44 error single-range: spec.local SingleRangeInV2",
            "54 error automatic-remote: spec.remote SourceInV1",
            "69 error numbers: spec.remote.v4pools[0].aggregation SchemaViolated",
            "70 error numbers: spec.remote.v4pools[1].subnet FieldMissing",
            "71 error numbers: spec.remote.v4pools[1].aggregation AggregationTooLong",
            "79 error external: spec.external.provider FieldMissing",
            "80 error external: spec.external.announce ExternalAnnounce",
            "102 error default: spec.nodeSelector.matchExpressions[0].operator SelectorInvalid",
            "105 error default: spec.local.localInterface InterfacePattern",
            "107 error default: spec.local.garpConfig.count NumberOutOfRange",
            "108 error default: spec.local.garpConfig.interval SchemaViolated",
        ]
    );
    let sentence = |line| &report.findings.iter().find(|finding| finding.line == line).unwrap().sentence;
    assert!(sentence(9).ends_with("did you mean v4pool?"), "{}", sentence(9));
    assert!(sentence(19).ends_with("v6pools belongs under spec.local"), "{}", sentence(19));
    assert!(sentence(28).ends_with("but there is local and remote; keep one"), "{}", sentence(28));
    assert!(sentence(69).ends_with("put the value in quotes"), "{}", sentence(69));
}

#[test]
fn groups_are_compared_across_files_namespaces_versions_and_lists() {
    let report = report(&["together.yaml", "seeds-corrected.yaml"]);
    assert_eq!(
        lines(&report),
        [
            "13 warning aaa: spec.local.v4pools[1].pool RangesMerged",
            "21 error bbb: spec.local.v4pool.pool GroupsOverlap",
            "25 error aaa: metadata.name GroupDuplicate",
            "25 warning aaa: metadata.namespace NamespacesDiffer",
            "33 error aaa: metadata.name ObjectDuplicate",
        ]
    );
    let sentence = |position: usize| &report.findings[position].sentence;
    assert!(sentence(1).contains("overlaps with already defined pool \"aaa\""), "{}", sentence(1));
    assert!(sentence(2).contains("ServiceGroup purelb-system/aaa has that name already"), "{}", sentence(2));
    assert!(sentence(4).contains("at together.yaml:5 already"), "{}", sentence(4));
    assert_eq!((report.counts.service_groups, report.counts.others), (6, 2));
}

#[test]
fn overlaps_between_files_name_both_groups() {
    let group = |name: &str| {
        format!(
            "{{apiVersion: purelb.io/v2, kind: ServiceGroup, metadata: {{name: {name}}}, \
             spec: {{local: {{v4pool: {{pool: 10.0.0.1, subnet: 10.0.0.0/24}}}}}}}}"
        )
    };
    let (one, two) = (group("one"), group("two"));
    let report = validate([("one.yaml", one.as_str()), ("two.yaml", two.as_str())]);
    assert_eq!(lines(&report), ["1 error two: spec.local.v4pool.pool GroupsOverlap"]);
    assert_eq!(report.findings[0].file, "two.yaml");
    assert!(report.findings[0].sentence.contains("\"one\""));
}

#[test]
fn a_document_that_cannot_be_read_spoils_no_other() {
    let report = report(&["unreadable.yaml"]);
    assert_eq!(
        report.to_string(),
        "\
unreadable.yaml:12: error: this is not YAML: simple key expected ':'
unreadable.yaml:20: error: this is not YAML: duplicate mapping key: name
unreadable.yaml:22: error: ServiceGroup fifth: apiVersion: there is no apiVersion \"purelb.io/v3\"; write purelb.io/v2 \
(or purelb.io/v1 for groups that decide by themselves where they announce)
unreadable.yaml:28: error: ServiceGroups sixth: kind: purelb.io has no kind \"ServiceGroups\"; write ServiceGroup or LBNodeAgent
unreadable.yaml:32: error: LBNodeAgent seventh: apiVersion: apiVersion is missing; write purelb.io/v2
unreadable.yaml:36: error: LBNodeAgent: metadata.name: the object has no name; write one under metadata.name
1 ServiceGroup and 1 LBNodeAgent in 1 file (1 object of other kinds passed over): 6 errors, 0 warnings
"
    );
}

#[test]
fn machines_get_the_same_report() {
    let report = serde_json::to_value(report(&["remotedual-as-printed.yaml"])).unwrap();
    let finding = &report["findings"][0];
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["file"], "remotedual-as-printed.yaml");
    assert_eq!(finding["line"], 10);
    assert_eq!(finding["kind"], "ServiceGroup");
    assert_eq!(finding["namespace"], "purelb-system");
    assert_eq!(finding["name"], "remotedual");
    assert_eq!(finding["field"], "spec.local.v4pools[0].pool");
    assert_eq!(finding["reason"], "RangeReversed");
    assert!(finding["sentence"].as_str().unwrap().contains("172.32.100.225-172.32.100.229"));
    let counts = serde_json::json!({
        "files": 1, "serviceGroups": 1, "nodeAgents": 0, "bgpConfigurations": 0, "others": 0, "errors": 1, "warnings": 0,
    });
    assert_eq!(report["counts"], counts);
}

#[test]
fn empty_texts_comments_and_foreign_yaml_are_passed_over() {
    let texts = [("empty", ""), ("comment", "# nothing\n---\n---\n"), ("list", "- 1\n- 2\n"), ("text", "hello\n")];
    let report = validate(texts);
    assert!(report.findings.is_empty());
    assert_eq!((report.counts.files, report.counts.others), (4, 2));
}

#[test]
fn unusual_metadata_hides_nothing() {
    for metadata in ["5", "[]", "{name: 5}", "{name: a, labels: 7, ownerReferences: no}"] {
        let text = format!(
            "apiVersion: purelb.io/v2\nkind: ServiceGroup\nmetadata: {metadata}\nspec: {{local: {{v4pool: {{pool: x, subnet: 10.0.0.0/8}}}}}}\n"
        );
        let report = validate([("x", text.as_str())]);
        let reasons: Vec<_> = report.findings.iter().map(|finding| finding.reason.as_str()).collect();
        assert!(reasons.contains(&"RangeSyntax"), "{metadata}: {reasons:?}");
    }
}

#[test]
fn each_mistake_in_a_bgp_configuration_is_named_where_it_is() {
    let report = report(&["bgp-slips.yaml"]);
    assert_eq!(
        lines(&report),
        [
            "7 error default: spec.global.routerID RouterIdSyntax",
            "8 warning default: spec.global.useMultiplePaths UnsupportedFields",
            "11 error default: spec.neighbors[0].config.neighborAddress AddressSyntax",
            "14 error default: spec.neighbors[1].timers.holdTime FieldUnknown",
            "15 warning default: spec.neighbors[2].config.neighborInterface NeighborInterfaceUnsupported",
            "19 error default: spec.neighbors[3].advertise.communities[0] CommunitySyntax",
            "20 warning default: spec.neighbors[4].config.authPassword PasswordInline",
            "27 error spare: spec.global.asn SchemaViolated",
            "28 warning spare: spec.netlinkImport NothingImported",
            "31 error misplaced: kind KindUnknown",
            "35 error later: apiVersion VersionUnknown",
        ]
    );
    let text = report.to_string();
    assert!(!text.contains("hunter2"), "a password is never repeated: {text}");
    assert!(text.contains("bgp.purelb.io/v1"), "{text}");
    assert!(
        text.ends_with("0 ServiceGroups, 1 LBNodeAgent and 2 BGPConfigurations in 1 file: 7 errors, 4 warnings\n"),
        "{text}"
    );
}

#[test]
fn a_second_bgp_configuration_and_an_interface_that_is_not_advertised_are_noticed() {
    let bgp = |name: &str, interface: &str| {
        format!(
            "{{apiVersion: bgp.purelb.io/v1, kind: BGPConfiguration, metadata: {{name: {name}}}, spec: {{global: {{asn: 64512}}, \
             netlinkImport: {{enabled: true, interfaceList: [{interface}]}}}}}}"
        )
    };
    let agent = "{apiVersion: purelb.io/v2, kind: LBNodeAgent, metadata: {name: default}, spec: {local: {}}}";
    let (first, second) = (bgp("default", "eth0"), bgp("another", "kube-lb*"));
    let report = validate([("agent", agent), ("first", &first), ("second", &second)]);
    assert_eq!(
        lines(&report),
        [
            "1 warning default: spec.netlinkImport.interfaceList VirtualInterfaceNotImported",
            "1 warning another: metadata.name BgpConfigurationIgnored",
        ]
    );
    let report = validate([("agent", agent), ("second", &second)]);
    assert_eq!(lines(&report), [""; 0], "a pattern stands for it");
}

#[test]
fn every_field_of_the_bgp_api_is_accepted_and_those_without_effect_are_named() {
    let report = report(&["bgp-every-field.yaml"]);
    assert!(report.is_clean(), "{report}");
    let reasons: std::collections::BTreeSet<_> =
        report.findings.iter().map(|finding| finding.reason.as_str()).collect();
    assert_eq!(reasons, std::collections::BTreeSet::from(["UnsupportedFields"]));
}

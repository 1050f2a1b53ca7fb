//! Groups for namespaces (NS-1 to NS-8).

use super::*;

fn tenant(name: &str, pool: &str, enforce: bool, default: bool) -> Group {
    let mut group = group(name, &[pool]);
    group.namespaces = vec!["tenant".into(), "tenant".into()];
    (group.enforce_namespaces, group.namespace_default) = (enforce, default);
    group
}

#[test]
fn ns_1_2_and_7_a_listed_namespace_uses_its_group_and_may_leave_it() {
    let mut town =
        Town::new(&[group("default", &["10.0.0.1-10.0.0.9"]), tenant("t", "10.1.0.1-10.1.0.9", false, false)]);
    assert_eq!(town.put(svc("other/a")).text(), "10.0.0.1");
    assert_eq!(town.put(svc("tenant/a")).text(), "10.1.0.1");
    assert_eq!(town.put(svc("tenant/b").from("default")).text(), "10.0.0.2");
    assert_eq!(town.put(svc("other/b").from("t")).text(), "10.1.0.2");
}

#[test]
fn ns_3_an_enforcing_group_keeps_others_out_and_its_own_in() {
    let mut town =
        Town::new(&[group("default", &["10.0.0.1-10.0.0.9"]), tenant("t", "10.1.0.1-10.1.0.9", true, false)]);
    let outsider = town.put(svc("other/a").from("t"));
    assert!(
        outsider.condition.message.starts_with("namespace denied: ServiceGroup \"t\""),
        "{}",
        outsider.condition.message
    );
    let insider = town.put(svc("tenant/a").from("default"));
    assert!(insider.condition.message.contains("may only use [t]"), "{}", insider.condition.message);
    assert_eq!(town.put(svc("other/b")).text(), "10.0.0.1");
}

#[test]
fn ns_4_one_enforcing_group_fences_all_groups_of_the_tenant() {
    let groups = [tenant("t1", "10.1.0.1-10.1.0.9", true, true), tenant("t2", "10.2.0.1-10.2.0.9", false, false)];
    let mut town = Town::new(&groups);
    for group in ["t1", "t2"] {
        assert_eq!(town.put(svc(&format!("other/{group}")).from(group)).text(), "GroupConfined");
        assert!(town.put(svc(&format!("tenant/{group}")).from(group)).condition.assigned);
    }
}

#[test]
fn ns_5_the_marked_group_is_the_default() {
    let groups = [tenant("t1", "10.1.0.1-10.1.0.9", false, false), tenant("t2", "10.2.0.1-10.2.0.9", false, true)];
    let mut town = Town::new(&groups);
    assert_eq!(town.put(svc("tenant/a")).text(), "10.2.0.1");
    assert_eq!(town.put(svc("tenant/b").from("t1")).text(), "10.1.0.1");
}

#[test]
fn ns_6_ambiguity_is_an_error_only_for_those_who_may_not_use_default() {
    let default = || group("default", &["10.0.0.1-10.0.0.9"]);
    let open = [default(), tenant("t1", "10.1.0.1/32", false, false), tenant("t2", "10.2.0.1/32", false, false)];
    let wish = Town::new(&open).put(svc("tenant/a"));
    assert_eq!((wish.text(), wish.events()), ("10.0.0.1".into(), vec!["ConfigurationWarning", "AddressAssigned"]));
    assert!(wish.notices[0].message.contains("none sets namespaceDefault"), "{}", wish.notices[0].message);
    assert_eq!(wish.reason, None, "nothing was refused, so nothing is counted");
    assert_eq!(wish.notices[0].severity, Severity::Warning);
    assert!(wish.notices[0].message.ends_with("allocated from \"default\" instead"), "{}", wish.notices[0].message);
    let fenced = [default(), tenant("t1", "10.1.0.1/32", true, true), tenant("t2", "10.2.0.1/32", false, true)];
    let wish = Town::new(&fenced).put(svc("tenant/a"));
    assert_eq!(wish.text(), "AmbiguousNamespaceDefault");
    assert!(wish.condition.message.contains("[t1 t2] all set namespaceDefault"), "{}", wish.condition.message);
}

#[test]
fn b43_fencing_is_not_retroactive() {
    let mut town = Town::new(&[group("default", &["10.0.0.1-10.0.0.9"])]);
    town.put(svc("other/a"));
    let fenced = town.group("default");
    (fenced.namespaces, fenced.enforce_namespaces) = (vec!["tenant".into()], true);
    town.rebuild();
    let kept = town.look("other/a");
    assert_eq!((kept.text().as_str(), kept.condition.assigned), ("10.0.0.1", true));
}

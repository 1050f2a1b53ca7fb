//! Services of one and of two IP families.

use anyhow::Result;
use serde_json::{Value, json};

use super::ground::{Ground, PatchType, invalid, text};
use super::manifest::load_balancer;

/// The families, their policy, and the family of each cluster address as it looks.
fn families(service: &Value) -> String {
    let spec = &service["spec"];
    let words = |field: &str| -> Vec<String> {
        spec[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let looks: Vec<&str> = words("clusterIPs").iter().map(|ip| if ip.contains(':') { "v6" } else { "v4" }).collect();
    format!("{} {} {}", spec["ipFamilyPolicy"], words("ipFamilies").join(","), looks.join(",")).replace('"', "")
}

/// Each wish for families gives the families, and the addresses, in order.
pub async fn families_and_addresses_follow_the_wish(ground: &Ground) -> Result<()> {
    for (name, wish, result) in [
        ("plain", json!({}), "SingleStack IPv4 v4"),
        ("six", json!({"ipFamilies": ["IPv6"]}), "SingleStack IPv6 v6"),
        ("single-six", json!({"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}), "SingleStack IPv6 v6"),
        ("prefer", json!({"ipFamilyPolicy": "PreferDualStack"}), "PreferDualStack IPv4,IPv6 v4,v6"),
        (
            "prefer-six",
            json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]}),
            "PreferDualStack IPv6,IPv4 v6,v4",
        ),
        ("require", json!({"ipFamilyPolicy": "RequireDualStack"}), "RequireDualStack IPv4,IPv6 v4,v6"),
        (
            "require-six",
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}),
            "RequireDualStack IPv6,IPv4 v6,v4",
        ),
        ("address", json!({"clusterIP": "fd00:96::77aa"}), "SingleStack IPv6 v6"),
    ] {
        let made = ground.create(&ground.core("services"), &load_balancer(name, wish)).await?;
        assert_eq!(families(&made), result, "{name}");
        assert_eq!(made["spec"]["clusterIP"], made["spec"]["clusterIPs"][0]);
        for address in made["spec"]["clusterIPs"].as_array().into_iter().flatten() {
            let address = text(address)?;
            assert!(address.starts_with("10.96.") || address.starts_with("fd00:96::"), "{address} is in its range");
        }
    }
    Ok(())
}

/// From one family to two and back, the first address stays.
pub async fn a_service_grows_to_two_families_and_shrinks_again(ground: &Ground) -> Result<()> {
    let path = ground.core("services/web");
    let single = ground.create(&ground.core("services"), &load_balancer("web", json!({}))).await?;
    let grow = json!({"spec": {"ipFamilyPolicy": "RequireDualStack"}});
    let dual = ground.patch(&path, PatchType::Merge, &grow).await?;
    assert_eq!(families(&dual), "RequireDualStack IPv4,IPv6 v4,v6");
    assert_eq!(dual["spec"]["clusterIP"], single["spec"]["clusterIP"]);
    let shrink = json!({"spec": {"ipFamilyPolicy": "SingleStack"}});
    let again = ground.patch(&path, PatchType::Merge, &shrink).await?;
    assert_eq!(families(&again), "SingleStack IPv4 v4");
    assert_eq!(again["spec"]["clusterIPs"], single["spec"]["clusterIPs"]);
    let prefer = json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}});
    let dual = ground.patch(&path, PatchType::Merge, &prefer).await?;
    assert_eq!(families(&dual), "PreferDualStack IPv4,IPv6 v4,v6");
    Ok(())
}

/// The second family also goes when it is struck from the lists together with its address.
pub async fn a_service_shrinks_by_its_lists(ground: &Ground) -> Result<()> {
    let path = ground.core("services/web");
    let wish = load_balancer("web", json!({"ipFamilyPolicy": "RequireDualStack"}));
    let mut dual = ground.create(&ground.core("services"), &wish).await?;
    dual["spec"]["ipFamilyPolicy"] = json!("SingleStack");
    dual["spec"]["ipFamilies"] = json!(["IPv4"]);
    dual["spec"]["clusterIPs"] = json!([dual["spec"]["clusterIP"]]);
    let single = ground.replace(&path, &dual).await?;
    assert_eq!(families(&single), "SingleStack IPv4 v4");
    Ok(())
}

/// The first family is for life, and lists must be consistent.
pub async fn inconsistent_families_are_refused(ground: &Ground) -> Result<()> {
    let all = ground.core("services");
    ground.create(&all, &load_balancer("web", json!({}))).await?;
    let swap = json!({"spec": {"ipFamilies": ["IPv6"]}});
    let path = ground.core("services/web");
    invalid(ground.patch(&path, PatchType::Merge, &swap).await, "spec.clusterIPs[0]")?;
    for (wish, field) in [
        (json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4", "IPv6"]}), "spec.ipFamilyPolicy"),
        (json!({"ipFamilies": ["IPv4", "IPv6"]}), "spec.ipFamilyPolicy"),
        (json!({"ipFamilies": ["IPv4", "IPv4"]}), "spec.ipFamilies[1]"),
        (json!({"ipFamilies": ["IPv5"]}), "spec.ipFamilies[0]"),
        (json!({"ipFamilies": ["IPv6"], "clusterIP": "10.96.3.3"}), "spec.clusterIPs[0]"),
    ] {
        let answer = ground.create(&all, &load_balancer("wrong", wish.clone())).await;
        invalid(answer, field)?;
    }
    Ok(())
}

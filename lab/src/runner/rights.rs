//! From the security contexts of a Pod to what its container may do, as the kubelet and a container runtime have it.

use k8s_openapi::api::core::v1::{Capabilities, Container, PodSecurityContext, PodSpec, SecurityContext};

use super::images::User;
use super::recipe::Rights;

/// The kernel's order.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];
/// What a container has that does not say otherwise.
const USUAL: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SYS_CHROOT",
    "MKNOD",
    "AUDIT_WRITE",
    "SETFCAP",
];
/// Every capability there is.
const ALL: u64 = (1 << NAMES.len()) - 1;

/// The rights that this Pod gives this container; an error is what the kubelet would say instead of starting it.
///
/// # Errors
/// When the Pod, or the image, asks for what the Pod forbids, or for a capability that does not exist.
pub fn of(pod: &PodSpec, container: &Container, image: User) -> Result<Rights, String> {
    let (shared, own) = (pod.security_context.clone().unwrap_or_default(), container.security_context.clone());
    let own = own.unwrap_or_default();
    let privileged = own.privileged.unwrap_or_default();
    let uid = own.run_as_user.or(shared.run_as_user).map_or(Ok(image.uid), id)?;
    if uid == 0 && own.run_as_non_root.or(shared.run_as_non_root).unwrap_or_default() {
        return Err("container has runAsNonRoot and image will run as root".to_owned());
    }
    Ok(Rights {
        uid,
        gid: own.run_as_group.or(shared.run_as_group).map_or(Ok(image.gid), id)?,
        groups: groups(&shared)?,
        capabilities: if privileged { ALL } else { capabilities(own.capabilities.as_ref())? },
        no_new_privs: own.allow_privilege_escalation == Some(false),
        read_only_root: own.read_only_root_filesystem.unwrap_or_default(),
        confined: !privileged && is_confined(&shared, &own),
        privileged,
    })
}

fn id(number: i64) -> Result<u32, String> {
    number.try_into().map_err(|_| format!("{number} is no user or group"))
}

fn groups(shared: &PodSecurityContext) -> Result<Vec<u32>, String> {
    let more = shared.supplemental_groups.iter().flatten().copied();
    more.chain(shared.fs_group).map(id).collect()
}

/// The container's own word counts before the Pod's. Without either, a kubelet confines nobody.
fn is_confined(shared: &PodSecurityContext, own: &SecurityContext) -> bool {
    let profile = own.seccomp_profile.as_ref().or(shared.seccomp_profile.as_ref());
    profile.is_some_and(|profile| profile.type_ == "RuntimeDefault")
}

fn capabilities(asked: Option<&Capabilities>) -> Result<u64, String> {
    let mut held = 0;
    for name in USUAL {
        held |= bits(name)?;
    }
    let Some(asked) = asked else { return Ok(held) };
    for name in asked.drop.iter().flatten() {
        held &= !bits(name)?;
    }
    for name in asked.add.iter().flatten() {
        held |= bits(name)?;
    }
    Ok(held)
}

fn bits(name: &str) -> Result<u64, String> {
    let plain = name.strip_prefix("CAP_").unwrap_or(name);
    // Container runtimes take it in any case, and manifests have it in both.
    if plain.eq_ignore_ascii_case("ALL") {
        return Ok(ALL);
    }
    let place = NAMES.iter().position(|known| *known == plain);
    place.map(|place| 1 << place).ok_or_else(|| format!("there is no capability {name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rights(pod: Value, container: Value) -> Result<Rights, String> {
        let pod = PodSpec { security_context: serde_json::from_value(pod).unwrap(), ..PodSpec::default() };
        let container =
            Container { security_context: serde_json::from_value(container).unwrap(), ..Container::default() };
        of(&pod, &container, User::default())
    }

    #[test]
    fn the_agent_gets_exactly_what_its_manifest_says() {
        let asked = json!({
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
            "readOnlyRootFilesystem": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        });
        let rights = rights(json!({}), asked).unwrap();
        assert_eq!(rights.capabilities, 1 << 12 | 1 << 13);
        assert!(rights.no_new_privs && rights.read_only_root && rights.confined && !rights.privileged);
        assert_eq!((rights.uid, rights.gid), (0, 0));
    }

    #[test]
    fn what_the_pod_says_holds_where_the_container_is_silent() {
        let pod = json!({"runAsUser": 65534, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        let given = rights(pod.clone(), json!({})).unwrap();
        assert!(given.uid == 65534 && given.confined);
        let given = rights(pod, json!({"runAsUser": 7, "seccompProfile": {"type": "Unconfined"}})).unwrap();
        assert!(given.uid == 7 && !given.confined);
    }

    #[test]
    fn root_is_refused_where_nobody_may_be_root() {
        assert!(rights(json!({"runAsNonRoot": true}), json!({})).unwrap_err().contains("runAsNonRoot"));
    }

    #[test]
    fn a_capability_that_does_not_exist_is_named() {
        let asked = json!({"capabilities": {"add": ["NET_ADMINISTRATOR"]}});
        assert!(rights(json!({}), asked).unwrap_err().contains("NET_ADMINISTRATOR"));
    }
}

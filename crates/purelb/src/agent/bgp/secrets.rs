//! The Secrets that a BGPConfiguration names, read by name and read again: the agent may get Secrets, not list them.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Error};
use purelb_api::read;
use purelb_core::bgp::Secrets;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::SecretNews;

/// How often passwords are read again while all sessions that have one are up.
const CALM: Duration = Duration::from_secs(30);
/// How often otherwise: somebody may just be mending one.
const ANXIOUS: Duration = Duration::from_secs(5);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which Secrets are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Their names.
    pub names: BTreeSet<String>,
    /// Whether a session that has a password is down, or a password is missing.
    pub anxious: bool,
}

/// Reads the wanted Secrets, now and again, and tells what is new, for as long as somebody wants any.
pub async fn watch(
    client: Client,
    namespace: String,
    mut wanted: watch::Receiver<Wanted>,
    news: UnboundedSender<SecretNews>,
) {
    let api: Api<Secret> = Api::namespaced(client, &namespace);
    let mut known = SecretNews::default();
    loop {
        let Wanted { names, anxious } = wanted.borrow_and_update().clone();
        let read = look(&api, &names, &known.found).await;
        if read != known {
            known = read;
            if news.send(known.clone()).is_err() {
                return;
            }
        }
        let pause = async {
            match (names.is_empty(), anxious) {
                (true, _) => std::future::pending().await,
                (false, true) => sleep(ANXIOUS).await,
                (false, false) => sleep(CALM).await,
            }
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = pause => {}
        }
    }
}

/// What is there now. A Secret that cannot be read stays as it was.
async fn look(api: &Api<Secret>, names: &BTreeSet<String>, known: &Secrets) -> SecretNews {
    let mut found = Secrets::new();
    for name in names {
        let read = match timeout(PATIENCE, api.get(name)).await {
            Ok(Ok(secret)) => Some(read::secret(&secret).1),
            Ok(Err(Error::Api(status))) if status.code == 404 => None,
            Ok(Err(error)) => {
                warn!(secret = name, error = words(&error), "a Secret with a bgp password cannot be read");
                known.get(name).cloned()
            }
            Err(_) => known.get(name).cloned(),
        };
        found.extend(read.map(|entries| (name.clone(), entries)));
    }
    SecretNews { asked: names.clone(), found }
}

/// The API server's own words, if any. Those of other errors might quote what was read.
fn words(error: &Error) -> &str {
    match error {
        Error::Api(status) => &status.message,
        _ => "there is no usable answer",
    }
}

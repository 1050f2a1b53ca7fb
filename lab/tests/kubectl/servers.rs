//! The two servers that must look the same to a person.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use purelb_kubelite::{Access, Kubelite};
use purelb_lab::ControlPlane;
use purelb_lab::control_plane::programs::Programs;
use tokio::net::TcpListener;
use tokio::sync::OnceCell;

use crate::person::Person;

/// One server for all tests of this process; the watchdog ends it with the process.
static REAL: OnceCell<Result<ControlPlane>> = OnceCell::const_new();

/// The same person on kubelite and on a real server, each in a namespace of this name.
pub async fn people(namespace: &str) -> Result<[Person; 2]> {
    let programs = Programs::find().await?.path("");
    Ok([on_kubelite(&programs, namespace).await?, on_the_real_server(&programs, namespace).await?])
}

async fn on_kubelite(programs: &Path, namespace: &str) -> Result<Person> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let access = Access::new("lab")?;
    let kubeconfig = access.kubeconfig(listener.local_addr()?);
    let serving = Kubelite::new().serve(listener, access);
    let ground = tokio::spawn(async move { match serving.await {} });
    let person = Person::new("kubelite", programs, &kubeconfig, namespace, Some(ground)).await?;
    define_our_kinds(&person).await?;
    Ok(person)
}

async fn on_the_real_server(programs: &Path, namespace: &str) -> Result<Person> {
    let plane = REAL.get_or_init(ControlPlane::start).await.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    let kubeconfig = fs::read_to_string(plane.kubeconfig())?;
    let person = Person::new("the real server", programs, &kubeconfig, namespace, None).await?;
    define_our_kinds(&person).await?;
    Ok(person)
}

/// Tests run side by side and share the real server, so somebody may have been faster; the definitions are the same.
async fn define_our_kinds(person: &Person) -> Result<()> {
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    person.shell(&format!("kubectl create -f {}", crds.display())).await?;
    let established = "kubectl wait --for=condition=Established crd/servicegroups.purelb.io crd/lbnodeagents.purelb.io \
        crd/configs.bgp.purelb.io crd/bgpnodestatuses.bgp.purelb.io";
    let waited = person.shell(established).await?;
    ensure!(waited.matches("condition met").count() == 4, "{waited}");
    // The real server establishes a kind some time before it serves it everywhere.
    let served = "until kubectl get servicegroups,lbnodeagents,bgpconfig,bgpns -o name && kubectl explain sg && \
        kubectl explain lbna && kubectl explain bgpconfig && kubectl explain bgpns; do sleep 0.2; done >/dev/null 2>&1";
    person.shell(served).await?;
    Ok(())
}

/// Runs a command on both servers, which must print the same, and returns it.
pub async fn both([lite, real]: &[Person; 2], command: &str) -> Result<String> {
    let (lite, real) = (lite.shell(command).await?, real.shell(command).await?);
    ensure!(lite == real, "{command}\n--- on kubelite\n{lite}\n--- on the real server\n{real}");
    Ok(lite)
}

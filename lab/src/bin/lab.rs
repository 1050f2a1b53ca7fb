//! `cargo lab`: a whole cluster in network namespaces for developers, and the image.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use purelb_lab::audit;
use purelb_lab::cluster::keeper::{Notice, Office};
use purelb_lab::cluster::{Cluster, Proxy, Settings};
use purelb_lab::image;
use purelb_lab::router::Make;
use purelb_lab::runner::images::Source;
use purelb_lab::runner::inside;
use purelb_lab::tested;
use tokio::signal::unix::{SignalKind, signal};

/// A Kubernetes cluster in network namespaces.
#[derive(Parser)]
#[command(name = "cargo lab")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start a cluster, and leave it running
    Up(Up),
    /// End the cluster; nothing of it stays
    Down,
    /// Print what the containers of a Pod have printed
    Logs {
        /// NAME or NAMESPACE/NAME
        pod: String,
        /// Only this container
        #[arg(long, short)]
        container: Option<String>,
    },
    /// Run a command in the network of a node, the router or a client
    In {
        /// node1 and so on, router, client, far-client
        place: String,
        /// The command
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run kubectl on the cluster
    Kubectl {
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Write the container image as an OCI image layout; no container engine is needed
    Image {
        /// Where to
        #[arg(long, default_value = "target/image")]
        folder: PathBuf,
        /// Also unpack it there with umoci, as a node would
        #[arg(long)]
        unpack: Option<PathBuf>,
    },
    /// Say which rights of the manifests nobody has used, and what was denied
    Rights {
        /// The folder that PURELB_AUDIT named while the tests ran
        logs: PathBuf,
    },
    /// Write docs/tested.md anew from what the proofs have noted; see `make test-long`
    Tested {
        /// The file that PURELB_TESTED named while they ran
        seen: PathBuf,
        /// Where to
        #[arg(long, default_value = "docs/tested.md")]
        page: PathBuf,
    },
    #[command(hide = true)]
    Keep(Up),
    #[command(hide = true)]
    Contain { recipe: PathBuf },
    #[command(hide = true)]
    Become { recipe: PathBuf },
}

#[derive(clap::Args)]
struct Up {
    /// How many nodes
    #[arg(long, default_value_t = 3)]
    nodes: u8,
    /// What runs on the router
    #[arg(long, default_value = "bird")]
    router: RouterKind,
    /// How kube-proxy does its work: nftables or iptables
    #[arg(long, default_value = "nftables")]
    proxy: Proxy,
    /// An image of PureLB, as `umoci unpack` leaves it; otherwise `purelb` is built for debugging
    #[arg(long)]
    image: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum RouterKind {
    Bird,
    Frr,
    None,
}

impl RouterKind {
    fn make(self) -> Option<Make> {
        match self {
            Self::Bird => Some(Make::Bird),
            Self::Frr => Some(Make::Frr),
            Self::None => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bird => "bird",
            Self::Frr => "frr",
            Self::None => "none",
        }
    }
}

fn main() -> ExitCode {
    work(Arguments::parse().task).unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::FAILURE
    })
}

fn work(task: Task) -> Result<ExitCode> {
    match task {
        Task::Up(up) => tell(&Office::find().open(&keep(&up)?)?),
        Task::Down => Office::find().close()?,
        Task::Logs { pod, container } => logs(&pod, container.as_deref())?,
        Task::In { place, command } => return enter(&place, &command),
        Task::Kubectl { arguments } => return kubectl(&arguments),
        Task::Image { folder, unpack } => write_image(&folder, unpack.as_deref())?,
        Task::Rights { logs } => judge_rights(&logs)?,
        Task::Tested { seen, page } => write_page(&seen, &page)?,
        Task::Keep(up) => hold(&up)?,
        Task::Contain { recipe } => return Ok(inside::guard(&recipe)?.into()),
        Task::Become { recipe } => match inside::become_container(&recipe)? {},
    }
    Ok(ExitCode::SUCCESS)
}

fn write_image(folder: &Path, unpack: Option<&Path>) -> Result<()> {
    let tag = env!("CARGO_PKG_VERSION");
    let image = image::write(&image::program::build()?, folder, tag)?;
    println!("oci:{}:{tag} is {}", folder.display(), image.digest);
    println!("{} bytes in a registry, {} on a node", image.packed, image.unpacked);
    let Some(bundle) = unpack else { return Ok(()) };
    // umoci wants to make it itself.
    if bundle.join("config.json").exists() {
        fs::remove_dir_all(bundle).with_context(|| format!("cannot remove {}", bundle.display()))?;
    }
    image::unpack(folder, tag, bundle)
}

fn judge_rights(logs: &Path) -> Result<()> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let verdict = audit::judge(&deploy, logs)?;
    for right in &verdict.unused {
        println!("nobody used: {right}");
    }
    for right in &verdict.unused_without_bgp {
        println!("nobody used where there is no BGP, and manifests without it grant: {right}");
    }
    for right in &verdict.denied {
        println!("asked for and granted by no manifest: {right}");
    }
    for right in &verdict.not_in_force {
        println!("denied while the manifests came or went: {right}");
    }
    let unused = verdict.unused.len() + verdict.unused_without_bgp.len();
    ensure!(unused == 0 && verdict.denied.is_empty(), "deploy/rbac is not what PureLB needs");
    println!("{} rights granted, all of them used; nothing else was asked for", verdict.granted);
    tested::seen("10", "rights granted by the manifests", verdict.granted);
    tested::seen("10", "rights that no test uses", unused);
    tested::seen("10", "requests denied in all tests that no manifest allows", verdict.denied.len());
    tested::seen(
        "10",
        "requests denied while a test installed, removed or changed the rights",
        verdict.not_in_force.len(),
    );
    Ok(())
}

fn write_page(seen: &Path, page: &Path) -> Result<()> {
    let lines = fs::read_to_string(seen).with_context(|| format!("cannot read {}", seen.display()))?;
    fs::write(page, tested::render(&lines)?).with_context(|| format!("cannot write {}", page.display()))
}

/// The command line of the keeper.
fn keep(up: &Up) -> Result<Vec<String>> {
    let mut line = vec!["keep".to_owned(), "--nodes".to_owned(), up.nodes.to_string()];
    line.extend(["--router".to_owned(), up.router.name().to_owned()]);
    line.extend(["--proxy".to_owned(), up.proxy.name().to_owned()]);
    if let Some(image) = &up.image {
        line.extend(["--image".to_owned(), fs::canonicalize(image)?.display().to_string()]);
    }
    build()?;
    Ok(line)
}

/// Builds what Pods run, beside this program, unless `PURELB_PROGRAM` says that it is there.
fn build() -> Result<()> {
    if env::var_os("PURELB_PROGRAM").is_some() {
        return Ok(());
    }
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "-p", "purelb", "-p", "purelb-lab", "--bin", "purelb", "--bin", "echo"]);
    if env::current_exe()?.parent().is_some_and(|folder| folder.ends_with("release")) {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().context("cannot run cargo")?;
    ensure!(status.success(), "what Pods run does not build");
    Ok(())
}

/// Holds a cluster until told to end.
fn hold(up: &Up) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let mut told = signal(SignalKind::terminate())?;
        let settings = settings(up)?;
        let cluster = tokio::select! {
            cluster = Cluster::start(&settings) => cluster?,
            _ = told.recv() => return Ok(()),
        };
        Office::find().announce(&Notice::of(&cluster))?;
        told.recv().await;
        Ok(())
    })
}

fn settings(up: &Up) -> Result<Settings> {
    let lab = env::current_exe()?;
    let alone = |program: PathBuf, name: &str| Source::Programs(vec![(program, format!("/{name}"))]);
    let purelb = match (&up.image, env::var_os("PURELB_PROGRAM")) {
        (Some(bundle), _) => Source::Unpacked(bundle.clone()),
        (None, Some(program)) => alone(program.into(), "purelb"),
        (None, None) => alone(beside(&lab, "purelb")?, "purelb"),
    };
    let images = [("purelb".to_owned(), purelb), ("echo".to_owned(), alone(beside(&lab, "echo")?, "echo"))].into();
    Ok(Settings { nodes: up.nodes, router: up.router.make(), proxy: up.proxy, images, lab })
}

fn beside(program: &Path, name: &str) -> Result<PathBuf> {
    let path = program.with_file_name(name);
    ensure!(path.exists(), "there is no {}; build it with: cargo build -p purelb -p purelb-lab", path.display());
    Ok(path)
}

fn tell(notice: &Notice) {
    println!("export KUBECONFIG={}", notice.kubeconfig.display());
    println!("export PATH={}:$PATH", notice.programs.display());
    println!();
    println!("Look into a network, for example: cargo lab in node1 ip addr");
    for (name, path) in &notice.networks {
        println!("  {name:<11} nsenter --net={path}");
    }
    println!();
    println!("Ask a Service from its own segment: cargo lab in client curl -s http://ADDRESS/");
    println!("and from behind the router:         cargo lab in far-client curl -s http://ADDRESS/");
    println!("Logs of a Pod: cargo lab logs NAMESPACE/NAME    All logs: {}", notice.logs.display());
    println!("Images for Pods: purelb, echo (which answers on port 8080)    The end: cargo lab down");
}

fn logs(pod: &str, container: Option<&str>) -> Result<()> {
    let (namespace, name) = pod.split_once('/').unwrap_or(("default", pod));
    let folder = Office::find().notice()?.logs;
    let start = format!("{namespace}_{name}_{}", container.map(|one| format!("{one}.")).unwrap_or_default());
    let entries = fs::read_dir(&folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_own = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start));
    let mut files: Vec<PathBuf> = entries.filter(is_own).collect();
    files.sort();
    if files.is_empty() {
        bail!(
            "no container of {namespace}/{name} has been started; see: cargo lab kubectl describe pod -n {namespace} {name}"
        );
    }
    for file in files {
        println!("--- {}", file.file_name().unwrap_or_default().display());
        print!("{}", fs::read_to_string(&file)?);
    }
    Ok(())
}

fn enter(place: &str, command: &[String]) -> Result<ExitCode> {
    let notice = Office::find().notice()?;
    let names: Vec<&str> = notice.networks.iter().map(|(name, _)| name.as_str()).collect();
    let found = notice.networks.iter().find(|(name, _)| name == place);
    let (_, path) = found.with_context(|| format!("the lab has no {place}; it has {}", names.join(", ")))?;
    run(Command::new("nsenter").arg(format!("--net={path}")).arg("--").args(command))
}

fn kubectl(arguments: &[String]) -> Result<ExitCode> {
    let notice = Office::find().notice()?;
    let mut kubectl = Command::new(notice.programs.join("kubectl"));
    run(kubectl.arg("--kubeconfig").arg(notice.kubeconfig).args(arguments))
}

fn run(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().context("cannot run it")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).into())
}

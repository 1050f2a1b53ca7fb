//! Real routers: BIRD 2, FRR 8 and GoBGP 4, each in a network namespace, with what a network engineer would ask them.

mod bird;
pub mod fabric;
mod frr;
mod gobgp;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::control_plane::watchdog::Watchdog;
use crate::net::Namespace;

/// Only a guard against waiting for ever: routers start in less than a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whose program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// BIRD 2.
    Bird,
    /// FRR 8.
    Frr,
    /// GoBGP 4, which keeps its routes in a table of its own.
    GoBgp,
}

impl Make {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Bird, Self::Frr, Self::GoBgp];
}

/// What a router is told about itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its AS.
    pub asn: u32,
    /// Its router ID.
    pub id: Ipv4Addr,
    /// Its neighbours.
    pub neighbours: Vec<Neighbour>,
}

impl Settings {
    /// The same in the language of this make.
    #[must_use]
    pub fn text(&self, make: Make) -> String {
        make.config(self)
    }
}

/// What a router is told about one neighbour.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its AS.
    pub asn: u32,
    /// The password of the session.
    pub password: Option<String>,
    /// Drop what comes from more than one hop away.
    pub ttl_security: bool,
    /// Wait to be dialled.
    pub passive: bool,
    /// Talk about IPv4.
    pub v4: bool,
    /// Talk about IPv6.
    pub v6: bool,
    /// IPv4 routes may have an IPv6 next hop.
    pub extended_next_hop: bool,
    /// Keep its routes when it goes without a word.
    pub graceful_restart: bool,
    /// AS numbers of four octets. Without them, BIRD only.
    pub four_octets: bool,
    /// How long silence is tolerated, in seconds.
    pub hold: u16,
}

impl Neighbour {
    /// A neighbour with both families and short timers.
    #[must_use]
    pub fn new(address: IpAddr, asn: u32) -> Self {
        let (password, ttl_security, passive) = (None, false, false);
        let (extended_next_hop, graceful_restart) = (false, false);
        Self {
            address,
            asn,
            password,
            ttl_security,
            passive,
            v4: true,
            v6: true,
            extended_next_hop,
            graceful_restart,
            four_octets: true,
            hold: 9,
        }
    }

    /// Whether the address means something on one wire only; routers of the lab know it on `eth0`.
    fn is_link_local(&self) -> bool {
        matches!(self.address, IpAddr::V6(address) if address.is_unicast_link_local())
    }
}

/// A router that runs.
pub struct Router {
    make: Make,
    namespace: Namespace,
    /// Sockets and settings, and the logs if nobody has named a place for them; removed with the programs.
    folder: PathBuf,
    logs: PathBuf,
    config: String,
    /// How often its programs were started.
    starts: AtomicU32,
    /// Nothing while it is restarted.
    programs: Mutex<Option<Running>>,
}

/// The programs of a router at work.
struct Running {
    watchdog: Watchdog,
    pids: Vec<u32>,
}

impl Router {
    /// Starts a router in a namespace, and waits until it can be asked something.
    ///
    /// # Errors
    /// When the program is not installed, or refuses its settings: its log is in the message.
    pub fn start(make: Make, namespace: &Namespace, settings: &Settings) -> Result<Self> {
        Self::start_with(make, namespace, &settings.text(make))
    }

    /// The same with a configuration in the router's own language.
    ///
    /// # Errors
    /// See [`Router::start`].
    pub fn start_with(make: Make, namespace: &Namespace, config: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("purelb-router-").tempdir()?.keep();
        Self::begin(make, namespace, config, folder.clone(), folder)
    }

    /// The same with its logs in a folder where they stay, also those from before a restart.
    ///
    /// # Errors
    /// See [`Router::start`].
    pub fn start_logged(make: Make, namespace: &Namespace, config: &str, logs: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("purelb-router-").tempdir()?.keep();
        Self::begin(make, namespace, config, folder, logs.to_owned())
    }

    fn begin(make: Make, namespace: &Namespace, config: &str, folder: PathBuf, logs: PathBuf) -> Result<Self> {
        let (namespace, config) = (namespace.clone(), config.to_owned());
        let router =
            Self { make, namespace, folder, logs, config, starts: AtomicU32::new(0), programs: Mutex::default() };
        router.launch()?;
        Ok(router)
    }

    /// Kills the programs and starts them anew. Routes in the kernel stay until the new ones have looked at them.
    ///
    /// # Errors
    /// See [`Router::start`].
    pub fn restart(&self) -> Result<()> {
        drop(self.running().take());
        std::fs::create_dir(&self.folder).context("cannot make the router's folder again")?;
        self.launch()
    }

    fn launch(&self) -> Result<()> {
        open_to_all(&self.folder)?;
        let start = self.starts.fetch_add(1, Ordering::Relaxed) + 1;
        let (mut watchdog, mut pids) = (Watchdog::guard(&self.folder)?, Vec::new());
        for Program { path: program, arguments, door } in self.make.programs(&self.folder, &self.config)? {
            let name = program.file_name().unwrap_or_default().display();
            let log = self.logs.join(format!("{}{name}.{start}.log", self.signature()));
            let mut inside: Vec<OsString> =
                vec![format!("--net={}", self.namespace.path()).into(), "--".into(), program.into()];
            inside.extend(arguments);
            pids.push(watchdog.start(Path::new("nsenter"), &log, inside)?);
            door.map_or(Ok(()), |door| appears(&door))?;
        }
        *self.running() = Some(Running { watchdog, pids });
        self.wait_for("it answers", |router| router.ask(router.make.greeting()).is_ok())
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.programs.lock().expect("nobody panics while holding it")
    }

    /// What the router's own tool prints: a command of `birdc`, or of `vtysh`.
    ///
    /// # Errors
    /// When the router does not run, or does not know the command.
    pub fn ask(&self, command: &str) -> Result<String> {
        let mut tool = self.make.tool(&self.folder, command)?;
        let Output { status, stdout, stderr } = tool.stdin(Stdio::null()).output()?;
        let (text, complaint) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        ensure!(status.success(), "{command:?} failed: {text}{complaint}");
        Ok(text.into_owned())
    }

    /// What the router knows of a neighbour, in its own words.
    ///
    /// # Errors
    /// When it does not run.
    pub fn neighbour(&self, address: IpAddr) -> Result<String> {
        self.ask(&self.make.about(address))
    }

    /// Whether a session is up, in the router's opinion.
    #[must_use]
    pub fn is_established(&self, address: IpAddr) -> bool {
        self.neighbour(address).is_ok_and(|words| self.make.says_established(&words))
    }

    /// Resets the session with a neighbour.
    ///
    /// # Errors
    /// When it does not run.
    pub fn clear(&self, address: IpAddr) -> Result<()> {
        self.ask(&self.make.clear(address)).map(drop)
    }

    /// Asks a neighbour to tell all its routes again.
    ///
    /// # Errors
    /// When it does not run.
    pub fn refresh(&self, address: IpAddr) -> Result<()> {
        self.ask(&self.make.refresh(address)).map(drop)
    }

    /// SIGSTOP: it stands still, its kernel goes on, and its connections stay open.
    ///
    /// # Errors
    /// When it runs no more.
    pub fn freeze(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// SIGCONT: it goes on.
    ///
    /// # Errors
    /// When it runs no more.
    pub fn thaw(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// Programs that ended by themselves have not been waited for, so that their process ids are no one else's.
    fn signal(&self, name: &str) -> Result<()> {
        for pid in self.running().as_ref().map_or(&[][..], |running| &running.pids) {
            let sent = Command::new("sh").args(["-c", r#"kill -"$0" "$1""#, name, &pid.to_string()]).status()?;
            ensure!(sent.success(), "cannot send SIG{name}: {:?} has ended\n{}", self.make, self.log());
        }
        Ok(())
    }

    /// The next hops of a route in the kernel of the router's namespace, sorted; none without such a route.
    /// GoBGP leaves the kernel alone: its table is asked.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn next_hops(&self, prefix: &str) -> Result<Vec<IpAddr>> {
        let family = if prefix.contains(':') { "-6" } else { "-4" };
        let mut hops = match self.make {
            Make::GoBgp => gobgp::next_hops(&self.table(family)?, prefix)?,
            Make::Bird | Make::Frr => {
                let shown = self.namespace.ip(&[family, "-j", "route", "show", "exact", prefix])?;
                shown.as_array().into_iter().flatten().flat_map(gateways).collect()
            }
        };
        hops.sort();
        Ok(hops)
    }

    /// How many routes of BGP the kernel of the router's namespace has.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn route_count(&self, family: &str) -> Result<usize> {
        let protocol = match self.make {
            Make::Bird => "bird",
            Make::Frr => "bgp",
            Make::GoBgp => return gobgp::route_count(&self.table(family)?),
        };
        let shown = self.namespace.ip(&[family, "-j", "route", "show", "proto", protocol])?;
        Ok(shown.as_array().map_or(0, Vec::len))
    }

    /// The table of GoBGP; `-4` or `-6` as with `ip`.
    fn table(&self, family: &str) -> Result<String> {
        self.ask(&format!("-j global rib -a ipv{}", family.trim_start_matches('-')))
    }

    /// Waits until something is so.
    ///
    /// # Errors
    /// When it never is, with the router's log.
    pub fn wait_for(&self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            ensure!(Instant::now() < deadline, "it never came true of {:?} that {what}\n{}", self.make, self.log());
            let ended = self.running().as_ref().is_none_or(|running| running.watchdog.any_ended());
            ensure!(!ended, "{:?} ended by itself\n{}", self.make, self.log());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// What its programs have printed.
    #[must_use]
    pub fn log(&self) -> String {
        let files = std::fs::read_dir(&self.logs).into_iter().flatten().flatten();
        let own = files.filter(|file| file.file_name().to_string_lossy().starts_with(&self.signature()));
        let mut logs: Vec<PathBuf> = own.map(|file| file.path()).collect();
        logs.sort();
        logs.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
    }

    /// How the names of its logs begin: where it runs, and which of all that ran there it is.
    fn signature(&self) -> String {
        let unique = self.folder.file_name().unwrap_or_default().display().to_string();
        format!("{}_{}_", self.namespace.name(), unique.trim_start_matches("purelb-"))
    }
}

/// A program of a router.
struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    /// The socket that the next program looks for only once in ten seconds.
    door: Option<PathBuf>,
}

fn appears(door: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !door.exists() {
        ensure!(Instant::now() < deadline, "{} does not appear", door.display());
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// FRR's programs run as a user of their own, and make their sockets in the folder.
fn open_to_all(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).context("cannot open the folder")
}

fn gateways(route: &Value) -> Vec<IpAddr> {
    let gateway = |hop: &Value| {
        let plain = hop["gateway"].as_str().or_else(|| hop["via"]["host"].as_str());
        plain.and_then(|address| address.parse().ok())
    };
    match route["nexthops"].as_array() {
        Some(hops) => hops.iter().filter_map(gateway).collect(),
        None => gateway(route).into_iter().collect(),
    }
}

impl Make {
    fn config(self, settings: &Settings) -> String {
        match self {
            Self::Bird => bird::config(settings),
            Self::Frr => frr::config(settings),
            Self::GoBgp => gobgp::config(settings),
        }
    }

    fn programs(self, folder: &Path, config: &str) -> Result<Vec<Program>> {
        match self {
            Self::Bird => bird::programs(folder, config),
            Self::Frr => frr::programs(folder, config),
            Self::GoBgp => gobgp::programs(folder, config),
        }
    }

    fn tool(self, folder: &Path, command: &str) -> Result<Command> {
        match self {
            Self::Bird => Ok(bird::tool(folder, command)),
            Self::Frr => Ok(frr::tool(folder, command)),
            Self::GoBgp => gobgp::tool(folder, command),
        }
    }

    fn greeting(self) -> &'static str {
        match self {
            Self::Bird => "show status",
            Self::Frr => "show bgp summary",
            Self::GoBgp => "neighbor",
        }
    }

    fn about(self, address: IpAddr) -> String {
        match self {
            Self::Bird => format!("show protocols all {}", bird::name(address)),
            Self::Frr => format!("show bgp neighbors {address}"),
            Self::GoBgp => format!("neighbor {address}"),
        }
    }

    fn says_established(self, words: &str) -> bool {
        match self {
            Self::Bird => words.contains("BGP state:          Established"),
            Self::Frr => words.contains("BGP state = Established"),
            Self::GoBgp => words.contains("BGP state = SESSION_STATE_ESTABLISHED"),
        }
    }

    fn clear(self, address: IpAddr) -> String {
        match self {
            Self::Bird => format!("restart {}", bird::name(address)),
            Self::Frr => format!("clear bgp {address}"),
            Self::GoBgp => format!("neighbor {address} reset"),
        }
    }

    fn refresh(self, address: IpAddr) -> String {
        match self {
            Self::Bird => format!("reload in {}", bird::name(address)),
            Self::Frr => format!("clear bgp {address} soft in"),
            // It keeps what it heard, and asks nobody.
            Self::GoBgp => format!("neighbor {address} softresetin"),
        }
    }
}

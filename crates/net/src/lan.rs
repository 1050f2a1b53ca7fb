//! A wire that many namespaces hang on: one Ethernet segment with both families.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::Namespace;

/// Only a guard against waiting for ever: a link is up within milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A bridge in a namespace of its own.
#[derive(Debug)]
pub struct Lan {
    switch: Namespace,
    plugs: AtomicUsize,
}

/// The end of a wire in the bridge.
#[derive(Clone, Debug)]
pub struct Plug {
    switch: Namespace,
    port: String,
}

impl Lan {
    /// A segment with nobody on it.
    ///
    /// # Errors
    /// When the kernel has no bridge.
    pub fn new() -> Result<Self> {
        let switch = Namespace::new("lan")?;
        // Without snooping, which would hold back neighbour discovery until listeners have reported themselves.
        switch.batch("link add lan0 type bridge mcast_snooping 0\nlink set lan0 up\n")?;
        Ok(Self { switch, plugs: AtomicUsize::new(0) })
    }

    /// Gives the namespace an interface on this segment, with these addresses, and waits until it has carrier.
    ///
    /// # Errors
    /// When the interface exists already, or an address cannot be read.
    pub fn plug(&self, namespace: &Namespace, interface: &str, addresses: &[&str]) -> Result<Plug> {
        let port = format!("port{}", self.plugs.fetch_add(1, Ordering::Relaxed));
        self.switch.batch(&format!(
            "link add {port} type veth peer name {interface} netns {}\nlink set {port} master lan0 up\n",
            namespace.path()
        ))?;
        // No waiting for duplicates of what we just made up; later addresses are checked as usual.
        let probes = format!("net.ipv6.conf.{}.dad_transmits", interface.replace('.', "/"));
        namespace.sysctl(&probes, "0")?;
        let mut lines = format!("link set {interface} up\n");
        for address in addresses {
            lines +=
                &format!("addr add {address} dev {interface} {}\n", if address.contains(':') { "nodad" } else { "" });
        }
        namespace.batch(&lines)?;
        settled(namespace, interface)?;
        namespace.sysctl(&probes, "1")?;
        Ok(Plug { switch: self.switch.clone(), port })
    }

    /// Takes an interface out of a namespace and makes it a port of this segment: the end of a virtual machine's cable.
    ///
    /// # Errors
    /// When there is no such interface, or the segment has one of this name.
    pub fn adopt(&self, namespace: &Namespace, interface: &str) -> Result<()> {
        namespace.batch(&format!("link set {interface} netns {}\n", self.switch.path()))?;
        self.switch.batch(&format!("link set {interface} master lan0 up\n"))
    }

    /// The namespace of the bridge `lan0`, to watch all traffic in.
    #[must_use]
    pub fn switch(&self) -> &Namespace {
        &self.switch
    }
}

impl Plug {
    /// Cuts the wire: the other end loses its carrier.
    ///
    /// # Errors
    /// When it was pulled.
    pub fn cut(&self) -> Result<()> {
        self.switch.batch(&format!("link set {} down\n", self.port))
    }

    /// Mends the wire.
    ///
    /// # Errors
    /// When it was pulled.
    pub fn mend(&self) -> Result<()> {
        self.switch.batch(&format!("link set {} up\n", self.port))
    }

    /// Removes the wire, and the interface at its other end.
    ///
    /// # Errors
    /// When the interface was removed before.
    pub fn pull(self) -> Result<()> {
        self.switch.batch(&format!("link del {}\n", self.port))
    }
}

/// Waits for carrier and for the link-local address, without which a node cannot speak IPv6.
fn settled(namespace: &Namespace, interface: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let shown = namespace.ip(&["-j", "addr", "show", "dev", interface])?;
        let addresses = shown[0]["addr_info"].as_array();
        let local = |address: &&serde_json::Value| address["scope"] == "link" && address["tentative"] != true;
        if shown[0]["operstate"] == "UP" && addresses.into_iter().flatten().any(|address| local(&address)) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{interface} of {namespace:?} does not come up: {shown:#}");
        thread::sleep(Duration::from_millis(2));
    }
}

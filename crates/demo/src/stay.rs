//! After the tour: the demo stays up, tells how to use it, and takes single keys while a client keeps asking.

use std::fs::File;
use std::io::{IsTerminal, Read, stdout};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::ending::Ending;
use crate::sandbox;
use crate::show::{Show, milliseconds, quoted};
use crate::site::Site;
use crate::watch::{Report, Watch};

/// How often the status line is written anew.
const REFRESH: Duration = Duration::from_millis(500);
/// What the status line looks back on.
const WINDOW: Duration = Duration::from_secs(2);

/// What a person decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Go on.
    Next,
    /// Leave the rest of the tour out.
    Skip,
}

/// The keyboard, if there is one.
pub struct Keys {
    pressed: Option<Receiver<char>>,
}

impl Keys {
    /// Nobody there: nothing waits.
    pub fn none() -> Self {
        Self { pressed: None }
    }

    /// The terminal this was started on, which from now on tells every key at once and shows none.
    pub fn of_the_terminal(ending: &Ending) -> Result<Self> {
        // Standard input is the leash of the process outside, so the terminal is opened by its own name.
        let Some(mut terminal) = File::open("/dev/tty").ok().filter(|_| stdout().is_terminal()) else {
            return Ok(Self::none());
        };
        let before = tcgetattr(&terminal)?;
        ending.restores(terminal.try_clone()?, before.clone());
        let mut now = before;
        now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&terminal, OptionalActions::Now, &now)?;
        let (sender, pressed) = channel();
        thread::spawn(move || {
            let mut byte = [0];
            while let Ok(1) = terminal.read(&mut byte) {
                if sender.send(char::from(byte[0])).is_err() {
                    break;
                }
            }
        });
        Ok(Self { pressed: Some(pressed) })
    }

    /// Waits for a decision; without a keyboard the decision is to go on.
    pub fn wait(&self, show: &Show, prompt: &str) -> Result<Key> {
        let Some(pressed) = &self.pressed else { return Ok(Key::Next) };
        show.progress(prompt);
        let key = loop {
            match pressed.recv() {
                Ok('\n' | '\r' | ' ') => break Key::Next,
                Ok('s') => break Key::Skip,
                Ok('q') | Err(_) => std::process::exit(0),
                Ok(_) => {}
            }
        };
        show.erase();
        Ok(key)
    }

    /// The key that is pressed within this time, if one is.
    fn within(&self, time: Duration) -> Option<char> {
        let Some(pressed) = &self.pressed else {
            thread::sleep(time);
            return None;
        };
        match pressed.recv_timeout(time) {
            Ok(key) => Some(key),
            Err(RecvTimeoutError::Timeout) => None,
            // The terminal is gone, and with it the person.
            Err(RecvTimeoutError::Disconnected) => Some('q'),
        }
    }
}

/// What the status line tells.
struct Status {
    watch: Option<Watch>,
    chosen: usize,
    /// When somebody last did something to a node.
    acted: Instant,
    /// The longest gap since then; the client itself forgets it after a while.
    gap: Duration,
}

impl Status {
    fn begins(acted: Instant) -> Self {
        Self { watch: None, chosen: 0, acted, gap: Duration::ZERO }
    }

    /// Something is done to a node at this moment: the next gap is its doing.
    fn acts(&mut self, moment: Instant) {
        (self.acted, self.gap) = (moment, Duration::ZERO);
    }

    fn keep(&mut self, since: &Report) {
        self.gap = self.gap.max(since.gap);
    }
}

/// Stays until somebody presses `q` or Ctrl-C.
pub fn run(site: &mut Site, show: &mut Show, keys: &Keys) -> Result<()> {
    explain(show);
    let mut status = Status::begins(Instant::now());
    loop {
        if status.watch.is_none() {
            status.watch = client(site)?;
        }
        show.progress(&line(site, &mut status));
        let Some(key) = keys.within(REFRESH) else { continue };
        match key {
            'q' => break,
            '1'..='9' => status.chosen = usize::from(key as u8 - b'1').min(site.nodes.len() - 1),
            'k' | 's' | 'r' => act(site, show, key, &mut status)?,
            _ => {}
        }
    }
    show.erase();
    Ok(())
}

fn explain(show: &mut Show) {
    let folder = quoted(&show.folder().display().to_string());
    show.line("");
    show.line("It stays up. In another terminal:");
    if let Some(place) = sandbox::hidden("kubectl") {
        show.whole(&format!("  PATH=$PATH:{}", quoted(&place.display().to_string())));
    }
    for text in [
        &format!("  cd {folder}"),
        "  export KUBECONFIG=$PWD/kubeconfig",
        "  kubectl get svc,pods,nodes,sg -A",
        "  sh on node1 ip addr show kube-lb0",
        "  sh on router ip route",
        "  less agent-node1.log proxy-node1.nft",
        "  cd manifests",
    ] {
        show.whole(text);
    }
    for text in [
        "Keys: a digit chooses a node, then [k] kills it, [s] stops its agent,",
        "[r] revives it; [q] quits.",
        "Below: which nodes answer a client beside them that asks the local address.",
        "",
    ] {
        show.line(text);
    }
}

/// Asks the local Service, whose address moves; before there is one, nobody is asked.
fn client(site: &Site) -> Result<Option<Watch>> {
    let service = site.cluster.get("/api/v1/namespaces/test/services/kuard-svc-local")?.unwrap_or_default();
    let address = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().and_then(|text| text.parse().ok());
    address.map(|address| Watch::start(&site.desk, SocketAddr::new(address, 80))).transpose()
}

fn act(site: &mut Site, show: &mut Show, key: char, status: &mut Status) -> Result<()> {
    let name = site.nodes[status.chosen].name().to_owned();
    let up = site.nodes[status.chosen].is_up();
    // An action takes its time, and the gap begins with it.
    let begun = Instant::now();
    let (word, done) = match (key, up) {
        ('k', true) => (" loses power", site.kill(&name)),
        ('s', true) => ("'s agent stops", site.stop(&name)),
        ('r', false) => (" comes back", site.revive(&name)),
        _ => return Ok(()),
    };
    done?;
    status.acts(begun);
    show.erase();
    show.line(&format!("{:>7.1} s  {name}{word}", show.elapsed().as_secs_f64()));
    Ok(())
}

fn line(site: &mut Site, status: &mut Status) -> String {
    let recent = status.watch.as_ref().map(|watch| watch.report_since(Instant::now() - WINDOW)).unwrap_or_default();
    let since = status.watch.as_ref().map(|watch| watch.report_since(status.acted)).unwrap_or_default();
    status.keep(&since);
    let nodes: Vec<(String, bool)> = site.nodes.iter_mut().map(|node| (node.name().to_owned(), node.is_up())).collect();
    words(&nodes, status.chosen, &recent, status.gap)
}

/// Lost requests, the gap since the last key, and answers per second by node: a narrow screen cuts the last nodes off.
fn words(nodes: &[(String, bool)], chosen: usize, recent: &Report, gap: Duration) -> String {
    let each = nodes.iter().enumerate().map(|(number, (name, up))| {
        let mark = if number == chosen { "*" } else { "" };
        let rate = recent.by_node.get(name).copied().unwrap_or_default() as u64 / WINDOW.as_secs();
        // The pods of a node whose agent was stopped still answer.
        let state = if *up { "" } else { " down" };
        format!("{mark}{name}{state} {rate}/s")
    });
    let nodes: Vec<String> = each.collect();
    format!("lost {} | gap since last key {} | {}", recent.lost, milliseconds(gap), nodes.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_line_tells_who_answers_who_is_down_and_the_gap() {
        let nodes = [("node1".to_owned(), true), ("node2".to_owned(), false)];
        let recent = Report { lost: 3, by_node: [("node1".to_owned(), 190)].into(), ..Report::default() };
        assert_eq!(
            words(&nodes, 1, &recent, Duration::from_millis(3120)),
            "lost 3 | gap since last key 3120 ms | node1 95/s  *node2 down 0/s"
        );
    }

    #[test]
    fn a_gap_is_told_until_the_next_key_even_if_the_client_has_forgotten_it() {
        let mut status = Status::begins(Instant::now());
        let gap = Duration::from_millis(3120);
        status.keep(&Report { gap, ..Report::default() });
        status.keep(&Report::default());
        assert_eq!(status.gap, gap);
        status.acts(Instant::now());
        assert_eq!(status.gap, Duration::ZERO);
    }
}

//! After the tour: the demo stays up, tells how to use it, and takes single keys while a client keeps asking.

use std::fs::File;
use std::io::{IsTerminal, Read, stdout};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::json;

use crate::ending::Ending;
use crate::sandbox;
use crate::show::{COLUMNS, Show, milliseconds, quoted};
use crate::site::Site;
use crate::tour;
use crate::watch::{Report, Watch};

/// How often the status line is written anew.
const REFRESH: Duration = Duration::from_millis(500);
/// What the status line looks back on.
const WINDOW: Duration = Duration::from_secs(2);
/// Of more nodes than these the status line tells in short.
const FEW: usize = 3;

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

    fn are_there(&self) -> bool {
        self.pressed.is_some()
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
    /// A client, and whom it asks.
    watch: Option<(SocketAddr, Watch)>,
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

    /// The client asks this address from now on. Somebody may have deleted the Service, or made it anew.
    fn aims(&mut self, site: &Site, target: Option<SocketAddr>) -> Result<()> {
        if self.watch.as_ref().map(|(asked, _)| *asked) != target {
            self.watch =
                target.map(|target| Ok::<_, anyhow::Error>((target, Watch::start(&site.desk, target)?))).transpose()?;
        }
        Ok(())
    }

    fn report_since(&self, moment: Instant) -> Report {
        self.watch.as_ref().map(|(_, watch)| watch.report_since(moment)).unwrap_or_default()
    }
}

/// Stays until somebody presses `q` or Ctrl-C.
pub fn run(site: &mut Site, show: &mut Show, keys: &Keys) -> Result<()> {
    explain(site, show, keys)?;
    let mut status = Status::begins(Instant::now());
    loop {
        let target = tour::local_address(site).ok().map(tour::at);
        status.aims(site, target)?;
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

fn explain(site: &Site, show: &mut Show, keys: &Keys) -> Result<()> {
    let kubeconfig = show.folder().join("kubeconfig");
    show.object(&json!({"stays": true, "folder": show.folder(), "kubeconfig": kubeconfig}));
    let folder = quoted(&show.folder().display().to_string());
    show.line("");
    show.line("It stays up. In another terminal:");
    if let Some(place) = sandbox::hidden("kubectl") {
        show.whole(&format!("  PATH=$PATH:{}", quoted(&place.display().to_string())));
    }
    show.whole(&format!("  cd {folder}"));
    for text in [
        "  export KUBECONFIG=$PWD/kubeconfig",
        "  kubectl get svc,pods,nodes,sg -A",
        "  sh on node1 ip addr show kube-lb0",
        "  sh on router ip route",
    ] {
        show.whole(text);
    }
    if let Some(address) = tour::virtual_addresses(site)?.first().filter(|_| sandbox::finds("curl")) {
        show.whole(&format!("  sh on client curl -s http://{address}"));
    }
    show.whole("  less agent-node1.log proxy-node1.nft");
    show.whole("  cd manifests");
    for text in usage(site.nodes.len(), keys.are_there()) {
        show.line(text);
    }
    show.line("");
    Ok(())
}

/// What a person can do here.
fn usage(nodes: usize, at_a_keyboard: bool) -> Vec<&'static str> {
    if !at_a_keyboard {
        return vec!["Ctrl-C ends it."];
    }
    let mut all = vec![
        "Keys: a digit chooses a node, then [k] kills it, [s] stops its agent,",
        "[r] revives it; [q] quits.",
        "Below: which nodes answer a client beside them that asks the local address.",
    ];
    if nodes > FEW {
        all.push("2:11 is node2 with 11 answers a second; 2x11 says that its agent is down.");
    }
    all
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
    if status.watch.is_none() {
        return format!("nobody is asked: the Service {} has no address", tour::LOCAL);
    }
    status.keep(&status.report_since(status.acted));
    let recent = status.report_since(Instant::now() - WINDOW);
    let nodes: Vec<(String, bool)> = site.nodes.iter_mut().map(|node| (node.name().to_owned(), node.is_up())).collect();
    words(&nodes, status.chosen, &recent, status.gap)
}

/// Lost requests, the gap since the last key, and answers per second by node. It has to fit the screen: the end of a line
/// that does not would never be seen.
fn words(nodes: &[(String, bool)], chosen: usize, recent: &Report, gap: Duration) -> String {
    let whole = in_full(nodes, chosen, recent, gap);
    let fits = nodes.len() <= FEW && whole.chars().count() < COLUMNS;
    if fits { whole } else { in_short(nodes, chosen, recent, gap) }
}

fn in_full(nodes: &[(String, bool)], chosen: usize, recent: &Report, gap: Duration) -> String {
    let each = nodes.iter().enumerate().map(|(number, (name, up))| {
        let mark = if number == chosen { "*" } else { "" };
        // The pods of a node whose agent was stopped still answer.
        let state = if *up { "" } else { " down" };
        format!("{mark}{name}{state} {}/s", rate(recent, name))
    });
    let nodes: Vec<String> = each.collect();
    format!("lost {} | gap since last key {} | {}", recent.lost, milliseconds(gap), nodes.join("  "))
}

/// The same with the numbers of the nodes instead of their names.
fn in_short(nodes: &[(String, bool)], chosen: usize, recent: &Report, gap: Duration) -> String {
    let each = nodes.iter().enumerate().map(|(number, (name, up))| {
        let mark = if number == chosen { "*" } else { "" };
        let state = if *up { ':' } else { 'x' };
        format!("{mark}{}{state}{}", number + 1, rate(recent, name))
    });
    let nodes: Vec<String> = each.collect();
    format!("lost {}, gap {} | answers/s {}", recent.lost, milliseconds(gap), nodes.join(" "))
}

/// Answers per second of the pods of a node.
fn rate(recent: &Report, node: &str) -> u64 {
    recent.by_node.get(node).copied().unwrap_or_default() as u64 / WINDOW.as_secs()
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
    fn nine_nodes_fit_one_line_whatever_happens_to_them() {
        let nodes: Vec<(String, bool)> = (1..=9).map(|number| (format!("node{number}"), number != 4)).collect();
        let each: Vec<(String, usize)> = nodes.iter().map(|(name, _)| (name.clone(), 22)).collect();
        let recent = Report { lost: 2, by_node: each.into_iter().collect(), ..Report::default() };
        let told = words(&nodes, 3, &recent, Duration::from_millis(12_345));
        assert_eq!(told, "lost 2, gap 12345 ms | answers/s 1:11 2:11 3:11 *4x11 5:11 6:11 7:11 8:11 9:11");
        assert!(told.len() < COLUMNS, "{}: {told}", told.len());
        // All have lost power for minutes.
        let dark: Vec<(String, bool)> = nodes.into_iter().map(|(name, _)| (name, false)).collect();
        let recent = Report { lost: 200, ..Report::default() };
        let told = words(&dark, 0, &recent, Duration::from_secs(1000));
        assert!(told.len() < COLUMNS && told.contains("*1x0 2x0 "), "{}: {told}", told.len());
        // Three nodes have a long form, which does not always fit.
        for down in 0..=3 {
            let three: Vec<(String, bool)> = (1..=3).map(|number| (format!("node{number}"), number > down)).collect();
            let told = words(&three, 0, &recent, Duration::from_secs(1000));
            assert!(told.len() < COLUMNS, "{}: {told}", told.len());
        }
    }

    #[test]
    fn what_can_be_pressed_is_told_to_those_who_have_keys_in_lines_that_fit() {
        assert_eq!(usage(3, false), ["Ctrl-C ends it."]);
        assert_eq!((usage(3, true).len(), usage(4, true).len()), (3, 4));
        assert!(usage(9, true).iter().all(|line| line.len() <= COLUMNS));
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

//! Who can be asked about the rules on this node.

use std::io;
use std::net::IpAddr;

use jiff::Timestamp;
use purelb_core::data_path::{Answer, Mode, Question};

use super::health::{Health, History};
use super::iptables::{self, Rules};
use super::ipvs::{self, VirtualServers};
use super::netfilter::Netfilter;
use super::nftables;
use crate::agent::kernel::Asking;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The maps of nftables mode.
    Maps,
    /// The chains of iptables mode.
    Chains,
    /// The virtual servers of IPVS mode.
    Servers,
    /// The health port only: rules are written in a way that cannot be read here.
    Port,
}

impl Source {
    /// The mode of kube-proxy.
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Maps => Mode::Nftables,
            Self::Servers => Mode::Ipvs,
            Self::Chains | Self::Port => Mode::Iptables,
        }
    }

    /// Whether its answers stay the same as long as no rule of nftables changes.
    pub(super) fn is_of_netfilter(self) -> bool {
        matches!(self, Self::Maps | Self::Chains)
    }
}

/// The doors to all of them.
pub(super) struct Sources {
    /// None without NET_ADMIN, or where the kernel has no netfilter.
    netfilter: Option<Netfilter>,
    links: Asking,
    servers: Option<VirtualServers>,
    history: History,
}

impl Sources {
    /// Opens them in the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        let netfilter = Netfilter::open().ok();
        Ok(Self { netfilter, links: Asking::open()?, servers: None, history: History::default() })
    }

    /// A number that is another after each change of nftables' rules, if they can be read.
    pub(super) fn generation(&mut self) -> Option<u32> {
        self.netfilter.as_mut()?.generation().ok()
    }

    /// Who can be asked now. In IPVS mode kube-proxy has some chains, too, so that they come last of what the kernel shows.
    pub(super) fn find(&mut self, node: impl IntoIterator<Item = IpAddr>) -> Option<Source> {
        // Without leave to ask, each of many questions would wait for its answer in vain.
        let readable = self.generation().is_some();
        let mut netfilter = self.netfilter.as_mut().filter(|_| readable);
        let mut has = |what: fn(&mut Netfilter) -> io::Result<bool>| {
            netfilter.as_mut().is_some_and(|netfilter| what(netfilter).unwrap_or(false))
        };
        if has(nftables::is_there) {
            return Some(Source::Maps);
        }
        if ipvs::is_there(&mut self.links).unwrap_or(false) {
            return Some(Source::Servers);
        }
        if has(iptables::is_there) {
            return Some(Source::Chains);
        }
        self.history.hear(&Health::ask(node).ok()?);
        Some(Source::Port)
    }

    /// What a source says to each of these, which arose then.
    pub(super) fn ask(&mut self, source: Source, open: &[(&Question, Timestamp)], now: Timestamp) -> Vec<Answer> {
        let answers = match source {
            Source::Maps => self.maps(open),
            Source::Chains => self.chains(open),
            Source::Servers => self.servers(open),
            Source::Port => {
                return open.iter().map(|(question, since)| self.history.answer(question.addr, *since, now)).collect();
            }
        };
        let said = |ready| if ready { Answer::Ready } else { Answer::NotYet };
        match answers {
            Ok(answers) => answers.into_iter().map(said).collect(),
            Err(error) => {
                tracing::debug!(%error, ?source, "cannot ask for kube-proxy's rules");
                vec![Answer::Unknown; open.len()]
            }
        }
    }

    fn maps(&mut self, open: &[(&Question, Timestamp)]) -> io::Result<Vec<bool>> {
        let questions: Vec<_> = open.iter().map(|(question, _)| *question).collect();
        nftables::answers(self.netfilter()?, &questions)
    }

    fn chains(&mut self, open: &[(&Question, Timestamp)]) -> io::Result<Vec<bool>> {
        let rules = Rules::read(self.netfilter()?)?;
        Ok(open.iter().map(|(question, _)| rules.answer(question)).collect())
    }

    fn servers(&mut self, open: &[(&Question, Timestamp)]) -> io::Result<Vec<bool>> {
        let mut servers = match self.servers.take() {
            Some(servers) => servers,
            None => VirtualServers::open()?,
        };
        let answers = open.iter().map(|(question, _)| servers.answer(question)).collect();
        self.servers = Some(servers);
        answers
    }

    fn netfilter(&mut self) -> io::Result<&mut Netfilter> {
        self.netfilter.as_mut().ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }
}

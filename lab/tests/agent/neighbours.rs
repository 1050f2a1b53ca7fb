//! Neighbour discovery on the wire: whoever asks for an IPv6 address is answered by one node, at any moment.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use purelb_lab::net::Namespace;
use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};

use crate::groups;
use crate::local_addresses::{mac, owned, ranking};
use crate::site::NODES;
use crate::story::Story;

/// How long answers to one question are waited for; a second holder on the same wire answers as fast as the first.
const WINDOW: Duration = Duration::from_millis(100);

/// Who asks by multicast, as a client does that has never heard of the address.
struct Asker {
    socket: Socket,
    target: Ipv6Addr,
    mac: [u8; 6],
    link: u32,
}

impl Asker {
    fn new(client: &Namespace, target: IpAddr) -> Result<Self> {
        let IpAddr::V6(target) = target else { bail!("{target} is no IPv6 address") };
        let shown = client.ip(&["-j", "link", "show", "dev", "eth0"])?;
        let link = u32::try_from(shown[0]["ifindex"].as_u64().context("a link has an index")?)?;
        let text = shown[0]["address"].as_str().context("a NIC has an address")?;
        let bytes: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16)).collect::<Result<_, _>>()?;
        let socket = client.run(|| Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)))?;
        socket.bind(&SocketAddrV6::new("fd00:7::1".parse()?, 0, 0, 0).into())?;
        socket.set_multicast_if_v6(link)?;
        // RFC 4861, section 7.1: what comes from further away is not believed.
        socket.set_multicast_hops_v6(255)?;
        socket.set_read_timeout(Some(Duration::from_millis(10)))?;
        Ok(Self { socket, target, mac: bytes.as_slice().try_into()?, link })
    }

    /// The MAC addresses in the answers to one neighbour solicitation (RFC 4861, sections 4.3 and 4.4).
    fn ask(&self) -> Result<BTreeSet<String>> {
        let target = self.target.octets();
        let mut question = vec![135, 0, 0, 0, 0, 0, 0, 0];
        question.extend(target);
        question.extend([1, 1]);
        question.extend(self.mac);
        let group = Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | self.target.to_bits() & 0xff_ffff);
        self.socket.send_to(&question, &SocketAddrV6::new(group, 0, 0, self.link).into())?;
        let (mut answers, until, mut buffer) = (BTreeSet::new(), Instant::now() + WINDOW, [0; 1500]);
        while Instant::now() < until {
            match (&self.socket).read(&mut buffer) {
                Ok(length) => answers.extend(answered(&buffer[..length], target)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(answers)
    }
}

/// The MAC address in a solicited advertisement of the target; what a new holder tells unasked is no answer.
fn answered(message: &[u8], target: [u8; 16]) -> Option<String> {
    let solicited = message.first() == Some(&136) && message.get(4)? & 0x40 != 0;
    let option = message.get(24..32).filter(|option| option[..2] == [2, 1])?;
    let fits = solicited && message.get(8..24) == Some(&target[..]);
    fits.then(|| option[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
}

/// Asks until a node answers; at no moment do two. Returns who answered on the way, in order.
async fn path_to(story: &Story, asker: &Asker, node: &str) -> Result<Vec<String>> {
    let (mut path, end) = (Vec::new(), mac(story, node)?);
    story
        .until(&format!("{node} answers for {}", asker.target), async |_| {
            let answers = asker.ask()?;
            ensure!(answers.len() <= 1, "two nodes answer for {}: {answers:?}", asker.target);
            path.extend(answers.into_iter().filter(|mac| path.last() != Some(mac)).collect::<Vec<_>>());
            Ok(path.last() == Some(&end))
        })
        .await?;
    Ok(path)
}

#[tokio::test]
async fn one_node_answers_neighbour_solicitations_through_every_failover() -> Result<()> {
    let mut story = Story::begin().await?;
    story.group("local", groups::local()).await?;
    let single = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]});
    let address = story.service("web", "local", single).await?[0];
    let (owner, heir) = (owned(&story, address).await?, ranking(address)[1]);
    let asker = Asker::new(&story.site().client, address)?;
    let (first, second) = (mac(&story, owner)?, mac(&story, heir)?);
    assert_eq!(path_to(&story, &asker, owner).await?, std::slice::from_ref(&first));
    for kill in [true, false] {
        let agent = story.site_mut().node_mut(owner)?.take()?;
        if kill {
            agent.kill();
        } else {
            agent.stop().await?;
        }
        let path = path_to(&story, &asker, heir).await?;
        ensure!(path == [first.clone(), second.clone()] || path == [second.clone()], "{path:?}");
        story.site_mut().start(owner)?;
        story.members(&NODES).await?;
        let path = path_to(&story, &asker, owner).await?;
        ensure!(path == [second.clone(), first.clone()] || path == [first.clone()], "{path:?}");
    }
    story.close().await
}

//! The contract on a Unix socket, in front of the ledger.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use purelb_core::addr::Family;
use purelb_core::reason::Reason;
use purelb_ipam::v1::allocate_request::Selector;
use purelb_ipam::v1::ipam_server::{Ipam, IpamServer};
use purelb_ipam::v1::release_request::Target;
use purelb_ipam::v1::{
    AllocateRequest, AllocateResponse, AllocatedIp, FamilyRequest, ReleaseRequest, ReleaseResponse, StatsRequest,
    StatsResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::{Config, Holder, Ledger, Refusal};

/// A sidecar that listens.
#[derive(Debug)]
pub struct Sidecar {
    listener: UnixListener,
    desk: Desk,
}

impl Sidecar {
    /// Reads the ledger and opens the socket: from now on calls are taken, and answered once it runs.
    pub fn bind(config: &Config) -> Result<Self> {
        let ledger = Ledger::open(config.ranges.clone(), &config.state)?;
        let listener =
            listen(&config.socket).with_context(|| format!("cannot listen on {}", config.socket.display()))?;
        Ok(Self { listener, desk: Desk { ledger: Mutex::new(ledger).into(), cidrs: config.cidrs() } })
    }

    /// Answers until told to stop; what was asked before is still answered.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<()> {
        let calls = UnixListenerStream::new(self.listener);
        let server = tonic::transport::Server::builder().add_service(IpamServer::new(self.desk));
        Ok(server.serve_with_incoming_shutdown(calls, stop).await?)
    }
}

/// Opens the socket for this user only, in the place of one that a predecessor left behind.
fn listen(socket: &Path) -> Result<UnixListener> {
    ensure!(
        UnixStream::connect(socket).is_err(),
        "another sidecar answers there; two would give out the same addresses"
    );
    // Nobody can connect before the mode is right, because nobody knows this name.
    let new = socket.with_extension("new");
    let _ = fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    fs::rename(&new, socket)?;
    Ok(listener)
}

/// Where questions are answered, one after the other: each is a look-up and at most one small file.
#[derive(Clone, Debug)]
struct Desk {
    ledger: Arc<Mutex<Ledger>>,
    cidrs: Vec<String>,
}

impl Desk {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A change is all or nothing, so a panic in one call leaves nothing half done.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl Ipam for Desk {
    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let AllocateRequest { pool, service, selector, .. } = request.into_inner();
        let holder = holder(pool, service)?;
        let addrs = match selector {
            Some(Selector::Families(wanted)) if wanted.want_ipv4 || wanted.want_ipv6 => {
                self.ledger().allocate(&holder, &families(wanted))
            }
            Some(Selector::Explicit(these)) if !these.ips.is_empty() => {
                let addrs = these.ips.iter().map(|ip| address(ip)).collect::<Result<Vec<_>, _>>()?;
                self.ledger().allocate_these(&holder, &addrs).map(|()| addrs)
            }
            _ => return Err(Status::invalid_argument("say what is wanted: families or explicit")),
        };
        let ips = addrs.map_err(status)?.iter().map(|addr| AllocatedIp { ip: addr.to_string() }).collect();
        Ok(Response::new(AllocateResponse { ips }))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let ReleaseRequest { pool, service, target } = request.into_inner();
        let holder = holder(pool, service)?;
        let only = match target {
            Some(Target::All(true)) => None,
            Some(Target::Ip(ip)) => Some(address(&ip)?),
            _ => return Err(Status::invalid_argument("say what to release: an address, or all")),
        };
        self.ledger().release(&holder, only).map_err(|error| status(error.into()))?;
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn stats(&self, request: Request<StatsRequest>) -> Result<Response<StatsResponse>, Status> {
        let pool = request.into_inner().pool;
        let ledger = self.ledger();
        Ok(Response::new(StatsResponse {
            in_use_v4: ledger.in_use(&pool, Family::V4),
            in_use_v6: ledger.in_use(&pool, Family::V6),
            size_v4: ledger.size(Family::V4),
            size_v6: ledger.size(Family::V6),
            has_known_capacity: true,
            display_addresses: self.cidrs.clone(),
        }))
    }
}

fn holder(pool: String, service: String) -> Result<Holder, Status> {
    if pool.is_empty() || service.is_empty() {
        return Err(Status::invalid_argument("name the pool and the Service"));
    }
    Ok(Holder { pool, service })
}

fn families(wanted: FamilyRequest) -> Vec<Family> {
    let flags = [(wanted.want_ipv4, Family::V4), (wanted.want_ipv6, Family::V6)];
    flags.into_iter().filter(|(wanted, _)| *wanted).map(|(_, family)| family).collect()
}

fn address(text: &str) -> Result<IpAddr, Status> {
    let addr: IpAddr = text.parse().map_err(|_| Status::invalid_argument(format!("{text:?} is not an address")))?;
    Ok(addr.to_canonical())
}

/// The code by which PureLB knows whether to try again.
fn status(refusal: Refusal) -> Status {
    let words = refusal.to_string();
    let Refusal::Reason(reason) = refusal else { return Status::unavailable(words) };
    match *reason {
        Reason::Exhausted { .. } => Status::resource_exhausted(words),
        Reason::FamilyNotServed { .. } => Status::failed_precondition(words),
        Reason::AddressInUse { .. } => Status::already_exists(words),
        _ => Status::invalid_argument(words),
    }
}

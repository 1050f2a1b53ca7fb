//! A node's line to the API server, which can be disturbed.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body::Frame;
use kube::client::Body;
use purelb_kubelite::{Kubelite, ResponseBody};
use tokio::sync::watch;
use tokio::time::sleep;
use tower::{BoxError, Service, ServiceExt};

/// What happens on the way to the API server and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing.
    Fair,
    /// No connection.
    Refused,
    /// Requests get lost, and watches fall silent.
    Silent,
    /// Watches fall silent; everything else works.
    Mute,
    /// Every answer but those of watches takes this long.
    Slow(Duration),
    /// Only the watch of EndpointSlices falls silent.
    Blind,
    /// Watches fall silent, and requests arrive when the weather changes, whether or not somebody still waits for the
    /// answer.
    Late,
}

/// Which watches of a node are disturbed by which weather.
#[derive(Clone, Copy)]
enum Watched {
    EndpointSlices,
    Others,
}

impl Watched {
    fn is_clear(self, weather: Weather) -> bool {
        match weather {
            Weather::Fair | Weather::Refused | Weather::Slow(_) => true,
            Weather::Silent | Weather::Mute | Weather::Late => false,
            Weather::Blind => matches!(self, Self::Others),
        }
    }
}

/// How long a client waits for an answer before it gives the connection up.
pub const READ_TIMEOUT: Duration = Duration::from_secs(90);

/// A node's line to the API server.
#[derive(Clone)]
pub struct Line {
    pub server: Kubelite,
    pub weather: watch::Receiver<Weather>,
    /// What was asked for, but for reads.
    pub writes: Arc<Mutex<Vec<(Method, String)>>>,
}

impl Service<Request<Body>> for Line {
    type Response = Response<Silenced>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (server, weather) = (self.server.clone(), self.weather.clone());
        let now = *weather.borrow();
        if request.method() != Method::GET && !matches!(now, Weather::Refused | Weather::Silent) {
            let write = (request.method().clone(), request.uri().path().to_owned());
            self.writes.lock().expect("nobody panics with it").push(write);
        }
        Box::pin(async move {
            match now {
                Weather::Refused => return Err("connection refused".into()),
                Weather::Silent => {
                    sleep(READ_TIMEOUT).await;
                    return Err("no answer in time".into());
                }
                Weather::Slow(_) | Weather::Fair | Weather::Mute | Weather::Blind | Weather::Late => {}
            }
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            if let (Weather::Slow(time), false) = (now, is_watch) {
                sleep(time).await;
            }
            let slices = request.uri().path().ends_with("/endpointslices");
            let watched = if slices { Watched::EndpointSlices } else { Watched::Others };
            let answer = match now {
                // A task of its own: it goes on when nobody waits for it any more.
                Weather::Late => tokio::spawn(later(server, weather.clone(), request)).await??,
                _ => server.oneshot(request).await?,
            };
            let weather = is_watch.then_some((weather, watched));
            Ok(answer.map(|body| Silenced { body: Box::pin(body), weather, wait: None }))
        })
    }
}

/// A request that arrives when the weather changes.
async fn later(
    server: Kubelite,
    mut weather: watch::Receiver<Weather>,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, BoxError> {
    let _ = weather.wait_for(|weather| *weather != Weather::Late).await;
    Ok(server.oneshot(request).await?)
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An answer that falls silent in bad weather, if it is a watch, and goes on afterwards.
pub struct Silenced {
    body: Pin<Box<ResponseBody>>,
    weather: Option<(watch::Receiver<Weather>, Watched)>,
    wait: Option<Wait>,
}

impl http_body::Body for Silenced {
    type Data = <ResponseBody as http_body::Body>::Data;
    type Error = <ResponseBody as http_body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some((weather, watched)) = &self.weather
            && !watched.is_clear(*weather.borrow())
            && self.wait.is_none()
        {
            let (mut weather, watched) = (weather.clone(), *watched);
            let clear = async move { drop(weather.wait_for(|weather| watched.is_clear(*weather)).await) };
            self.wait = Some(Box::pin(clear));
        }
        if let Some(wait) = &mut self.wait {
            match wait.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => self.wait = None,
            }
        }
        self.body.as_mut().poll_frame(context)
    }
}

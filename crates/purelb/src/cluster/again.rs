//! Asking again when the API server says that it cannot answer now, for those who have little time and no loop of their own.

use std::time::Duration;

use kube::{Error, Result};
use tokio::time::sleep;
use tracing::debug;

/// The first pause; each is twice the last one.
const FIRST: Duration = Duration::from_millis(50);

/// Asks until there is an answer that another attempt would not change. How long that may take is for the caller to say,
/// and that asking twice does no harm as well.
pub async fn until_answered<T, F>(what: &'static str, mut ask: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut pause = FIRST;
    loop {
        match ask().await {
            Err(error) if is_passing(&error) => {
                debug!(what, %error, "the API server cannot answer now; it is asked again")
            }
            answer => return answer,
        }
        sleep(pause).await;
        pause *= 2;
    }
}

/// Whether the same question may be answered in a moment: the API server has too much to do, or is just coming or going.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 429 || status.code >= 500)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use kube::core::Status;
    use rstest::rstest;
    use tokio::time::{Instant, timeout};

    use super::*;

    fn refusal(code: u16) -> Error {
        Error::Api(Box::new(Status::failure("no", "Reason").with_code(code)))
    }

    #[rstest]
    #[case(429)]
    #[case(500)]
    #[case(503)]
    #[case(504)]
    #[tokio::test(start_paused = true)]
    async fn trouble_that_passes_is_sat_out_with_growing_pauses(#[case] code: u16) {
        let (begun, mut asked) = (Instant::now(), 0);
        let answer = until_answered("a test", || {
            asked += 1;
            ready(if asked < 4 { Err(refusal(code)) } else { Ok(()) })
        });
        assert!(timeout(Duration::from_secs(1), answer).await.expect("in time").is_ok());
        assert_eq!((asked, begun.elapsed()), (4, FIRST * 7));
    }

    #[rstest]
    #[case(403)]
    #[case(404)]
    #[case(409)]
    #[tokio::test(start_paused = true)]
    async fn an_answer_is_an_answer(#[case] code: u16) {
        let mut asked = 0;
        let answer: Result<()> = until_answered("a test", || {
            asked += 1;
            ready(Err(refusal(code)))
        })
        .await;
        assert!(matches!(answer, Err(Error::Api(status)) if status.code == code));
        assert_eq!(asked, 1);
    }
}

//! Everything that can go wrong between PureLB and a sidecar, as sentences.

use std::error::Error;
use std::time::Duration;

use tonic::{Code, Status};

/// A question to a sidecar that did not bring what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IpamError {
    /// Nobody listens on the socket, or whoever did hung up during the call.
    #[error(
        "the sidecar at {socket} does not answer: is its container running, and does it share the folder of the socket \
         with the allocator? ({cause})"
    )]
    Unreachable {
        /// Path of the socket.
        socket: String,
        /// What the operating system or the connection said.
        cause: String,
    },

    /// The call was taken and no answer came in time.
    #[error(
        "the sidecar at {socket} did not answer {method} within {deadline:?}: is it stuck, or does the IPAM behind it not answer?"
    )]
    Silent {
        /// Path of the socket.
        socket: String,
        /// The method that was called.
        method: &'static str,
        /// How long it was given.
        deadline: Duration,
    },

    /// The sidecar said no, in its own words.
    #[error("sidecar {provider} refused {method} with {}: {}{}", code_name(*code), words(message), hint(*code))]
    Refused {
        /// The name the ServiceGroup gives the IPAM.
        provider: String,
        /// The method that was called.
        method: &'static str,
        /// The gRPC code.
        code: Code,
        /// What the sidecar wrote beside it; may be empty.
        message: String,
    },

    /// The sidecar says twice that the addresses have a holder, and does not say which addresses.
    #[error(
        "sidecar {provider} answers AlreadyExists for Service {service} in pool {pool} and names no address: either another \
         Service holds what was asked for, or the sidecar breaks the contract, by which Allocate returns what the Service \
         already has ({message:?})"
    )]
    AlreadyHeld {
        /// The name the ServiceGroup gives the IPAM.
        provider: String,
        /// The pool that was asked.
        pool: String,
        /// The Service that asked.
        service: String,
        /// What the sidecar wrote beside it; may be empty.
        message: String,
    },

    /// Success, but nothing to show for it.
    #[error("sidecar {provider} returned no IPs and no error")]
    NoIps {
        /// The name the ServiceGroup gives the IPAM.
        provider: String,
    },

    /// More addresses than any Service can have asked for.
    #[error("sidecar {provider} returned {count} IPs (max {})", crate::MAX_IPS)]
    TooManyIps {
        /// The name the ServiceGroup gives the IPAM.
        provider: String,
        /// How many there were.
        count: usize,
    },

    /// Something that is no address.
    #[error("sidecar {provider} returned unparseable IP {text:?}")]
    UnparseableIp {
        /// The name the ServiceGroup gives the IPAM.
        provider: String,
        /// The text as it came.
        text: String,
    },
}

impl IpamError {
    /// The gRPC code of the call, [`Code::Ok`] where the call went well and only its answer is no good.
    pub fn code(&self) -> Code {
        match self {
            Self::Unreachable { .. } => Code::Unavailable,
            Self::Silent { .. } => Code::DeadlineExceeded,
            Self::Refused { code, .. } => *code,
            Self::AlreadyHeld { .. } => Code::AlreadyExists,
            Self::NoIps { .. } | Self::TooManyIps { .. } | Self::UnparseableIp { .. } => Code::Ok,
        }
    }

    /// The name of [`code`](Self::code), as metrics show it.
    pub fn code_name(&self) -> &'static str {
        code_name(self.code())
    }

    /// Whether the sidecar may have done what it was asked for, or may do so yet: nobody heard of the end of it.
    pub fn is_unsure(&self) -> bool {
        let broken_off =
            |code: &Code| matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown);
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } => true,
            Self::Refused { code, .. } => broken_off(code),
            Self::AlreadyHeld { .. } | Self::NoIps { .. } | Self::TooManyIps { .. } | Self::UnparseableIp { .. } => {
                false
            }
        }
    }

    /// Whether the same question may well be answered in a while, with nobody changing anything.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Aborted | Code::Cancelled
        )
    }
}

/// The name of a gRPC code as PureLB's metrics have always spelt it: `OK`, `Canceled`, otherwise as tonic does.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// Why the conversation broke; `None` if the sidecar itself said no.
///
/// A status that came over the wire has no source, one that tonic made up from a broken connection has.
pub(crate) fn broken(status: &Status) -> Option<String> {
    let mut cause = status.source()?;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    Some(cause.to_string())
}

/// A sidecar's own sentence, or that it had none.
fn words(message: &str) -> &str {
    if message.is_empty() { "it gave no message" } else { message }
}

/// What to look at where the code alone says it.
fn hint(code: Code) -> &'static str {
    match code {
        Code::Unimplemented => "; does it implement purelb.ipam.v1.IPAM?",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn refused(code: Code) -> IpamError {
        IpamError::Refused { provider: "acme".into(), method: "Allocate", code, message: String::new() }
    }

    #[rstest]
    #[case(Code::Unavailable, true)]
    #[case(Code::DeadlineExceeded, true)]
    #[case(Code::ResourceExhausted, true)]
    #[case(Code::Aborted, true)]
    #[case(Code::Cancelled, true)]
    #[case(Code::InvalidArgument, false)]
    #[case(Code::NotFound, false)]
    #[case(Code::FailedPrecondition, false)]
    #[case(Code::AlreadyExists, false)]
    #[case(Code::Unimplemented, false)]
    #[case(Code::Unknown, false)]
    fn ns_13_only_what_may_pass_by_itself_is_tried_again(#[case] code: Code, #[case] retryable: bool) {
        assert_eq!(refused(code).is_retryable(), retryable);
    }

    #[rstest]
    #[case(Code::DeadlineExceeded, true)]
    #[case(Code::Unavailable, true)]
    #[case(Code::Unknown, true)]
    #[case(Code::FailedPrecondition, false)]
    #[case(Code::InvalidArgument, false)]
    #[case(Code::Internal, false)]
    fn a_sidecar_that_lost_its_own_ipam_may_have_done_what_it_was_asked_for(#[case] code: Code, #[case] unsure: bool) {
        assert_eq!(refused(code).is_unsure(), unsure);
    }

    #[test]
    fn ns_13_a_sidecar_that_is_away_or_silent_is_tried_again_and_a_bad_answer_is_not() {
        let socket = "/run/ipam.sock".to_owned();
        let silent =
            IpamError::Silent { socket: socket.clone(), method: "Allocate", deadline: Duration::from_secs(10) };
        assert!(silent.is_retryable());
        assert!(IpamError::Unreachable { socket, cause: "gone".into() }.is_retryable());
        assert!(!IpamError::NoIps { provider: "acme".into() }.is_retryable());
    }

    #[test]
    fn metrics_keep_the_code_names_that_dashboards_know() {
        assert_eq!(refused(Code::Cancelled).code_name(), "Canceled");
        assert_eq!(IpamError::NoIps { provider: "acme".into() }.code_name(), "OK");
        for number in 0..=16 {
            let code = Code::from_i32(number);
            let tonic = format!("{code:?}");
            let known = matches!(code, Code::Ok | Code::Cancelled) || code_name(code) == tonic;
            assert!(known, "{tonic} is called {}", code_name(code));
        }
    }

    #[test]
    fn a_sidecar_of_another_kind_is_told_from_a_refusal() {
        let sentence = refused(Code::Unimplemented).to_string();
        assert_eq!(
            sentence,
            "sidecar acme refused Allocate with Unimplemented: it gave no message; does it implement purelb.ipam.v1.IPAM?"
        );
    }
}

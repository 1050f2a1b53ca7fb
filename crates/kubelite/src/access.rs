//! Who may enter a server on a socket, and how clients know that it is the right one.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{self, ServerConfig};

/// The name in the certificate. Clients ask for it whatever address they use, so that one certificate fits all.
const NAME: &str = "kubelite";

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// No key pair could be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library does not take it.
    #[error("the certificate just made is not accepted: {0}")]
    Tls(#[from] rustls::Error),
}

/// The token that opens a server, and the certificate by which clients know it.
///
/// kubectl sends a token only over TLS, so there is no way without.
#[derive(Clone)]
pub struct Access {
    token: Arc<str>,
    certificate: Arc<str>,
    acceptor: TlsAcceptor,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Access by this token, with a certificate of its own. An empty token lets nobody in.
    ///
    /// # Errors
    /// If the system gives no randomness for a key.
    pub fn new(token: impl Into<String>) -> Result<Self, AccessError> {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed([NAME.to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        let token: String = token.into();
        Ok(Self { token: token.into(), certificate: cert.pem().into(), acceptor: Arc::new(config).into() })
    }

    /// The text of a kubeconfig file for a server at this address.
    pub fn kubeconfig(&self, address: SocketAddr) -> String {
        let certificate = STANDARD.encode(self.certificate.as_bytes());
        // Whatever the token is made of, as JSON text it is also YAML text.
        let token = json!(*self.token);
        format!(
            "apiVersion: v1
kind: Config
current-context: kubelite
contexts:
- name: kubelite
  context:
    cluster: kubelite
    namespace: default
    user: kubelite
clusters:
- name: kubelite
  cluster:
    certificate-authority-data: {certificate}
    server: \"https://{address}\"
    tls-server-name: {NAME}
users:
- name: kubelite
  user:
    token: {token}
"
        )
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    /// Whether a header `Authorization` opens the door.
    pub(crate) fn admits(&self, header: Option<&[u8]>) -> bool {
        let given = header.and_then(|header| header.strip_prefix(b"Bearer ")).unwrap_or_default();
        let own = self.token.as_bytes();
        // All bytes are compared, so that the time tells nothing about the first wrong one.
        let difference = given.iter().zip(own).fold(0, |sum, (a, b)| sum | (a ^ b));
        !own.is_empty() && given.len() == own.len() && difference == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;

    fn access(token: &str) -> Access {
        Access::new(token).expect("a certificate")
    }

    #[test]
    fn only_the_whole_token_opens_the_door() {
        let access = access("secret");
        assert!(access.admits(Some(b"Bearer secret")));
        for header in ["", "secret", "Bearer secre", "Bearer secrets", "Bearer Secret", "Basic secret"] {
            assert!(!access.admits(Some(header.as_bytes())), "{header:?}");
        }
        assert!(!access.admits(None));
        assert!(!self::access("").admits(Some(b"Bearer ")), "an empty token is no token");
    }

    #[test]
    fn a_client_reads_back_where_and_how() {
        let text = access("a \"quoted\" word").kubeconfig("[::1]:8080".parse().expect("an address"));
        let file = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let cluster = file.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:8080"));
        let user = file.auth_infos[0].auth_info.as_ref().expect("a user");
        assert_eq!(serde_json::to_value(user).expect("JSON")["token"], "a \"quoted\" word");
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        assert!(!format!("{:?}", access("secret")).contains("secret"));
    }
}

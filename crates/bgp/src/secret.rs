//! A password that cannot be printed.

use std::fmt;

/// The longest key that Linux takes for TCP MD5 (RFC 2385).
pub const LONGEST: usize = 80;

/// The password of a session. It has no way into a log, an error or a status: its `Debug` form is three dots.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A password; `None` when it is empty or longer than the kernel takes ([`LONGEST`] octets).
    #[must_use]
    pub fn new(password: impl Into<Vec<u8>>) -> Option<Self> {
        let password = password.into();
        (1..=LONGEST).contains(&password.len()).then_some(Self(password))
    }

    /// For the socket, and for nothing else.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("...")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        let secret = Secret::new("hunter2").unwrap();
        assert_eq!(format!("{secret:?}"), "...");
        assert_eq!(format!("{:#?}", Some(&secret)), "Some(\n    ...,\n)");
    }

    #[test]
    fn a_password_that_the_kernel_would_refuse_is_refused_here() {
        assert!(Secret::new("").is_none());
        assert!(Secret::new(vec![b'x'; LONGEST]).is_some());
        assert!(Secret::new(vec![b'x'; LONGEST + 1]).is_none());
    }
}

//! A password that cannot be printed.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What stands wherever a password would be printed.
const DOTS: &str = "...";

/// The password of a session. It has no way into a log, a status, an error or a recording: it is written as three dots.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    /// The longest key that Linux takes for TCP MD5 (RFC 2385), in octets.
    pub const LONGEST: usize = 80;

    /// A password, whether it can be used or not.
    pub fn new(password: impl Into<Vec<u8>>) -> Self {
        Self(password.into())
    }

    /// Whether the kernel would take it: 1 to 80 octets.
    pub fn is_usable(&self) -> bool {
        (1..=Self::LONGEST).contains(&self.0.len())
    }

    /// How long it is, in octets.
    pub fn octets(&self) -> usize {
        self.0.len()
    }

    /// For the socket, and for nothing else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(DOTS)
    }
}

impl Serialize for Password {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(DOTS)
    }
}

impl<'de> Deserialize<'de> for Password {
    /// What was recorded comes back as the three dots.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        let password = Password::new("hunter2");
        assert_eq!(format!("{password:?} {:#?}", Some(&password)), "... Some(\n    ...,\n)");
        assert_eq!(password.expose(), b"hunter2");
    }

    #[test]
    fn a_password_that_the_kernel_would_refuse_is_known() {
        assert!(!Password::new("").is_usable());
        assert!(Password::new(vec![b'x'; 80]).is_usable());
        assert!(!Password::new(vec![b'x'; 81]).is_usable());
    }
}

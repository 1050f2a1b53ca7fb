//! NOTIFICATION messages: why one side closes a session, and what that means in words.

use std::fmt;

/// Why a session is closed (RFC 4271 §4.5): a code, a subcode, and data that some of them have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The error code.
    pub code: u8,
    /// The error subcode.
    pub subcode: u8,
    /// What the code says about it; never more than a message holds.
    pub data: Vec<u8>,
}

/// The longest words of a shutdown (RFC 9003 §2).
const LONGEST_WORDS: usize = 255;

impl Notification {
    /// Any code.
    #[must_use]
    pub fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }

    /// The same with data.
    #[must_use]
    pub fn with(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = data.into();
        self
    }

    /// Administrative shutdown, with words for the operator of the router (RFC 9003). Long ones are cut.
    #[must_use]
    pub fn shutdown(words: &str) -> Self {
        let mut end = words.len().min(LONGEST_WORDS);
        while !words.is_char_boundary(end) {
            end -= 1;
        }
        let mut data = vec![u8::try_from(end).unwrap_or(u8::MAX)];
        data.extend_from_slice(&words.as_bytes()[..end]);
        Self::new(6, 2).with(data)
    }

    /// The words of a shutdown or a reset, without anything a terminal could mistake for a command.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let (&length, rest) = self.data.split_first()?;
        let words = rest.get(..usize::from(length)).filter(|words| !words.is_empty())?;
        let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
        matches!((self.code, self.subcode), (6, 2 | 4))
            .then(|| String::from_utf8_lossy(words).chars().map(clean).collect())
    }

    /// What code and subcode mean, from the registry at IANA.
    #[must_use]
    pub fn meaning(&self) -> &'static str {
        match (self.code, self.subcode) {
            (1, 1) => "connection not synchronized",
            (1, 2) => "bad message length",
            (1, 3) => "bad message type",
            (1, _) => "message header error",
            (2, 1) => "unsupported version number",
            (2, 2) => "bad peer AS: the two sides do not agree on an AS number",
            (2, 3) => "bad BGP identifier: both sides may have the same router ID",
            (2, 4) => "unsupported optional parameter",
            (2, 5) => "authentication failure",
            (2, 6) => "unacceptable hold time",
            (2, 7) => "unsupported capability: the peer may want an address family that we do not offer",
            (2, 11) => "role mismatch",
            (2, _) => "OPEN message error",
            (3, 1) => "malformed attribute list",
            (3, 2) => "unrecognized well-known attribute",
            (3, 3) => "missing well-known attribute",
            (3, 4) => "attribute flags error",
            (3, 5) => "attribute length error",
            (3, 6) => "invalid ORIGIN",
            (3, 8) => "invalid NEXT_HOP",
            (3, 9) => "optional attribute error",
            (3, 10) => "invalid network field",
            (3, 11) => "malformed AS_PATH",
            (3, _) => "UPDATE message error",
            (4, _) => "hold timer expired: it has not heard from us for too long",
            (5, _) => "a message that does not belong in this state",
            (6, 1) => "maximum number of prefixes reached",
            (6, 2) => "administrative shutdown",
            (6, 3) => "the peer has removed us from its configuration",
            (6, 4) => "administrative reset",
            (6, 5) => "connection rejected: the peer may not expect us at this address",
            (6, 6) => "the peer's configuration has changed",
            (6, 7) => "collision of two connections",
            (6, 8) => "out of resources",
            (6, 9) => "hard reset",
            (6, 10) => "BFD down",
            (6, _) => "cease",
            (7, _) => "ROUTE-REFRESH message error",
            (8, _) => "send hold timer expired: it could not send to us for too long",
            _ => "a code that this speaker does not know",
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.code, self.subcode, self.meaning())?;
        self.words().map_or(Ok(()), |words| write!(f, ", saying \"{words}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_reads_the_words_of_a_shutdown() {
        let farewell = Notification::shutdown("node drained");
        assert_eq!(farewell.data, b"\x0cnode drained");
        assert_eq!(farewell.to_string(), "6/2 (administrative shutdown), saying \"node drained\"");
    }

    #[test]
    fn long_words_are_cut_between_letters() {
        let farewell = Notification::shutdown(&"ä".repeat(200));
        assert_eq!(farewell.words(), Some("ä".repeat(127)));
    }

    #[test]
    fn words_cannot_command_a_terminal_and_lies_about_their_length_are_ignored() {
        let words = |data: &[u8]| Notification::new(6, 2).with(data).words();
        assert_eq!(words(b"\x06\x1b[31m"), None);
        assert_eq!(words(b"\x04a\x1b\nb"), Some("a  b".into()));
        assert_eq!(words(b""), None);
        assert_eq!(words(b"\0"), None);
        assert_eq!(words(b"\x02\xff\xfe"), Some("\u{fffd}\u{fffd}".into()));
    }
}

//! Netlink messages as bytes.
//!
//! Reading is lenient on purpose: an attribute we do not know, or one that a newer kernel made longer, never hides the
//! attributes that we do know. A strict reader would lose whole interfaces, and with them the node's subnets.

use super::numbers::{NLA_F_NESTED, NLA_TYPE_MASK, NLM_F_ACK};

const HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// One message to the kernel. Its length and number are filled in when it is sent.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of this kind with the fixed part that belongs to the kind.
    pub(in crate::agent) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(96);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(fixed);
        let mut request = Self { bytes };
        request.pad();
        request
    }

    /// Adds an attribute.
    pub(in crate::agent) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.begin(kind, value.len());
        self.bytes.extend_from_slice(value);
        self.pad();
        self
    }

    /// Adds an attribute that consists of attributes.
    pub(in crate::agent) fn nested(mut self, kind: u16, inside: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self.begin(kind | NLA_F_NESTED, 0);
        let mut whole = inside(self);
        let length = u16::try_from(whole.bytes.len() - start).expect("our nested attributes are a few bytes long");
        whole.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        whole
    }

    /// Whether it is acknowledged beside what else is answered.
    pub(in crate::agent) fn is_acknowledged(&self) -> bool {
        u16_at(&self.bytes, 6).is_some_and(|flags| flags & NLM_F_ACK != 0)
    }

    /// The finished bytes with this number.
    pub(in crate::agent) fn numbered(mut self, number: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("our requests are a few bytes long");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&number.to_ne_bytes());
        self.bytes
    }

    fn begin(&mut self, kind: u16, value: usize) {
        let length = u16::try_from(ATTRIBUTE_HEADER + value).expect("our attributes are a few bytes long");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.bytes.resize(aligned(self.bytes.len()), 0);
    }
}

/// One message from the kernel.
#[derive(Clone, Copy, Debug)]
pub(in crate::agent) struct Message<'a> {
    pub(in crate::agent) kind: u16,
    pub(in crate::agent) flags: u16,
    pub(in crate::agent) number: u32,
    pub(in crate::agent) body: &'a [u8],
}

/// The messages of one datagram. What is cut short at its end is left out.
pub(in crate::agent) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(datagram, 0)?).ok()?;
        let whole = datagram.get(..length).filter(|whole| whole.len() >= HEADER)?;
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
        let [kind, flags] = [u16_at(whole, 4)?, u16_at(whole, 6)?];
        Some(Message { kind, flags, number: u32_at(whole, 8)?, body: &whole[HEADER..] })
    })
}

/// Attributes with their kinds, as far as they can be read.
pub(in crate::agent) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & NLA_TYPE_MASK;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of a kind.
pub(in crate::agent) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

pub(in crate::agent) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().map(u16::from_ne_bytes).ok()
}

pub(in crate::agent) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().map(u32::from_ne_bytes).ok()
}

pub(in crate::agent) const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_built() {
        let request = Request::new(16, 5, &[7; 16])
            .attribute(3, b"kube-lb0\0")
            .nested(18, |inner| inner.attribute(1, b"ifb").attribute(2, &[1]))
            .attribute(4, &9_u32.to_ne_bytes());
        let bytes = request.numbered(42);
        let read: Vec<_> = messages(&bytes).collect();
        assert_eq!((read.len(), read[0].kind, read[0].flags, read[0].number), (1, 16, 5, 42));
        let outer: Vec<_> = attributes(&read[0].body[16..]).collect();
        assert_eq!(outer.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [3, 18, 4]);
        assert_eq!(outer[0].1, b"kube-lb0\0");
        assert_eq!(attributes(outer[1].1).collect::<Vec<_>>(), [(1, &b"ifb"[..]), (2, &[1][..])]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let most = bytes.len() / ATTRIBUTE_HEADER + 1;
            prop_assert!(attributes(&bytes).take(most + 1).count() <= most);
            prop_assert!(messages(&bytes).take(most + 1).count() <= most);
        }
    }
}

//! SHA-256 of `<node>#<address>` for many nodes and one address, at hardly more than the cost of the bare hash.

use std::io::Write;
use std::net::IpAddr;

use sha2::block_api::compress256;
use sha2::{Digest, Sha256};

/// The length of `#` and the longest address.
const LONGEST: usize = 40;
/// What fits into one block of SHA-256 beside its padding (FIPS 180-4, section 5.1.1).
const ONE_BLOCK: usize = 55;
/// The state SHA-256 begins with (FIPS 180-4, section 5.3.3).
const START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The words of a digest; they compare as its bytes do.
pub(super) type Words = [u32; 8];

/// One address as text, to be hashed behind the names of candidates.
pub(super) struct Ballot {
    text: [u8; LONGEST],
    length: usize,
    /// The block for names of one length, with everything in it but the name: nodes tend to have names alike.
    block: [u8; 64],
    made_for: usize,
}

impl Ballot {
    pub fn new(addr: IpAddr) -> Self {
        let mut text = [0; LONGEST];
        text[0] = b'#';
        let length = 1 + match addr.to_canonical() {
            IpAddr::V4(v4) => dotted(v4.octets(), &mut text[1..]),
            IpAddr::V6(v6) => {
                let mut rest = &mut text[1..];
                write!(rest, "{v6}").expect("no address is longer than this");
                LONGEST - 1 - rest.len()
            }
        };
        Self { text, length, block: [0; 64], made_for: usize::MAX }
    }

    /// The hash behind one name. Nearly every text fits into one block, which then needs no buffer.
    #[inline]
    pub fn rank(&mut self, node: &str) -> Words {
        if node.len() != self.made_for {
            if node.len() + self.length > ONE_BLOCK {
                return self.rank_long(node);
            }
            self.make_for(node.len());
        }
        self.block[..node.len()].copy_from_slice(node.as_bytes());
        let mut state = START;
        compress256(&mut state, std::slice::from_ref(&self.block));
        state
    }

    fn make_for(&mut self, name: usize) {
        let total = name + self.length;
        self.block = [0; 64];
        self.block[name..total].copy_from_slice(&self.text[..self.length]);
        self.block[total] = 0x80;
        self.block[56..].copy_from_slice(&(8 * total as u64).to_be_bytes());
        self.made_for = name;
    }

    fn rank_long(&self, node: &str) -> Words {
        let digest = Sha256::new().chain_update(node).chain_update(&self.text[..self.length]).finalize();
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(digest.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        words
    }
}

/// A digest as it is printed.
pub(super) fn bytes(words: Words) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(4).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
    bytes
}

/// Writes an IPv4 address, faster than the general way; returns its length.
fn dotted(octets: [u8; 4], text: &mut [u8]) -> usize {
    let mut length = 0;
    let mut put = |byte: u8| {
        text[length] = byte;
        length += 1;
    };
    for (i, octet) in octets.into_iter().enumerate() {
        if i > 0 {
            put(b'.');
        }
        if octet > 99 {
            put(b'0' + octet / 100);
        }
        if octet > 9 {
            put(b'0' + octet / 10 % 10);
        }
        put(b'0' + octet % 10);
    }
    length
}

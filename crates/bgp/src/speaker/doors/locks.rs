//! The passwords on one listening socket: those that are there, and those that should be.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use crate::Secret;

/// What a listening socket should know: whose packets are signed, and with what.
pub(super) type Passwords = BTreeMap<IpAddr, Secret>;

/// The passwords that the kernel took.
#[derive(Debug, Default)]
pub(super) struct Locks(Passwords);

impl Locks {
    /// Makes the passwords those that are wanted, and gives back the peers for which that failed. They are tried again
    /// with the next call, because only what the kernel took is remembered.
    pub(super) fn change(
        &mut self,
        wanted: &Passwords,
        set: impl Fn(IpAddr, Option<&Secret>) -> io::Result<()>,
    ) -> Vec<(IpAddr, io::Error)> {
        let gone = self.0.keys().filter(|peer| !wanted.contains_key(peer)).map(|peer| (*peer, None));
        let news = wanted.iter().filter(|(peer, secret)| self.0.get(peer) != Some(secret));
        let changes: Vec<_> = gone.chain(news.map(|(peer, secret)| (*peer, Some(secret)))).collect();
        let mut failed = Vec::new();
        for (peer, secret) in changes {
            match (set(peer, secret), secret) {
                (Ok(()), Some(secret)) => drop(self.0.insert(peer, secret.clone())),
                (Ok(()), None) => drop(self.0.remove(&peer)),
                (Err(error), _) => failed.push((peer, error)),
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(list: &[(u8, &str)]) -> Passwords {
        list.iter().map(|(last, text)| (IpAddr::from([192, 0, 2, *last]), Secret::new(*text).unwrap())).collect()
    }

    fn no_memory(_: IpAddr, _: Option<&Secret>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }

    #[test]
    fn a_password_that_the_kernel_did_not_take_is_tried_again() {
        let mut locks = Locks::default();
        let all = wanted(&[(1, "correct horse"), (2, "battery staple")]);
        let only_the_first = |peer, secret: Option<&Secret>| {
            if peer == IpAddr::from([192, 0, 2, 1]) { Ok(()) } else { no_memory(peer, secret) }
        };
        let failed = locks.change(&all, only_the_first);
        assert_eq!(failed.iter().map(|(peer, _)| peer.to_string()).collect::<Vec<_>>(), ["192.0.2.2"]);
        let again = locks.change(&all, no_memory);
        assert_eq!(again.len(), 1, "the first is there, the second is tried again: {again:?}");
        assert!(locks.change(&all, |_, _| Ok(())).is_empty());
        assert!(locks.change(&all, no_memory).is_empty(), "nothing is left to do");
    }

    #[test]
    fn an_old_password_that_could_not_be_replaced_or_taken_back_is_not_forgotten() {
        let mut locks = Locks::default();
        locks.change(&wanted(&[(1, "old")]), |_, _| Ok(()));
        assert_eq!(locks.change(&wanted(&[(1, "new")]), no_memory).len(), 1);
        assert_eq!(locks.change(&wanted(&[]), no_memory).len(), 1);
        assert_eq!(locks.change(&wanted(&[]), no_memory).len(), 1, "still there");
        assert!(locks.change(&wanted(&[]), |_, secret| secret.map_or(Ok(()), |_| panic!("taken back"))).is_empty());
    }
}

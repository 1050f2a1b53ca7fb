//! Which addresses are advertised, by the interface they are on.

use std::net::IpAddr;

use ipnet::IpNet;

use super::Import;
use crate::reason::Reason;

/// Whether addresses on this interface are advertised.
pub fn imports(import: &Import, interface: &str) -> bool {
    import.enabled && import.interfaces.iter().any(|pattern| import_matches(pattern, interface))
}

/// Whether an entry of `interfaceList`, a name or a glob (`*`, `?`, `[a-c]`), stands for an interface.
pub fn import_matches(pattern: &str, interface: &str) -> bool {
    let interface: Vec<char> = interface.chars().collect();
    tokens(pattern).is_ok_and(|tokens| matches(&tokens, &interface))
}

/// Whether an entry of `interfaceList` can be read.
pub fn check_pattern(pattern: &str) -> Result<(), Reason> {
    match tokens(pattern) {
        Ok(tokens) if !tokens.is_empty() => Ok(()),
        _ => Err(Reason::GlobSyntax { text: pattern.to_owned() }),
    }
}

/// The prefix that is advertised for an address: its network, or nothing for addresses that only a node itself, or only
/// its neighbours, can reach.
pub fn imported(address: IpNet) -> Option<IpNet> {
    let excluded = match address.addr() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_multicast() || v6.is_unspecified(),
    };
    (!excluded).then(|| address.trunc())
}

/// One part of a glob.
#[derive(Debug)]
enum Token {
    /// `*`: anything, or nothing.
    Many,
    /// `?`: one character.
    One,
    /// This character.
    Literal(char),
    /// `[a-c]`, or `[!a-c]`: one character inside, or outside, these ranges.
    Class { outside: bool, ranges: Vec<(char, char)> },
}

impl Token {
    fn accepts(&self, c: char) -> bool {
        match self {
            Token::Many | Token::One => true,
            Token::Literal(literal) => *literal == c,
            Token::Class { outside, ranges } => {
                *outside != ranges.iter().any(|(first, last)| (*first..=*last).contains(&c))
            }
        }
    }
}

/// A pattern that ends too early has no tokens.
struct Unfinished;

fn tokens(pattern: &str) -> Result<Vec<Token>, Unfinished> {
    let mut rest = pattern.chars();
    let mut tokens = Vec::new();
    while let Some(c) = rest.next() {
        tokens.push(match c {
            '*' => Token::Many,
            '?' => Token::One,
            '\\' => Token::Literal(rest.next().ok_or(Unfinished)?),
            '[' => class(&mut rest)?,
            c => Token::Literal(c),
        });
    }
    Ok(tokens)
}

/// What follows `[`, up to its `]`. A `]` that comes first is one of the characters.
fn class(rest: &mut std::str::Chars<'_>) -> Result<Token, Unfinished> {
    let mut next = || rest.next().ok_or(Unfinished);
    let mut c = next()?;
    let outside = matches!(c, '!' | '^');
    if outside {
        c = next()?;
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    let mut open = false;
    loop {
        match c {
            ']' if !ranges.is_empty() => break,
            '-' if !open && !ranges.is_empty() => open = true,
            c => {
                let c = if c == '\\' { next()? } else { c };
                match ranges.last_mut().filter(|_| std::mem::take(&mut open)) {
                    Some((first, last)) if *first <= c => *last = c,
                    Some(_) => return Err(Unfinished),
                    None => ranges.push((c, c)),
                }
            }
        }
        c = next()?;
    }
    if open {
        ranges.push(('-', '-'));
    }
    Ok(Token::Class { outside, ranges })
}

/// Matches with one place to return to, the last `*`: earlier ones need no second look.
fn matches(tokens: &[Token], text: &[char]) -> bool {
    let (mut t, mut i, mut retry) = (0, 0, None);
    while i < text.len() {
        match tokens.get(t) {
            Some(Token::Many) => {
                retry = Some((t, i));
                t += 1;
            }
            Some(token) if token.accepts(text[i]) => {
                t += 1;
                i += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                (t, i) = (star + 1, from + 1);
            }
        }
    }
    tokens[t..].iter().all(|token| matches!(token, Token::Many))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("kube-lb0", "kube-lb0", true)]
    #[case("kube-lb0", "kube-lb01", false)]
    #[case("kube-lb*", "kube-lb0", true)]
    #[case("kube-lb*", "kube-lb", true)]
    #[case("*lb*0", "kube-lb00", true)]
    #[case("*a*b*c", "xaxbxb", false)]
    #[case("eth?", "eth0", true)]
    #[case("eth?", "eth10", false)]
    #[case("eth[0-2]", "eth1", true)]
    #[case("eth[0-2]", "eth3", false)]
    #[case("eth[!0-2]", "eth3", true)]
    #[case("eth[^0-2]", "eth1", false)]
    #[case("eth[]x]", "eth]", true)]
    #[case("eth[0-]", "eth-", true)]
    #[case(r"eth\*", "eth*", true)]
    #[case(r"eth\*", "eth0", false)]
    fn interfaces_are_matched_as_a_shell_does(#[case] pattern: &str, #[case] interface: &str, #[case] expected: bool) {
        assert!(check_pattern(pattern).is_ok());
        assert_eq!(import_matches(pattern, interface), expected);
    }

    #[rstest]
    #[case("")]
    #[case("eth[0-2")]
    #[case("eth[2-0]")]
    #[case("eth[")]
    #[case(r"eth\")]
    fn a_pattern_without_an_end_is_refused_and_matches_nothing(#[case] pattern: &str) {
        assert_eq!(check_pattern(pattern).unwrap_err().name(), "GlobSyntax");
        assert!(!import_matches(pattern, "eth0"));
    }

    #[test]
    fn a_pattern_that_nearly_matches_takes_no_time() {
        let pattern = "*a".repeat(40) + "b";
        assert!(!import_matches(&pattern, &"a".repeat(200)));
    }

    #[rstest]
    #[case("10.1.2.3/24", Some("10.1.2.0/24"))]
    #[case("10.1.2.3/32", Some("10.1.2.3/32"))]
    #[case("2001:db8::1/128", Some("2001:db8::1/128"))]
    #[case("2001:db8::1/64", Some("2001:db8::/64"))]
    #[case("127.0.0.1/8", None)]
    #[case("169.254.7.7/16", None)]
    #[case("224.0.0.5/32", None)]
    #[case("0.0.0.0/0", None)]
    #[case("fe80::1/64", None)]
    #[case("::1/128", None)]
    #[case("ff02::1/128", None)]
    #[case("::/0", None)]
    fn an_address_is_advertised_as_its_network(#[case] address: &str, #[case] prefix: Option<&str>) {
        assert_eq!(imported(address.parse().unwrap()), prefix.map(|prefix| prefix.parse().unwrap()));
    }

    #[test]
    fn nothing_is_advertised_unless_import_is_on() {
        let import = Import { enabled: true, interfaces: vec!["lo".to_owned(), "kube-*".to_owned()] };
        assert!(imports(&import, "kube-lb0") && !imports(&import, "eth0"));
        assert!(!imports(&Import { enabled: false, ..import }, "kube-lb0"));
    }
}

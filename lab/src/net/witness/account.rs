//! What the words of `tcpdump` say about who has an address, and what follows from them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// One packet that matters.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sighting {
    /// The witness asked, at this time in seconds.
    Question(f64),
    /// This MAC address answered it.
    Answer(f64, String),
}

impl Sighting {
    /// Reads a line of a capture. `own` is the MAC address of the witness; who tells of an address unasked is no answer.
    pub(super) fn read(line: &str, own: &str, address: IpAddr) -> Option<Self> {
        let mut words = line.split_whitespace();
        let (at, from, _, to) = (words.next()?.parse().ok()?, words.next()?, words.next()?, words.next()?);
        let to = to.trim_end_matches(',');
        let names = |before: &str| {
            let rest = line.split_once(before)?.1;
            let end = rest.find([' ', ',']).unwrap_or(rest.len());
            rest[..end].parse().ok()
        };
        let is_about = |words: [&str; 2]| words.into_iter().find_map(names) == Some(address);
        if from == own && is_about(["who-has ", "who has "]) {
            return Some(Self::Question(at));
        }
        let answered = to == own && is_about(["Reply ", "tgt is "]);
        answered.then(|| Self::Answer(at, from.to_owned()))
    }
}

/// What a witness has heard about one address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// How often it asked.
    pub asked: usize,
    /// To how many questions somebody answered.
    pub answered: usize,
    /// The MAC addresses that answered, in order; each change is a move.
    pub path: Vec<String>,
    /// The longest time in which nobody answered: from the first question without answer to the next answer.
    pub silence: Duration,
    /// The longest time in which more than one answered: from the first such question to the next that was not one.
    pub doubt: Duration,
}

/// One question, and who answered it.
struct Question {
    at: f64,
    by: BTreeSet<String>,
}

impl Account {
    pub(super) fn of(sightings: impl Iterator<Item = Sighting>) -> Self {
        let (mut questions, mut account): (Vec<Question>, _) = (Vec::new(), Self::default());
        for sighting in sightings {
            match (sighting, questions.last_mut()) {
                (Sighting::Question(at), _) => questions.push(Question { at, by: BTreeSet::new() }),
                (Sighting::Answer(_, mac), Some(question)) => {
                    if account.path.last() != Some(&mac) {
                        account.path.push(mac.clone());
                    }
                    question.by.insert(mac);
                }
                // To a question that was asked before the capture began.
                (Sighting::Answer(..), None) => {}
            }
        }
        // The answer to the last one may still be on its way.
        questions.pop();
        account.asked = questions.len();
        account.answered = questions.iter().filter(|question| !question.by.is_empty()).count();
        account.silence = longest(&questions, |question| question.by.is_empty());
        account.doubt = longest(&questions, |question| question.by.len() > 1);
        account
    }
}

/// The longest time for which something was so without a break.
fn longest(questions: &[Question], so: impl Fn(&Question) -> bool) -> Duration {
    let (mut since, mut longest): (Option<f64>, f64) = (None, 0.0);
    for pair in questions.windows(2) {
        let begin = if so(&pair[0]) { Some(since.unwrap_or(pair[0].at)) } else { None };
        longest = begin.map_or(longest, |begin| longest.max(pair[1].at - begin));
        since = begin;
    }
    Duration::from_secs_f64(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "02:00:00:00:00:01";

    /// Questions 20 ms apart; each word is who answered one.
    fn account(answers: &str) -> Account {
        let mut sightings = Vec::new();
        for (number, answer) in (0..).zip(answers.split(' ')) {
            let at = f64::from(number) / 50.0;
            sightings.push(Sighting::Question(at));
            let macs = answer.chars().filter(|mac| *mac != '-');
            sightings.extend(macs.map(|mac| Sighting::Answer(at, mac.to_string())));
        }
        Account::of(sightings.into_iter())
    }

    fn milliseconds(duration: Duration) -> u128 {
        (duration.as_micros() + 500) / 1000
    }

    #[test]
    fn a_move_with_a_pause_is_silence_and_never_doubt() {
        let seen = account("a a - - - b b b");
        assert_eq!((seen.asked, seen.answered), (7, 4));
        assert_eq!(seen.path, ["a", "b"]);
        assert_eq!((milliseconds(seen.silence), seen.doubt), (60, Duration::ZERO));
    }

    #[test]
    fn two_that_answer_one_question_are_doubt() {
        let seen = account("a a ab ba b b b");
        assert_eq!((seen.silence, milliseconds(seen.doubt)), (Duration::ZERO, 40));
    }

    #[test]
    fn silence_to_the_end_is_silence() {
        assert_eq!(milliseconds(account("a - - - -").silence), 40);
    }

    #[test]
    fn the_words_of_tcpdump_are_understood_in_both_families() {
        let v4 = "192.168.7.200".parse().unwrap();
        let question = format!(
            "1763.25 {OWN} > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Ethernet (len 6), IPv4 (len 4), \
             Request who-has 192.168.7.200 tell 192.168.7.101, length 28"
        );
        assert_eq!(Sighting::read(&question, OWN, v4), Some(Sighting::Question(1763.25)));
        assert_eq!(Sighting::read(&question, OWN, "192.168.7.20".parse().unwrap()), None);
        let answer = format!(
            "1763.5 02:00:00:00:00:0a > {OWN}, ethertype ARP (0x0806), length 42: Ethernet (len 6), IPv4 (len 4), \
             Reply 192.168.7.200 is-at 02:00:00:00:00:0a, length 28"
        );
        assert_eq!(Sighting::read(&answer, OWN, v4), Some(Sighting::Answer(1763.5, "02:00:00:00:00:0a".to_owned())));
        let unasked = answer.replace(OWN, "ff:ff:ff:ff:ff:ff");
        assert_eq!(Sighting::read(&unasked, OWN, v4), None);
        let v6 = "fd00:7::200".parse().unwrap();
        let question = format!(
            "1763.25 {OWN} > 33:33:ff:00:02:00, ethertype IPv6 (0x86dd), length 86: (hlim 255, next-header ICMPv6 (58) \
             payload length: 32) fd00:7::101 > ff02::1:ff00:200: [icmp6 sum ok] ICMP6, neighbor solicitation, length 32, \
             who has fd00:7::200"
        );
        assert_eq!(Sighting::read(&question, OWN, v6), Some(Sighting::Question(1763.25)));
        let answer = format!(
            "1763.5 02:00:00:00:00:0a > {OWN}, ethertype IPv6 (0x86dd), length 86: (hlim 255, next-header ICMPv6 (58) \
             payload length: 32) fd00:7::200 > fd00:7::101: [icmp6 sum ok] ICMP6, neighbor advertisement, length 32, \
             tgt is fd00:7::200, Flags [router, solicited, override]"
        );
        assert_eq!(Sighting::read(&answer, OWN, v6), Some(Sighting::Answer(1763.5, "02:00:00:00:00:0a".to_owned())));
    }
}

//! Every state with every input: what is done, and where it leads.

use super::*;

/// An input, what is done, and the state after it. In the names of outputs, the number is that of the connection: 1 is
/// the one that exists, 2 a new one.
type Row = (&'static str, &'static str, State);

/// One row per state and input.
const TABLE: &[(&str, &[Row])] = &[
    (
        "stopped",
        &[
            ("start", "dial", State::Connect),
            ("stop", "", State::Idle),
            ("silent stop", "", State::Idle),
            ("connect", "1:close", State::Idle),
            ("fail", "", State::Idle),
            ("accept", "2:close", State::Idle),
            ("close", "", State::Idle),
            ("open", "", State::Idle),
            ("keepalive", "", State::Idle),
            ("update", "", State::Idle),
            ("refresh", "", State::Idle),
            ("notification", "", State::Idle),
            ("nonsense", "", State::Idle),
            ("sent", "", State::Idle),
            ("path down", "", State::Idle),
            ("routes", "", State::Idle),
            ("down", "", State::Idle),
        ],
    ),
    (
        "pausing",
        &[
            ("start", "", State::Idle),
            ("stop", "", State::Idle),
            ("silent stop", "", State::Idle),
            ("connect", "1:close", State::Idle),
            ("fail", "", State::Idle),
            ("accept", "2:close", State::Idle),
            ("close", "", State::Idle),
            ("open", "", State::Idle),
            ("keepalive", "", State::Idle),
            ("update", "", State::Idle),
            ("refresh", "", State::Idle),
            ("notification", "", State::Idle),
            ("nonsense", "", State::Idle),
            ("sent", "", State::Idle),
            ("path down", "", State::Idle),
            ("routes", "", State::Idle),
            ("down", "", State::Idle),
        ],
    ),
    (
        "connect",
        &[
            ("start", "", State::Connect),
            ("stop", "hangup", State::Idle),
            ("silent stop", "hangup", State::Idle),
            ("connect", "1:open", State::OpenSent),
            ("fail", "", State::Active),
            ("accept", "2:open", State::OpenSent),
            ("close", "", State::Connect),
            ("open", "", State::Connect),
            ("keepalive", "", State::Connect),
            ("update", "", State::Connect),
            ("refresh", "", State::Connect),
            ("notification", "", State::Connect),
            ("nonsense", "", State::Connect),
            ("sent", "", State::Connect),
            ("path down", "", State::Connect),
            ("routes", "", State::Connect),
            ("down", "hangup", State::Idle),
        ],
    ),
    (
        "active",
        &[
            ("start", "", State::Active),
            ("stop", "", State::Idle),
            ("silent stop", "", State::Idle),
            ("connect", "1:close", State::Active),
            ("fail", "", State::Active),
            ("accept", "2:open", State::OpenSent),
            ("close", "", State::Active),
            ("open", "", State::Active),
            ("keepalive", "", State::Active),
            ("update", "", State::Active),
            ("refresh", "", State::Active),
            ("notification", "", State::Active),
            ("nonsense", "", State::Active),
            ("sent", "", State::Active),
            ("path down", "", State::Active),
            ("routes", "", State::Active),
            ("down", "", State::Idle),
        ],
    ),
    (
        "opensent",
        &[
            ("start", "", State::OpenSent),
            ("stop", "1:6/2 1:close", State::Idle),
            ("silent stop", "1:close", State::Idle),
            ("connect", "1:close", State::OpenSent),
            ("fail", "", State::OpenSent),
            ("accept", "2:open", State::OpenSent),
            ("close", "", State::Idle),
            ("open", "1:keepalive", State::OpenConfirm),
            ("keepalive", "1:5/1 1:close", State::Idle),
            ("update", "1:5/1 1:close", State::Idle),
            ("refresh", "1:5/1 1:close", State::Idle),
            ("notification", "1:close", State::Idle),
            ("nonsense", "1:1/1 1:close", State::Idle),
            ("sent", "", State::OpenSent),
            ("path down", "", State::OpenSent),
            ("routes", "", State::OpenSent),
            ("down", "1:6/2 1:close", State::Idle),
        ],
    ),
    (
        "openconfirm",
        &[
            ("start", "", State::OpenConfirm),
            ("stop", "1:6/2 1:close", State::Idle),
            ("silent stop", "1:close", State::Idle),
            ("connect", "1:close", State::OpenConfirm),
            ("fail", "", State::OpenConfirm),
            ("accept", "2:open", State::OpenConfirm),
            ("close", "", State::Idle),
            ("open", "1:5/2 1:close", State::Idle),
            ("keepalive", "", State::Established),
            ("update", "1:5/2 1:close", State::Idle),
            ("refresh", "1:5/2 1:close", State::Idle),
            ("notification", "1:close", State::Idle),
            ("nonsense", "1:1/1 1:close", State::Idle),
            ("sent", "", State::OpenConfirm),
            ("path down", "", State::OpenConfirm),
            ("routes", "", State::OpenConfirm),
            ("down", "1:6/2 1:close", State::Idle),
        ],
    ),
    (
        "established",
        &[
            ("start", "", State::Established),
            ("stop", "1:6/2 1:close", State::Idle),
            ("silent stop", "1:close", State::Idle),
            ("connect", "1:close", State::Established),
            ("fail", "", State::Established),
            ("accept", "2:6/7 2:close", State::Established),
            ("close", "", State::Idle),
            ("open", "1:5/3 1:close", State::Idle),
            ("keepalive", "", State::Established),
            ("update", "", State::Established),
            ("refresh", "", State::Established),
            ("notification", "1:close", State::Idle),
            ("nonsense", "1:1/1 1:close", State::Idle),
            ("sent", "", State::Established),
            ("path down", "1:6/10 1:close", State::Idle),
            ("routes", "1:+192.0.2.1/32", State::Established),
            ("down", "1:6/2 1:close", State::Idle),
        ],
    ),
];

const INPUTS: usize = 17;

#[test]
fn every_state_answers_every_input_as_the_rfc_says() {
    let mut wrong = Vec::new();
    for (state, rows) in TABLE {
        assert_eq!(rows.len(), INPUTS, "{state} has a row for each input");
        for (input, outputs, after) in *rows {
            let mut bench = Bench::at(state);
            let done = bench.step(named(input));
            if (done.as_str(), bench.state()) != (outputs, *after) {
                wrong.push(format!("{state} + {input}: {done:?} -> {}, not {outputs:?} -> {after}", bench.state()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(TABLE.len(), 7);
}

/// What happens to each state when nothing does.
#[test]
fn every_state_ends_when_its_timer_does() {
    let ends = [
        ("stopped", Duration::from_secs(9999), "", State::Idle),
        ("pausing", Duration::from_secs(1), "dial", State::Connect),
        ("connect", Duration::from_secs(9999), "", State::Connect),
        ("active", Duration::from_secs(1), "dial", State::Connect),
        ("opensent", Duration::from_secs(240), "1:4/0 1:close", State::Idle),
        ("openconfirm", Duration::from_secs(90), "1:keepalive 1:4/0 1:close", State::Idle),
        ("established", Duration::from_secs(90), "1:keepalive 1:4/0 1:close", State::Idle),
    ];
    for (state, time, outputs, after) in ends {
        let mut bench = Bench::at(state);
        assert_eq!((bench.pass(time).as_str(), bench.state()), (outputs, after), "{state}");
    }
}

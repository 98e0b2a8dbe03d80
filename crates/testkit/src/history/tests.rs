//! The checker itself: histories with an explanation, and, above all, histories that must be
//! refused.

use super::*;

fn at(call: u64, ret: u64, op: Op, out: Out) -> Event {
    Event { call, ret, op, out }
}

fn val(text: &str) -> Val {
    Val::of(text.as_bytes())
}

fn hit(text: &str) -> Out {
    Out::Hit { val: val(text), cas: None }
}

fn hit_cas(text: &str, cas: u64) -> Out {
    Out::Hit { val: val(text), cas: Some(cas) }
}

#[track_caller]
fn accepted(mode: Mode, events: &[Event]) {
    check(events, mode).unwrap();
}

#[track_caller]
fn refused(mode: Mode, events: &[Event]) {
    assert!(check(events, mode).is_err(), "accepted: {events:?}");
}

#[test]
fn values_extend_at_both_ends() {
    assert_eq!(val("ab").followed_by(val("cd")), val("abcd"));
    assert_eq!(val("12").followed_by(val("x")), val("12x"));
    assert_ne!(val("ab").followed_by(val("cd")), val("acbd"));
    assert_eq!(val("99 "), Val::Number(99));
}

#[test]
fn sequential_histories_are_accepted() {
    accepted(
        Mode::Strict,
        &[
            at(0, 1, Op::Get, Out::Miss),
            at(2, 3, Op::Add(val("a")), Out::Stored),
            at(4, 5, Op::Add(val("b")), Out::NotStored),
            at(6, 7, Op::Append(val("z")), Out::Stored),
            at(8, 9, Op::Get, hit_cas("az", 7)),
            at(10, 11, Op::Cas(val("c"), 7), Out::Stored),
            at(12, 13, Op::Cas(val("d"), 7), Out::Exists),
            at(14, 15, Op::Touch, Out::Touched),
            at(16, 17, Op::Set(val("41")), Out::Stored),
            at(18, 19, Op::Incr(1), Out::Number(42)),
            at(20, 21, Op::Decr(50), Out::Number(0)),
            at(22, 23, Op::Delete, Out::Deleted),
            at(24, 25, Op::Replace(val("x")), Out::NotStored),
            at(26, 27, Op::Touch, Out::NotFound),
        ],
    );
}

#[test]
fn a_token_is_valid_once_and_until_any_change() {
    let ask = |at_ns, token| at(at_ns, at_ns + 1, Op::LeaseGet, Out::Token(token));
    let fill = |at_ns, token, out| at(at_ns, at_ns + 1, Op::LeaseSet(val("v"), token), out);
    accepted(
        Mode::Strict,
        &[
            ask(0, 5),
            ask(2, 6),
            fill(4, 5, Out::NotStored),
            at(6, 7, Op::Touch, Out::NotFound),
            fill(8, 6, Out::Stored),
            at(10, 11, Op::LeaseGet, hit("v")),
            fill(12, 6, Out::NotStored),
        ],
    );
    // A delete of nothing, a store, and a later token come between.
    for between in
        [at(2, 3, Op::Delete, Out::NotFound), at(2, 3, Op::Set(val("w")), Out::Stored), ask(2, 6)]
    {
        refused(Mode::Strict, &[ask(0, 5), between, fill(4, 5, Out::Stored)]);
    }
    refused(Mode::Strict, &[ask(0, 5), fill(2, 5, Out::NotStored)]);
    refused(Mode::Strict, &[fill(0, 5, Out::Stored)]);
    // One that no client received voids the former, or was never granted.
    for out in [Out::Stored, Out::NotStored] {
        accepted(Mode::Strict, &[ask(0, 5), at(2, 9, Op::LeaseGet, Out::Unknown), fill(4, 5, out)]);
    }
}

#[test]
fn a_read_without_memory_may_return_a_unique_of_no_item() {
    let read = |at_ns, cas| at(at_ns, at_ns + 1, Op::Get, hit_cas("a", cas));
    let cas = |at_ns, cas, out| at(at_ns, at_ns + 1, Op::Cas(val("b"), cas), out);
    let before = [at(0, 1, Op::Set(val("a")), Out::Stored), read(2, 5), read(4, 6)];
    let history = |last: Event| [&before[..], &[last]].concat();
    refused(Mode::Evicting, &before);
    for (unique, out) in [(5, Out::Stored), (6, Out::Stored), (6, Out::Exists)] {
        accepted(Mode::Starved, &history(cas(6, unique, out)));
    }
    let stored = history(cas(6, 6, Out::Stored));
    let then = |last: Event| [&stored[..], &[last]].concat();
    accepted(Mode::Starved, &then(cas(8, 5, Out::Exists)));
    refused(Mode::Starved, &then(cas(8, 5, Out::Stored)));
    accepted(Mode::Full, &stored);
    let lost = then(at(8, 9, Op::Get, Out::Miss));
    accepted(Mode::Starved, &lost);
    refused(Mode::Full, &lost);
}

#[test]
fn a_stale_item_is_won_once() {
    let stale = |cas, won| Out::Stale { val: val("a"), cas: Some(cas), won };
    let read = |at_ns, out| at(at_ns, at_ns + 1, Op::MetaGet, out);
    let before = [at(0, 1, Op::Set(val("a")), Out::Stored), at(2, 3, Op::Invalidate, Out::Deleted)];
    let after = |more: &[Event]| [&before[..], more].concat();
    accepted(
        Mode::Strict,
        &after(&[
            read(4, stale(7, true)),
            read(6, stale(7, false)),
            at(8, 9, Op::Get, hit_cas("a", 7)),
            at(10, 11, Op::Cas(val("b"), 7), Out::Stored),
            read(12, hit("b")),
            at(14, 15, Op::Delete, Out::Deleted),
            at(16, 17, Op::Invalidate, Out::NotFound),
        ]),
    );
    // The winner may never be known.
    accepted(Mode::Strict, &after(&[read(4, Out::Unknown), read(6, stale(7, false))]));
    for wrong in [
        &[read(4, hit("a"))][..],
        &[read(4, stale(7, false))],
        &[read(4, stale(7, true)), read(6, stale(7, true))],
        &[read(4, stale(7, true)), read(6, stale(8, false))],
    ] {
        refused(Mode::Strict, &after(wrong));
    }
    // The earlier unique is void, and that of the invalidation belongs to no fresh item.
    let seen = [at(0, 1, Op::Set(val("a")), Out::Stored), read(2, hit_cas("a", 5))];
    let marked = at(4, 5, Op::Invalidate, Out::Deleted);
    refused(
        Mode::Strict,
        &[&seen[..], &[marked.clone(), at(6, 7, Op::Cas(val("b"), 5), Out::Stored)]].concat(),
    );
    refused(Mode::Strict, &[&seen[..], &[marked, read(6, stale(5, true))]].concat());
}

#[test]
fn concurrent_commands_may_execute_in_either_order() {
    for seen in ["a", "b"] {
        accepted(
            Mode::Strict,
            &[
                at(0, 10, Op::Set(val("a")), Out::Stored),
                at(0, 10, Op::Set(val("b")), Out::Stored),
                at(11, 12, Op::Get, hit(seen)),
            ],
        );
    }
}

#[test]
fn the_order_of_concurrent_sets_is_final() {
    refused(
        Mode::Strict,
        &[
            at(0, 10, Op::Set(val("a")), Out::Stored),
            at(0, 10, Op::Set(val("b")), Out::Stored),
            at(11, 12, Op::Get, hit("a")),
            at(13, 14, Op::Get, hit("b")),
        ],
    );
}

#[test]
fn a_stale_read_is_refused() {
    for mode in [Mode::Strict, Mode::Evicting] {
        refused(
            mode,
            &[
                at(0, 1, Op::Set(val("a")), Out::Stored),
                at(2, 3, Op::Set(val("b")), Out::Stored),
                at(4, 5, Op::Get, hit("a")),
            ],
        );
    }
}

#[test]
fn a_lost_set_is_refused_unless_items_may_vanish() {
    let events = [at(0, 1, Op::Set(val("a")), Out::Stored), at(2, 3, Op::Get, Out::Miss)];
    refused(Mode::Strict, &events);
    accepted(Mode::Evicting, &events);
}

#[test]
fn a_vanished_value_does_not_come_back() {
    refused(
        Mode::Evicting,
        &[
            at(0, 1, Op::Set(val("a")), Out::Stored),
            at(2, 3, Op::Get, Out::Miss),
            at(4, 5, Op::Get, hit("a")),
        ],
    );
}

#[test]
fn a_deleted_value_does_not_come_back() {
    for mode in [Mode::Strict, Mode::Evicting] {
        refused(
            mode,
            &[
                at(0, 1, Op::Set(val("a")), Out::Stored),
                at(2, 3, Op::Delete, Out::Deleted),
                at(4, 5, Op::Get, hit("a")),
            ],
        );
    }
}

#[test]
fn two_adds_cannot_both_succeed() {
    refused(
        Mode::Strict,
        &[at(0, 10, Op::Add(val("a")), Out::Stored), at(0, 10, Op::Add(val("b")), Out::Stored)],
    );
}

#[test]
fn two_cas_on_one_version_cannot_both_succeed() {
    for mode in [Mode::Strict, Mode::Evicting] {
        refused(
            mode,
            &[
                at(0, 1, Op::Set(val("a")), Out::Stored),
                at(2, 3, Op::Get, hit_cas("a", 5)),
                at(4, 9, Op::Cas(val("b"), 5), Out::Stored),
                at(4, 9, Op::Cas(val("c"), 5), Out::Stored),
            ],
        );
    }
}

#[test]
fn a_lost_increment_is_refused() {
    refused(
        Mode::Strict,
        &[
            at(0, 1, Op::Set(val("0")), Out::Stored),
            at(2, 9, Op::Incr(1), Out::Number(1)),
            at(2, 9, Op::Incr(1), Out::Number(1)),
        ],
    );
}

#[test]
fn a_lost_append_is_refused() {
    refused(
        Mode::Strict,
        &[
            at(0, 1, Op::Set(val("a")), Out::Stored),
            at(2, 9, Op::Append(val("b")), Out::Stored),
            at(2, 9, Op::Append(val("c")), Out::Stored),
            at(10, 11, Op::Get, hit("ac")),
        ],
    );
}

#[test]
fn a_value_never_stored_is_refused() {
    refused(
        Mode::Evicting,
        &[at(0, 1, Op::Set(val("a")), Out::Stored), at(0, 9, Op::Get, hit("b"))],
    );
}

#[test]
fn one_cas_unique_with_two_values_is_refused() {
    refused(
        Mode::Evicting,
        &[
            at(0, 9, Op::Set(val("a")), Out::Stored),
            at(0, 9, Op::Set(val("b")), Out::Stored),
            at(0, 9, Op::Get, hit_cas("a", 3)),
            at(0, 9, Op::Get, hit_cas("b", 3)),
        ],
    );
}

#[test]
fn an_unanswered_command_may_or_may_not_have_executed() {
    for seen in [hit("a"), hit("b")] {
        accepted(
            Mode::Strict,
            &[
                at(0, 1, Op::Set(val("a")), Out::Stored),
                at(2, 50, Op::Set(val("b")), Out::Unknown),
                at(60, 61, Op::Get, seen),
            ],
        );
    }
    refused(
        Mode::Strict,
        &[
            at(0, 1, Op::Set(val("a")), Out::Stored),
            at(2, 50, Op::Set(val("b")), Out::Unknown),
            at(60, 61, Op::Get, hit("b")),
            at(62, 63, Op::Get, hit("a")),
        ],
    );
}

#[test]
fn one_wrong_read_in_a_long_history_is_found_quickly() {
    let mut events = Vec::new();
    for turn in 0..20_000_u64 {
        let start = turn * 10;
        let text = format!("v{turn}");
        events.push(at(start, start + 12, Op::Set(val(&text)), Out::Stored));
        events.push(at(start + 13, start + 14, Op::Touch, Out::Touched));
        if turn > 0 {
            events.push(at(start + 3, start + 14, Op::Get, hit(&text)));
        }
    }
    accepted(Mode::Strict, &events);
    events.push(at(150_000, 150_005, Op::Get, hit("v3")));
    refused(Mode::Strict, &events);
}

#[test]
fn check_values_finds_hits_of_values_not_stored_yet() {
    let set = at(10, 12, Op::Set(val("a")), Out::Stored);
    // Whatever came before or after it, the item may be gone, or seen again.
    let explained = [
        set.clone(),
        at(13, 14, Op::Get, Out::Miss),
        at(15, 16, Op::Get, hit_cas("a", 1)),
        at(17, 18, Op::Cas(val("b"), 1), Out::NotFound),
        at(19, 20, Op::Get, hit_cas("b", 2)),
    ];
    check_values(&explained).unwrap();
    let of_nobody = at(15, 16, Op::Get, hit("c"));
    let too_early = at(7, 9, Op::Get, hit("a"));
    let with_two_values = at(21, 22, Op::Get, hit_cas("a", 2));
    for wrong in [of_nobody, too_early] {
        assert!(check_values(&[set.clone(), wrong.clone()]).is_err(), "accepted: {wrong:?}");
    }
    let events: Vec<Event> = explained.into_iter().chain([with_two_values]).collect();
    assert!(check_values(&events).is_err(), "accepted: {events:?}");
}

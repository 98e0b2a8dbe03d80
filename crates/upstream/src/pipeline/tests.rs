//! Questions, with honest and lying answers.

use super::*;
use crate::reply::OwnedReply;
use crate::sink::Sink;
use spans::{Context, Kind, Spans, Value};
use std::sync::Arc;

/// Collects answers.
#[derive(Default)]
pub(super) struct Got(pub(super) Vec<(Ticket, OwnedReply)>);

impl ReplyObserver for Got {
    fn on_reply(&mut self, _: Command, _: &[u8], _: u16, _: u64, _: &Reply<'_>) {}
}

impl Sink for Got {
    fn answer(&mut self, ticket: Ticket, reply: &Reply<'_>) {
        self.0.push((ticket, reply.to_owned()));
    }
}

impl Got {
    fn outcomes(&self) -> Vec<(Ticket, Outcome)> {
        self.0.iter().map(|(ticket, reply)| (*ticket, reply.outcome)).collect()
    }
}

/// A pipeline that has sent these questions, with tickets 0, 1, ...
fn asked(requests: &[(Command, &[u8])]) -> Pipeline {
    let mut pipeline = Pipeline::default();
    for (ticket, (op, key)) in (0..).zip(requests) {
        pipeline.ask(&Request::new(*op, key), ticket, 0, 1);
    }
    let len = pipeline.outgoing().len();
    pipeline.has_sent(len);
    pipeline
}

/// Feeds `bytes` to one pipeline in one piece, and byte by byte to an equal one. The results must
/// be equal.
#[track_caller]
pub(super) fn fed(mut whole: Pipeline, mut bits: Pipeline, bytes: &[u8]) -> (Got, Option<Broken>) {
    let (mut got, mut got_bits) = (Got::default(), Got::default());
    let broken = whole.receive(bytes, 1 << 20, &mut got).err();
    let (mut buffer, mut broken_bits) = (Vec::new(), None);
    for byte in bytes {
        buffer.push(*byte);
        match bits.receive(&buffer, 1 << 20, &mut got_bits) {
            Ok((used, _)) => drop(buffer.drain(..used)),
            Err(broken) => {
                broken_bits = Some(broken);
                break;
            }
        }
    }
    assert_eq!((&got.0, broken), (&got_bits.0, broken_bits));
    assert_eq!((whole.len(), whole.awaits_end), (bits.len(), bits.awaits_end));
    (got, broken)
}

#[track_caller]
fn answers(
    requests: &[(Command, &[u8])],
    bytes: &[u8],
) -> (Vec<(Ticket, Outcome)>, Option<Broken>) {
    let (got, broken) = fed(asked(requests), asked(requests), bytes);
    (got.outcomes(), broken)
}

#[test]
fn gets_of_one_turn_are_sent_as_one_line() {
    let mut pipeline = Pipeline::default();
    for (ticket, (op, key)) in (0..).zip([
        (Command::Get, "a"),
        (Command::Get, "b"),
        (Command::Delete, "c"),
        (Command::Get, "d"),
        (Command::Gets, "e"),
    ]) {
        pipeline.ask(&Request::new(op, key.as_bytes()), ticket, 0, 1);
    }
    assert_eq!(pipeline.outgoing(), b"get a b\r\ndelete c\r\nget d\r\ngets e\r\n");
    pipeline.has_sent(3);
    assert_eq!(pipeline.unsent(), 31);
    // Later questions are on a separate line: the previous one may have left.
    pipeline.ask(&Request::new(Command::Gets, b"f"), 9, 0, 1);
    assert!(pipeline.outgoing().ends_with(b"gets e\r\ngets f\r\n"));
}

/// memcached may write such a key raw, so it is not asked for it.
#[test]
fn the_reply_for_a_key_unfit_for_a_line_contains_it_in_base64() {
    let asked = || {
        let mut pipeline = Pipeline::default();
        for (ticket, (op, words)) in (0..).zip([
            (Command::MetaGet, &b"v f b k s O1"[..]),
            (Command::MetaGet, b"k b t"),
            (Command::MetaDelete, b"b k"),
            (Command::MetaGet, b"b v"),
        ]) {
            let request = Request { base64: true, words, ..Request::new(op, b"a b") };
            pipeline.ask(&request, ticket, 0, 1);
        }
        let want = b"mg YSBi v f b s O1\r\nmg YSBi b t\r\nmd YSBi b\r\nmg YSBi b v\r\n";
        assert_eq!(pipeline.outgoing(), want);
        pipeline.has_sent(want.len());
        pipeline
    };
    let bytes = b"VA 1 f0 s1 O1 W\r\nx\r\nEN\r\nNF\r\nVA 1 b\r\nx\r\n";
    let (got, broken) = fed(asked(), asked(), bytes);
    assert_eq!(broken, None);
    let words = got.0.iter().map(|(_, reply)| str::from_utf8(&reply.words).unwrap());
    assert_eq!(words.collect::<Vec<_>>(), [" f0 kYSBi b s1 O1 W", " kYSBi b", " kYSBi b", " b"]);
}

/// Three answers, in their order.
type Three = [(Ticket, Outcome); 3];

#[test]
fn keys_of_a_line_without_a_value_are_misses() {
    let three: [(Command, &[u8]); 4] =
        [(Command::Get, b"a"), (Command::Get, b"b"), (Command::Get, b"c"), (Command::Delete, b"d")];
    let (found, missed) = (Outcome::Found, Outcome::NotFound);
    let cases: [(&[u8], Three); 4] = [
        (b"VALUE b 0 1\r\nx\r\nEND\r\nDELETED\r\n", [(1, found), (0, missed), (2, missed)]),
        (b"END\r\nDELETED\r\n", [(0, missed), (1, missed), (2, missed)]),
        (b"VALUE c 0 1\r\nx\r\nEND\r\nDELETED\r\n", [(2, found), (0, missed), (1, missed)]),
        (
            b"VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nVALUE c 0 1\r\nx\r\nEND\r\nDELETED\r\n",
            [(0, found), (1, found), (2, found)],
        ),
    ];
    for (bytes, [first, second, third]) in cases {
        let want = vec![first, second, third, (3, Outcome::Deleted)];
        assert_eq!(answers(&three, bytes), (want, None));
    }
}

#[test]
fn a_key_requested_twice_on_a_line_gets_two_replies() {
    let twice: [(Command, &[u8]); 2] = [(Command::Get, b"a"), (Command::Get, b"a")];
    let bytes = b"VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\nEND\r\n";
    assert_eq!(answers(&twice, bytes), (vec![(0, Outcome::Found), (1, Outcome::Found)], None));
}

#[test]
fn a_server_error_fails_the_remaining_keys_of_its_line() {
    let asked: [(Command, &[u8]); 4] = [
        (Command::Get, b"a"),
        (Command::Get, b"b"),
        (Command::Delete, b"c"),
        (Command::Touch, b"d"),
    ];
    let bytes = b"VALUE a 0 1\r\nx\r\nSERVER_ERROR oops\r\nSERVER_ERROR 307 busy\r\nTOUCHED\r\n";
    let failed = Outcome::Failed(Failure::RemoteError);
    let busy = Outcome::Failed(Failure::Busy);
    let want = vec![(0, Outcome::Found), (1, failed), (2, busy), (3, Outcome::Touched)];
    assert_eq!(answers(&asked, bytes), (want, None));
}

/// A proxy sends the values of a line, and then the error of the other keys in place of END.
#[test]
fn an_error_after_values_fails_the_keys_that_they_skip() {
    let asked: [(Command, &[u8]); 4] =
        [(Command::Get, b"a"), (Command::Get, b"b"), (Command::Get, b"c"), (Command::Touch, b"d")];
    let failed = |failure| Outcome::Failed(failure);
    let (found, remote) = (Outcome::Found, failed(Failure::RemoteError));
    let cases: [(&[u8], Three); 5] = [
        (
            b"VALUE b 0 1\r\nx\r\nVALUE c 0 1\r\nx\r\nSERVER_ERROR oops\r\nTOUCHED\r\n",
            [(1, found), (2, found), (0, remote)],
        ),
        (
            b"VALUE b 0 1\r\nx\r\nSERVER_ERROR 302 try again\r\nTOUCHED\r\n",
            [(1, found), (0, failed(Failure::TryAgain)), (2, failed(Failure::TryAgain))],
        ),
        (
            b"VALUE c 0 1\r\nx\r\nERROR\r\nTOUCHED\r\n",
            [(2, found), (0, remote), (1, remote)],
        ),
        (
            b"VALUE c 0 1\r\nx\r\nCLIENT_ERROR no\r\nTOUCHED\r\n",
            [(2, found), (0, failed(Failure::ClientError)), (1, failed(Failure::ClientError))],
        ),
        (
            b"VALUE a 0 1\r\nx\r\nVALUE b 0 1\r\nx\r\nVALUE c 0 1\r\nx\r\nSERVER_ERROR oops\r\nTOUCHED\r\n",
            [(0, found), (1, found), (2, found)],
        ),
    ];
    for (bytes, [first, second, third]) in cases {
        let want = vec![first, second, third, (3, Outcome::Touched)];
        assert_eq!(answers(&asked, bytes), (want, None), "{}", bytes.escape_ascii());
    }
}

/// Until the end of its line, a skipped key may still fail, and it is not forgotten.
#[test]
fn a_skipped_key_waits_for_the_end_of_its_line() {
    let mut pipeline = asked(&[(Command::Get, b"a"), (Command::Get, b"b")]);
    let mut got = Got::default();
    pipeline.receive(b"VALUE b 0 1\r\nx\r\n", 1 << 20, &mut got).unwrap();
    assert_eq!(got.outcomes(), [(1, Outcome::Found)]);
    assert_eq!((pipeline.len(), pipeline.oldest_us()), (1, Some(1)));
    let late = pipeline.fail(50, Failure::Timeout, Failure::RemoteError, b"", &mut got);
    assert_eq!((late, got.outcomes()[1]), (1, (0, Outcome::Failed(Failure::Timeout))));
    assert!(pipeline.is_empty());
}

/// The end of a line is late when its last question is.
#[test]
fn a_line_without_its_end_is_outstanding() {
    let value = &b"VALUE a 0 1\r\nx\r\n"[..];
    let lease = &b"LVALUE a 5 0 0\r\n\r\n"[..];
    for (op, bytes) in [(Command::Get, value), (Command::LeaseGet, lease)] {
        let mut pipeline = asked(&[(op, b"a")]);
        pipeline.ask(&Request::new(Command::Delete, b"b"), 1, 0, 9);
        let mut got = Got::default();
        pipeline.receive(bytes, 1 << 20, &mut got).unwrap();
        assert_eq!((got.0.len(), pipeline.oldest_us()), (1, Some(1)), "{op:?}");
        pipeline.receive(b"END\r\n", 1 << 20, &mut got).unwrap();
        assert_eq!((got.0.len(), pipeline.oldest_us()), (1, Some(9)), "{op:?}");
    }
}

/// A server that executes a delete and refuses the rest has not failed. The text is the server's.
#[test]
fn a_delete_without_its_hold_off_is_no_failure() {
    let asked: [(Command, &[u8]); 5] = [
        (Command::MetaDelete, b"a"),
        (Command::Delete, b"b"),
        (Command::MetaDelete, b"c"),
        (Command::Touch, b"d"),
        (Command::MetaDelete, b"e"),
    ];
    let bytes = [
        proto::reply::NO_ROOM_FOR_HOLD_OFF,
        proto::reply::HOLD_OFF_OVER_RATE,
        proto::reply::NO_ROOM_FOR_EMPTY_ITEM,
        proto::reply::NO_ROOM_FOR_HOLD_OFF,
        proto::reply::OUT_OF_MEMORY,
    ];
    let failed = Outcome::Failed(Failure::RemoteError);
    let done = Outcome::OnlyDeleted;
    let want = vec![(0, done), (1, done), (2, done), (3, failed), (4, failed)];
    assert_eq!(answers(&asked, &bytes.concat()), (want, None));
}

#[test]
fn a_faulty_reply_is_detected_before_delivery() {
    type Lie<'a> = (&'a [(Command, &'a [u8])], &'a [u8], Broken);
    let lies: [Lie<'_>; 17] = [
        (&[(Command::Get, b"a")], b"VALUE b 0 1\r\nx\r\nEND\r\n", Broken::Mismatch),
        (&[(Command::Get, b"a")], b"VALUE a 0 1 7\r\nx\r\nEND\r\n", Broken::Mismatch),
        (&[(Command::Gets, b"a")], b"VALUE a 0 1\r\nx\r\nEND\r\n", Broken::Mismatch),
        (&[(Command::Get, b"a")], b"STORED\r\n", Broken::Mismatch),
        (&[(Command::Get, b"a")], b"HD\r\n", Broken::Mismatch),
        (&[(Command::Set, b"a")], b"DELETED\r\n", Broken::Mismatch),
        (&[(Command::Set, b"a")], b"VALUE a 0 1\r\nx\r\n", Broken::Mismatch),
        (&[(Command::Delete, b"a")], b"5\r\n", Broken::Mismatch),
        (&[(Command::Delete, b"a")], b"EX\r\n", Broken::Mismatch),
        (&[(Command::Delete, b"a")], b"HD kb\r\n", Broken::Mismatch),
        (&[(Command::MetaGet, b"a")], b"END\r\n", Broken::Mismatch),
        (&[(Command::MetaGet, b"a")], b"MN\r\n", Broken::Mismatch),
        (&[(Command::MetaGet, b"a")], b"ME a exp=1\r\n", Broken::Mismatch),
        (&[(Command::LeaseGet, b"a")], b"LVALUE b 5 0 0\r\n\r\n", Broken::Mismatch),
        (&[(Command::Get, b"a")], b"VALUE a 0 4294967293\r\n", Broken::Garbage),
        (&[(Command::Get, b"a")], b"hello\r\n", Broken::Garbage),
        (&[], b"END\r\n", Broken::Unsolicited),
    ];
    for (requests, bytes, broken) in lies {
        assert_eq!(answers(requests, bytes), (vec![], Some(broken)), "{}", bytes.escape_ascii());
    }
}

#[test]
fn an_extra_line_breaks_the_next_reply() {
    let asked: [(Command, &[u8]); 1] = [(Command::Get, b"a")];
    let bytes = b"VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\ny\r\nEND\r\n";
    assert_eq!(answers(&asked, bytes), (vec![(0, Outcome::Found)], Some(Broken::Mismatch)));
    let bytes = b"END\r\nEND\r\n";
    assert_eq!(answers(&asked, bytes), (vec![(0, Outcome::NotFound)], Some(Broken::Unsolicited)));
}

#[test]
fn a_refused_line_with_a_data_block_closes_the_connection() {
    let asked: [(Command, &[u8]); 2] = [(Command::Set, b"a"), (Command::Get, b"b")];
    let refused = Outcome::Failed(Failure::ClientError);
    let cut_after = |outcome| (vec![(0, outcome)], Some(Broken::Cut));
    let line = b"CLIENT_ERROR bad command line format\r\n";
    assert_eq!(answers(&asked, line), cut_after(refused));
    // The server does not know the command at all, which is a separate failure (as in mcrouter).
    let unknown = Outcome::Failed(Failure::RemoteError);
    assert_eq!(answers(&asked, b"ERROR\r\n"), cut_after(unknown));
    let counted: [(Command, &[u8]); 1] = [(Command::Incr, b"a")];
    assert_eq!(answers(&counted, b"CLIENT_ERROR non-numeric\r\n"), (vec![(0, refused)], None));
}

#[test]
fn gets_of_a_refused_line_are_sent_separately() {
    let mut pipeline = Pipeline::text();
    for (ticket, key) in (0..).zip(["a", "b", "c"]) {
        pipeline.ask(&Request::new(Command::Get, key.as_bytes()), ticket, 0, 1);
    }
    let len = pipeline.outgoing().len();
    pipeline.has_sent(len);
    pipeline.ask(&Request::new(Command::Get, b"d"), 3, 0, 2);
    let mut got = Got::default();
    let refused = b"VALUE a 0 1\r\nx\r\nCLIENT_ERROR permission denied\r\n";
    assert_eq!(pipeline.receive(refused, 1 << 20, &mut got), Ok((refused.len(), 0)));
    assert_eq!(got.outcomes(), [(0, Outcome::Found)]);
    assert_eq!(pipeline.outgoing(), b"get d\r\nget b\r\nget c\r\n");
    let answers = b"END\r\nCLIENT_ERROR permission denied\r\nVALUE c 0 1\r\nx\r\nEND\r\n";
    assert_eq!(pipeline.receive(answers, 1 << 20, &mut got), Ok((answers.len(), 0)));
    let denied = Outcome::Failed(Failure::ClientError);
    let rest = [(3, Outcome::NotFound), (1, denied), (2, Outcome::Found)];
    assert_eq!(got.outcomes()[1..], rest);
    assert!(pipeline.is_empty());
}

#[test]
fn skipped_gets_of_a_refused_line_are_sent_separately() {
    let mut pipeline = Pipeline::text();
    for (ticket, key) in (0..).zip(["a", "b", "c"]) {
        pipeline.ask(&Request::new(Command::Get, key.as_bytes()), ticket, 0, 1);
    }
    let len = pipeline.outgoing().len();
    pipeline.has_sent(len);
    let mut got = Got::default();
    let refused = b"VALUE b 0 1\r\nx\r\nCLIENT_ERROR permission denied\r\n";
    assert_eq!(pipeline.receive(refused, 1 << 20, &mut got), Ok((refused.len(), 0)));
    assert_eq!(pipeline.outgoing(), b"get a\r\nget c\r\n");
    let len = pipeline.outgoing().len();
    pipeline.has_sent(len);
    let answers = b"CLIENT_ERROR permission denied\r\nEND\r\n";
    assert_eq!(pipeline.receive(answers, 1 << 20, &mut got), Ok((answers.len(), 0)));
    let denied = Outcome::Failed(Failure::ClientError);
    assert_eq!(got.outcomes(), [(1, Outcome::Found), (0, denied), (2, Outcome::NotFound)]);
    assert!(pipeline.is_empty());
}

#[test]
fn a_failure_answers_every_request_once() {
    let mut pipeline = asked(&[(Command::Get, b"a"), (Command::Get, b"b")]);
    pipeline.ask(&Request::new(Command::Get, b"c"), 7, 0, 100);
    let mut got = Got::default();
    let late = pipeline.fail(50, Failure::Timeout, Failure::RemoteError, b"", &mut got);
    let (timeout, remote) =
        (Outcome::Failed(Failure::Timeout), Outcome::Failed(Failure::RemoteError));
    assert_eq!((late, got.outcomes()), (2, vec![(0, timeout), (1, timeout), (7, remote)]));
    assert!(pipeline.is_empty() && pipeline.unsent() == 0);
}

/// A pipeline to a server with this dialect, with a get before, a traced get, and a get after; its
/// output, and the queue of its spans.
fn with_traced_get(seen: Dialect) -> (Pipeline, String, Arc<Spans>) {
    let spans = Arc::new(Spans::default());
    let mut pipeline = Pipeline { seen: Some(seen), ..Pipeline::text() };
    let cause = Context::begin();
    let span = OpenSpan::begin(&spans, Some(&cause), Kind::Client, "get");
    pipeline.ask(&Request::new(Command::Get, b"a"), 0, 0, 1);
    pipeline.ask_traced(span, &Request::new(Command::Get, b"b"), 1, 0, 1);
    pipeline.ask(&Request::new(Command::Get, b"c"), 2, 0, 1);
    let sent = String::from_utf8(pipeline.outgoing().to_vec()).unwrap();
    (pipeline, sent, spans)
}

#[test]
fn a_traced_get_has_its_own_line_after_its_context() {
    let (pipeline, sent, spans) = with_traced_get(Dialect::Tracing);
    let lines: Vec<&str> = sent.lines().collect();
    let context = lines[1].strip_prefix("mn traceparent ").unwrap();
    assert_eq!((lines[0], lines[2], lines[3]), ("get a", "get b", "get c"));
    let (bits, ..) = with_traced_get(Dialect::Tracing);
    let answers = b"END\r\nMN\r\nVALUE b 0 1\r\nx\r\nEND\r\nEND\r\n";
    let (got, broken) = fed(pipeline, bits, answers);
    let outcomes = [(0, Outcome::NotFound), (1, Outcome::Found), (2, Outcome::NotFound)];
    assert_eq!((got.outcomes(), broken), (outcomes.to_vec(), None));
    let ended = spans.take();
    assert_eq!(ended.len(), 1);
    assert_eq!(Context::parse(context.as_bytes()), Some(ended[0].context));
    let outcome = ("holdall.outcome", Value::Text("hit".to_owned()));
    assert!(ended[0].attributes.contains(&outcome), "{ended:?}");
}

#[test]
fn a_server_without_spans_gets_no_context() {
    for seen in [Dialect::Basic, Dialect::Classic, Dialect::Meta, Dialect::Holdall] {
        let (mut pipeline, sent, spans) = with_traced_get(seen);
        assert_eq!(sent, "get a\r\nget b\r\nget c\r\n");
        let mut got = Got::default();
        pipeline.receive(b"END\r\nEND\r\nEND\r\n", 1 << 20, &mut got).unwrap();
        assert_eq!((got.0.len(), spans.take().len()), (3, 1));
    }
}

/// An error instead of the answer to the context does not affect the request.
#[test]
fn a_refused_context_leaves_the_request_alone() {
    let (mut pipeline, _, spans) = with_traced_get(Dialect::Tracing);
    let mut got = Got::default();
    let answers = b"END\r\nSERVER_ERROR no\r\nEND\r\nEND\r\n";
    pipeline.receive(answers, 1 << 20, &mut got).unwrap();
    assert!(got.outcomes().iter().all(|(_, outcome)| *outcome == Outcome::NotFound));
    assert_eq!(spans.take().len(), 1);
}

#[test]
fn any_other_reply_to_a_context_is_a_mismatch() {
    for answer in ["END\r\n", "VALUE b 0 1\r\nx\r\n", "HD\r\n", "STORED\r\n"] {
        let (pipeline, ..) = with_traced_get(Dialect::Tracing);
        let (bits, ..) = with_traced_get(Dialect::Tracing);
        let (_, broken) = fed(pipeline, bits, format!("END\r\n{answer}").as_bytes());
        assert_eq!(broken, Some(Broken::Mismatch), "{answer}");
    }
}

#[test]
fn a_broken_connection_ends_the_spans() {
    let (mut pipeline, _, spans) = with_traced_get(Dialect::Tracing);
    let mut got = Got::default();
    pipeline.fail(0, Failure::Timeout, Failure::RemoteError, b"", &mut got);
    assert_eq!(got.0.len(), 3);
    let ended = spans.take();
    assert_eq!((ended.len(), ended[0].error), (1, Some(Failure::RemoteError.sentence())));
}

#[test]
fn a_traced_binary_request_has_a_span_but_no_context() {
    let spans = Arc::new(Spans::default());
    let asked = |traced: bool| {
        let mut pipeline = Pipeline::binary();
        for (ticket, key) in [(0, b"a"), (1, b"b")] {
            let request = Request::new(Command::Get, key);
            if traced {
                let span = OpenSpan::begin(&spans, None, Kind::Client, "get");
                pipeline.ask_traced(span, &request, ticket, 0, 1);
            } else {
                pipeline.ask(&request, ticket, 0, 1);
                // Like a traced one: nothing joins it.
                pipeline.end_line();
            }
        }
        pipeline
    };
    let (mut traced, mut plain) = (asked(true), asked(false));
    assert_eq!(traced.outgoing(), plain.outgoing());
    traced.fail(0, Failure::Timeout, Failure::RemoteError, b"", &mut Got::default());
    assert_eq!(spans.take().len(), 2);
}

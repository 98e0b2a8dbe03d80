//! Lists of pieces, marks and noted misses, which routes store under a client's key: no command
//! reveals them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::{Rig, patient};
use proto::answer::MetaCode;
use routes::Context;
use routes::route::{
    Answer, BigValueRoute, L1L2CacheRoute, L1L2SizeSplitRoute, Route, RouteRef, default_outcome,
};
use upstream::{Command, Failure, Outcome, OwnedReply, Request, SendCell};

/// A lease's token.
const TOKEN: u64 = 7;

/// By key: flags and value.
type Items = BTreeMap<Vec<u8>, (u32, Vec<u8>)>;

/// A cache with leases and stale values. With `refuses`, it accepts no value.
#[derive(Debug, Default)]
struct Memory {
    items: Mutex<Items>,
    /// The latest expiry time of each key.
    exptimes: Mutex<BTreeMap<Vec<u8>, i64>>,
    deleted: Mutex<Items>,
    /// All requests.
    asked: Mutex<Vec<Command>>,
    refuses: bool,
}

impl Memory {
    fn answer(&self, request: &Request<'_>) -> OwnedReply {
        let (mut items, mut deleted) = (self.items.lock().unwrap(), self.deleted.lock().unwrap());
        let item = items.get(request.key).cloned();
        let found = |outcome, (flags, value): (u32, Vec<u8>)| {
            let (key, number) = (request.key.to_vec(), TOKEN);
            OwnedReply { key, flags, value, number, ..OwnedReply::of(outcome) }
        };
        let has = item.is_some();
        self.asked.lock().unwrap().push(request.op);
        let is_number = |item: &(u32, Vec<u8>)| item.1.iter().all(u8::is_ascii_digit);
        if has && matches!(request.op, Command::Touch | Command::Gat | Command::Gats) {
            self.exptimes.lock().unwrap().insert(request.key.to_vec(), request.exptime);
        }
        match request.op {
            Command::Touch if has => OwnedReply::of(Outcome::Touched),
            Command::Incr | Command::Decr | Command::MetaArithmetic if has => {
                match (item.is_some_and(|item| is_number(&item)), request.op) {
                    (false, _) => OwnedReply::from(Failure::ClientError),
                    (true, Command::MetaArithmetic) => OwnedReply::of(Outcome::Meta(MetaCode::Hd)),
                    (true, _) => OwnedReply::of(Outcome::Number),
                }
            }
            Command::Get | Command::Gets | Command::Gat | Command::Gats => item
                .map_or_else(|| OwnedReply::of(Outcome::NotFound), |it| found(Outcome::Found, it)),
            Command::LeaseGet => match item {
                Some(item) => found(Outcome::Found, item),
                None => {
                    let stale = deleted.get(request.key).cloned().unwrap_or_default();
                    found(Outcome::Lease, stale)
                }
            },
            Command::Delete => match items.remove(request.key) {
                Some(item) => {
                    deleted.insert(request.key.to_vec(), item);
                    OwnedReply::of(Outcome::Deleted)
                }
                None => OwnedReply::of(Outcome::NotFound),
            },
            Command::Append | Command::Prepend if has => {
                let (flags, old) = item.unwrap();
                let value = [&old[..], request.value].concat();
                items.insert(request.key.to_vec(), (flags, value));
                OwnedReply::of(Outcome::Stored)
            }
            _ if self.refuses => OwnedReply::from(Failure::RemoteError),
            Command::Add if has => OwnedReply::of(Outcome::NotStored),
            Command::Replace if !has => OwnedReply::of(Outcome::NotStored),
            Command::Cas if !has => OwnedReply::of(Outcome::NotFound),
            Command::Cas if request.number != TOKEN => OwnedReply::of(Outcome::Exists),
            Command::Set | Command::Cas if request.exptime < 0 => {
                items.remove(request.key);
                OwnedReply::of(Outcome::Stored)
            }
            Command::Set | Command::Add | Command::Cas | Command::LeaseSet | Command::Replace => {
                items.insert(request.key.to_vec(), (request.flags, request.value.to_vec()));
                self.exptimes.lock().unwrap().insert(request.key.to_vec(), request.exptime);
                OwnedReply::of(Outcome::Stored)
            }
            op => OwnedReply::of(default_outcome(op)),
        }
    }
}

impl Route for Memory {
    fn name(&self) -> String {
        "memory".to_owned()
    }

    fn route<'a>(&'a self, _: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move { self.answer(&request) })
    }

    fn next(&self, _: &Context, _: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}

fn rig(route: impl Route + 'static) -> Rig {
    Rig::new(patient(), |_| Arc::new(route))
}

fn big(target: &Arc<Memory>) -> BigValueRoute {
    let target: RouteRef = Arc::<Memory>::clone(target);
    BigValueRoute { target, split_bytes: 10, batch: 2, hides_flag: false }
}

fn split(l1: &Arc<Memory>, l2: &Arc<Memory>) -> L1L2SizeSplitRoute {
    let (l1, l2): (RouteRef, RouteRef) = (Arc::<Memory>::clone(l1), Arc::<Memory>::clone(l2));
    let (large_bytes, lifetime_secs, failure_secs) = (10, 0, 60);
    let (stores_both, retries) = (false, 1);
    L1L2SizeSplitRoute { l1, l2, large_bytes, lifetime_secs, failure_secs, stores_both, retries }
}

fn store<'a>(op: Command, key: &'a str, value: &'a [u8]) -> Request<'a> {
    Request { value, number: TOKEN, ..Request::new(op, key.as_bytes()) }
}

const LARGE: &[u8] = b"0123456789abcdefghijk";

#[test]
fn a_lease_after_a_delete_returns_the_stale_value_not_its_list() {
    let memory = Arc::new(Memory::default());
    let mut rig = rig(big(&memory));
    assert_eq!(rig.ask(&store(Command::Set, "k", LARGE)).outcome, Outcome::Stored);
    let list = memory.items.lock().unwrap()[&b"k"[..]].1.clone();
    assert!(list.starts_with(b"1-3-"));
    assert_eq!(rig.simple(Command::Delete, "k"), Outcome::Deleted);
    let lease = rig.ask(&Request::new(Command::LeaseGet, b"k"));
    assert_eq!((lease.outcome, lease.number), (Outcome::Lease, TOKEN));
    assert_eq!(lease.value, LARGE);
    // A piece is missing: only the token is useful.
    let piece = [b"k:1:", &list[b"1-3-".len()..]].concat();
    memory.items.lock().unwrap().remove(&piece).unwrap();
    let lease = rig.ask(&Request::new(Command::LeaseGet, b"k"));
    assert_eq!((lease.outcome, lease.number), (Outcome::Lease, TOKEN));
    assert_eq!((lease.flags, lease.value), (0, Vec::new()));
}

#[test]
fn a_large_append_to_a_small_value_is_refused() {
    let memory = Arc::new(Memory::default());
    let mut rig = rig(big(&memory));
    assert_eq!(rig.ask(&store(Command::Set, "k", b"small")).outcome, Outcome::Stored);
    for op in [Command::Append, Command::Prepend] {
        let refused = Outcome::Failed(Failure::ClientError);
        assert_eq!(rig.ask(&store(op, "k", LARGE)).outcome, refused);
    }
    assert_eq!(rig.get("k"), Ok(Some("small".to_owned())));
    assert_eq!(rig.ask(&store(Command::Append, "k", b"er")).outcome, Outcome::Stored);
    assert_eq!(rig.get("k"), Ok(Some("smaller".to_owned())));
}

/// A list or a mark that is changed has no value any more. The reply says so, and gets miss.
#[test]
fn a_small_change_of_a_large_value_is_reported_as_its_loss() {
    let refused = Outcome::Failed(Failure::ClientError);
    let mut pieces = rig(big(&Arc::default()));
    let mut tiers = rig(split(&Arc::default(), &Arc::default()));
    for rig in [&mut pieces, &mut tiers] {
        for op in [Command::Append, Command::Prepend] {
            assert_eq!(rig.ask(&store(Command::Set, "k", LARGE)).outcome, Outcome::Stored);
            assert_eq!(rig.ask(&store(op, "k", b"er")).outcome, refused, "{op:?}");
            assert_eq!(rig.get("k"), Ok(None));
        }
    }
    // The mark of a lease-set is a number.
    for op in [Command::Incr, Command::Decr, Command::MetaArithmetic] {
        assert_eq!(tiers.ask(&store(Command::LeaseSet, "n", LARGE)).outcome, Outcome::Stored);
        assert_eq!(tiers.ask(&store(op, "n", b"")).outcome, refused, "{op:?}");
    }
}

/// Requests that follow on the same connection must not overtake a change.
#[test]
fn a_change_is_sent_before_the_route_looks_at_the_item() {
    let ops = [
        Command::Add,
        Command::Append,
        Command::Cas,
        Command::Decr,
        Command::Incr,
        Command::Prepend,
        Command::Replace,
        Command::Touch,
    ];
    let (target, l1, near) = (Arc::default(), Arc::default(), Arc::default());
    let routes = [
        (rig(big(&target)), &target),
        (rig(split(&l1, &Arc::default())), &l1),
        (rig(tiers(&near, &Arc::default(), 1000)), &near),
    ];
    for (mut rig, memory) in routes {
        for op in ops {
            memory.asked.lock().unwrap().clear();
            rig.ask(&store(op, "k", b"1"));
            assert_eq!(memory.asked.lock().unwrap()[0], op);
        }
    }
}

#[test]
fn a_refused_store_leaves_the_pieces_of_the_present_value() {
    let memory = Arc::new(Memory::default());
    let mut rig = rig(big(&memory));
    assert_eq!(rig.ask(&store(Command::Set, "k", LARGE)).outcome, Outcome::Stored);
    let before = memory.exptimes.lock().unwrap().clone();
    let add = Request { exptime: 1, ..store(Command::Add, "k", LARGE) };
    assert_eq!(rig.ask(&add).outcome, Outcome::NotStored);
    let cas = Request { exptime: 1, number: TOKEN + 1, ..store(Command::Cas, "k", LARGE) };
    assert_eq!(rig.ask(&cas).outcome, Outcome::Exists);
    let after = memory.exptimes.lock().unwrap().clone();
    assert!(before.iter().all(|(key, exptime)| after[key] == *exptime), "{before:?} {after:?}");
}

/// Pieces, lists, marks and values in L2 live as long as the client wants.
#[test]
fn a_touch_reaches_all_parts_of_a_value() {
    let memory = Arc::new(Memory::default());
    let (l1, l2) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let mut pieces = rig(big(&memory));
    let mut tiers = rig(split(&l1, &l2));
    let exptimes =
        |memory: &Memory| -> Vec<_> { memory.exptimes.lock().unwrap().values().copied().collect() };
    for (exptime, op) in (100..).zip([Command::Touch, Command::Gat, Command::Gats]) {
        for rig in [&mut pieces, &mut tiers] {
            let set = Request { exptime: 2, ..store(Command::Set, "k", LARGE) };
            assert_eq!(rig.ask(&set).outcome, Outcome::Stored);
            let reply = rig.ask(&Request { exptime, ..Request::new(op, b"k") });
            let done = if op == Command::Touch { Outcome::Touched } else { Outcome::Found };
            assert_eq!(reply.outcome, done);
        }
        assert_eq!(exptimes(&memory), [exptime; 4], "{op:?}");
        assert_eq!([exptimes(&l1), exptimes(&l2)], [[exptime]; 2], "{op:?}");
    }
    // A piece is missing.
    let piece = memory.items.lock().unwrap().keys().nth(1).cloned().unwrap();
    memory.items.lock().unwrap().remove(&piece).unwrap();
    assert_eq!(pieces.simple(Command::Touch, "k"), Outcome::NotFound);
    l2.items.lock().unwrap().clear();
    assert_eq!(tiers.simple(Command::Touch, "k"), Outcome::NotFound);
}

#[test]
fn a_marker_without_its_new_value_is_removed() {
    let l1 = Arc::new(Memory::default());
    let mut working = rig(split(&l1, &Arc::default()));
    assert_eq!(working.ask(&store(Command::Set, "k", LARGE)).outcome, Outcome::Stored);
    assert_eq!(l1.items.lock().unwrap()[&b"k"[..]], (0x20, Vec::new()));
    let failing = Arc::new(Memory { refuses: true, ..Memory::default() });
    let mut failing = rig(split(&l1, &failing));
    let failed = Outcome::Failed(Failure::RemoteError);
    assert_eq!(failing.ask(&store(Command::Set, "k", LARGE)).outcome, failed);
    assert!(l1.items.lock().unwrap().is_empty());
    let lease = failing.ask(&Request::new(Command::LeaseGet, b"k"));
    assert_eq!((lease.outcome, lease.flags, lease.value), (Outcome::Lease, 0, Vec::new()));
}

fn tiers(l1: &Arc<Memory>, l2: &Arc<Memory>, miss_period: u32) -> L1L2CacheRoute {
    let (l1, l2): (RouteRef, RouteRef) = (Arc::<Memory>::clone(l1), Arc::<Memory>::clone(l2));
    let (upgrading_exptime, miss_exptime, misses) = (60, 60, SendCell::new(0));
    L1L2CacheRoute { l1, l2, upgrading_exptime, miss_exptime, miss_period, misses }
}

#[test]
fn a_cached_miss_is_a_miss_for_every_command() {
    let (l1, l2) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let mut rig = rig(tiers(&l1, &l2, 1000));
    assert_eq!(rig.get("k"), Ok(None));
    rig.eventually("a noted miss", |_| l1.items.lock().unwrap().contains_key(&b"k"[..]));
    for op in [Command::Get, Command::Gets, Command::LeaseGet, Command::Gat, Command::Gats] {
        assert_eq!(rig.ask(&Request::new(op, b"k")).outcome, Outcome::NotFound, "{op:?}");
        rig.eventually("a noted miss", |_| l1.items.lock().unwrap().contains_key(&b"k"[..]));
        assert_eq!(l1.exptimes.lock().unwrap()[&b"k"[..]], 60, "{op:?}");
    }
    let meta = rig.ask(&Request { words: b"v", ..Request::new(Command::MetaGet, b"k") });
    assert_eq!(meta.outcome, Outcome::Failed(Failure::ClientError));
    assert_eq!(rig.simple(Command::Delete, "k"), Outcome::Deleted);
    let lease = rig.ask(&Request::new(Command::LeaseGet, b"k"));
    assert_eq!((lease.outcome, lease.flags, lease.value), (Outcome::Lease, 0, Vec::new()));
}

/// A noted miss is no item, so changes have the result that they have for a missing one.
#[test]
fn a_noted_miss_is_not_changed() {
    let l1 = Arc::new(Memory::default());
    let mut rig = rig(tiers(&l1, &Arc::default(), 1000));
    let ncache = || (0x1_0000, b"ncache".to_vec());
    let cases = [
        (store(Command::Add, "k", b"v"), Outcome::Stored, true),
        (store(Command::Append, "k", b"v"), Outcome::NotStored, false),
        (store(Command::Prepend, "k", b"v"), Outcome::NotStored, false),
        (Request { number: 1, ..store(Command::Cas, "k", b"v") }, Outcome::NotFound, false),
        (store(Command::Incr, "k", b""), Outcome::NotFound, false),
        (store(Command::Touch, "k", b""), Outcome::NotFound, false),
        (store(Command::MetaArithmetic, "k", b""), Outcome::Meta(MetaCode::Nf), false),
        (store(Command::Replace, "k", b"v"), Outcome::Stored, true),
        (store(Command::Set, "k", b"v"), Outcome::Stored, true),
    ];
    for (request, outcome, stores) in cases {
        l1.items.lock().unwrap().insert(b"k".to_vec(), ncache());
        let op = request.op;
        assert_eq!(rig.ask(&request).outcome, outcome, "{op:?}");
        let left = l1.items.lock().unwrap().get(&b"k"[..]).cloned();
        assert_eq!(left, stores.then(|| (0, b"v".to_vec())), "{op:?}");
    }
    let without = Request { words: b"x", ..store(Command::MetaDelete, "k", b"") };
    assert_eq!(rig.ask(&without).outcome, Outcome::Failed(Failure::ClientError));
    // An item is not removed.
    assert_eq!(rig.ask(&store(Command::Add, "k", b"w")).outcome, Outcome::NotStored);
    assert_eq!(rig.get("k"), Ok(Some("v".to_owned())));
}

/// A value with such a flag would be taken for an internal item.
#[test]
fn client_flags_of_internal_items_are_refused() {
    let memory = || Arc::new(Memory::default());
    let mut routes = [
        (0x8000, rig(big(&memory()))),
        (0x20, rig(split(&memory(), &memory()))),
        (0x1_0000, rig(tiers(&memory(), &memory(), 0))),
    ];
    for (flags, rig) in &mut routes {
        let flags = *flags | 1;
        let ops = [Command::Set, Command::Add, Command::Cas, Command::Replace, Command::LeaseSet];
        let refused = Outcome::Failed(Failure::ClientError);
        for op in ops {
            let request = Request { flags, ..store(op, "k", b"v") };
            assert_eq!(rig.ask(&request).outcome, refused, "{op:?} {flags}");
        }
        let words = format!("F{flags} MS");
        let words = words.as_bytes();
        let request = Request { words, ..store(Command::MetaSet, "k", b"v") };
        assert_eq!(rig.ask(&request).outcome, refused, "ms {flags}");
        let other = Request { flags: !flags | 1, ..store(Command::Set, "k", b"v") };
        assert_eq!(rig.ask(&other).outcome, Outcome::Stored, "{flags}");
        assert_eq!(rig.get("k"), Ok(Some("v".to_owned())));
        // An append stores no flags.
        let append = Request { flags, ..store(Command::Append, "k", b"v") };
        assert_eq!(rig.ask(&append).outcome, Outcome::Stored, "{flags}");
    }
    // A list has the flag in any case.
    let mut rig = rig(big(&memory()));
    let large = Request { flags: 0x8000, ..store(Command::Set, "k", LARGE) };
    assert_eq!(rig.ask(&large).outcome, Outcome::Stored);
    let found = rig.ask(&Request::new(Command::Get, b"k"));
    assert_eq!((found.flags, &found.value[..]), (0x8000, LARGE));
}

/// A copy with the flag of a noted miss would hide the value.
#[test]
fn a_far_value_with_an_internal_flag_is_not_copied() {
    let (l1, l2) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let mut rig = rig(tiers(&l1, &l2, 1));
    l2.items.lock().unwrap().insert(b"k".to_vec(), (0x1_0000, b"far".to_vec()));
    for _ in 0..2 {
        assert_eq!(rig.get("k"), Ok(Some("far".to_owned())));
        assert!(l1.items.lock().unwrap().is_empty());
    }
}

/// As in mcrouter, where other programs write to L2.
#[test]
fn all_gets_read_l1_then_l2_and_other_commands_only_l1() {
    let (l1, l2) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let mut rig = rig(tiers(&l1, &l2, 0));
    for op in [Command::Get, Command::Gets, Command::Gat, Command::Gats] {
        let key = format!("{op:?}");
        l2.items.lock().unwrap().insert(key.clone().into_bytes(), (0, b"far".to_vec()));
        assert_eq!(rig.ask(&Request::new(op, key.as_bytes())).value, b"far");
        rig.eventually("a copy", |_| l1.items.lock().unwrap().contains_key(key.as_bytes()));
        l1.items.lock().unwrap().insert(key.clone().into_bytes(), (0, b"near".to_vec()));
        assert_eq!(rig.ask(&Request::new(op, key.as_bytes())).value, b"near");
    }
    assert_eq!(rig.ask(&store(Command::Set, "k", b"v")).outcome, Outcome::Stored);
    assert_eq!(rig.get("absent"), Ok(None));
    let has = |memory: &Memory, key: &[u8]| memory.items.lock().unwrap().contains_key(key);
    assert_eq!((has(&l1, b"k"), has(&l2, b"k"), has(&l1, b"absent")), (true, false, false));
}

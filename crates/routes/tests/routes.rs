//! Each route with the replies of its children, which are real servers or failing ones.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use common::{Rig, patient};
use proto::answer::MetaCode;
use routeconf::ast::KeyChange;
use routes::Context;
use routes::route::{
    AllAsyncRoute, AllFastestRoute, AllInitialRoute, AllMajorityRoute, AllSyncRoute, Answer,
    Change, ErrorRoute, FailoverErrors, FailoverLimit, FailoverRoute, KeySplitRoute, Keys,
    LatencyInjectionRoute, MigrateRoute, MissFailoverRoute, ModifyExptimeRoute, ModifyKeyRoute,
    NullRoute, OperationSelectorRoute, Order, PrefixSelectorRoute, RandomRoute, RootRoute, Route,
    RouteRef, Selecting, Shadow, ShadowRoute, WarmUpRoute, default_outcome,
};
use testkit::Server;
use upstream::{Command, Failure, Outcome, OwnedReply, Request, Trail};

/// Several memcacheds, and a tree over them. Keys `0/k`, `1/k`, ... reach one of them directly.
struct Cluster {
    rig: Rig,
    _servers: Vec<Server>,
}

impl Cluster {
    fn new(count: usize, build: impl FnOnce(Vec<RouteRef>) -> RouteRef) -> Self {
        let servers: Vec<_> = (0..count).map(|_| Server::memcached(&[])).collect();
        let rig = Rig::new(patient(), |upstream| {
            let all: Vec<RouteRef> = servers.iter().map(|one| upstream.at(one.addr())).collect();
            let direct = all.iter().enumerate().map(|(index, route)| {
                let route: RouteRef = Arc::new(ModifyKeyRoute {
                    target: Arc::clone(route),
                    change: KeyChange {
                        replace_key_prefix: Some(format!("{index}/")),
                        ..KeyChange::default()
                    },
                });
                (format!("{index}/").into_bytes(), route)
            });
            let direct = direct.collect();
            Arc::new(Selecting(PrefixSelectorRoute::new(direct, build(all))))
        });
        Self { rig, _servers: servers }
    }

    #[track_caller]
    fn set(&mut self, key: &str, value: &str) {
        assert_eq!(self.rig.store(Command::Set, key, value), Outcome::Stored);
    }

    #[track_caller]
    fn has(&mut self, key: &str, value: Option<&str>) {
        assert_eq!(self.rig.get(key), Ok(value.map(str::to_owned)), "{key}");
    }

    /// Waits for the work behind the reply.
    #[track_caller]
    fn gets(&mut self, key: &str, value: &str) {
        self.rig.eventually(key, |rig| rig.get(key) == Ok(Some(value.to_owned())));
    }
}

/// The seconds that an item of the first server has left.
#[track_caller]
fn secs_left(cluster: &mut Cluster, key: &str) -> u32 {
    let key = format!("0/{key}");
    let asked = Request { words: b"t", ..Request::new(Command::MetaGet, key.as_bytes()) };
    let words = String::from_utf8(cluster.rig.ask(&asked).words).unwrap();
    let secs = words.split_whitespace().find_map(|word| word.strip_prefix('t'));
    secs.unwrap_or_default().parse().unwrap_or_else(|_| panic!("{key}: {words}"))
}

fn failing(failure: Failure) -> RouteRef {
    Arc::new(ErrorRoute { failure, message: String::new() })
}

fn failover(children: Vec<RouteRef>) -> FailoverRoute {
    let errors = FailoverErrors::default();
    let (order, limit, pairs) = (Order::InOrder, None, None);
    FailoverRoute { children, order, errors, limit, tag: None, pairs }
}

#[test]
fn all_sync_writes_to_all_and_returns_the_worst_reply() {
    let mut cluster = Cluster::new(2, |all| Arc::new(AllSyncRoute { children: all }));
    cluster.set("k", "v");
    cluster.has("0/k", Some("v"));
    cluster.has("1/k", Some("v"));
    assert_eq!(cluster.rig.simple(Command::Delete, "1/k"), Outcome::Deleted);
    assert_eq!(cluster.rig.simple(Command::Delete, "k"), Outcome::NotFound);
    cluster.has("0/k", None);
}

#[test]
fn all_initial_and_all_async_do_not_wait() {
    let mut cluster = Cluster::new(2, |all| Arc::new(AllInitialRoute { children: all }));
    cluster.set("k", "v");
    cluster.has("0/k", Some("v"));
    cluster.gets("1/k", "v");
    let mut cluster = Cluster::new(2, |all| Arc::new(AllAsyncRoute { children: all }));
    assert_eq!(cluster.rig.store(Command::Set, "k", "v"), Outcome::NotStored);
    cluster.gets("0/k", "v");
    cluster.gets("1/k", "v");
    assert_eq!(cluster.rig.get("k"), Ok(None));
}

/// Asks for a delete of `key` with these words, and waits for its work behind the reply.
#[track_caller]
fn delete_with(rig: &mut Rig, key: &str, words: &str) -> Outcome {
    let delete = Request::new(Command::MetaDelete, key.as_bytes());
    let outcome = rig.ask(&Request { words: words.as_bytes(), ..delete }).outcome;
    rig.eventually("all is done", |rig| !rig.core.has_tasks());
    outcome
}

/// The cas unique of the item of the first server.
fn unique_of(rig: &mut Rig, key: &str) -> u64 {
    rig.ask(&Request::new(Command::Gets, format!("0/{key}").as_bytes())).number
}

/// The first child's item has the unique. A unique that differs deletes nothing.
#[test]
fn a_delete_with_a_cas_unique_reaches_all_copies() {
    let routes: [fn(Vec<RouteRef>) -> RouteRef; 7] = [
        |children| Arc::new(AllSyncRoute { children }),
        |children| Arc::new(AllInitialRoute { children }),
        |children| Arc::new(AllAsyncRoute { children }),
        |children| Arc::new(AllFastestRoute { children }),
        |children| Arc::new(AllMajorityRoute { children }),
        |all| {
            let secs = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let (from, to) = (Arc::clone(&all[0]), Arc::clone(&all[1]));
            Arc::new(MigrateRoute { from, to, start_secs: secs - 10, interval_secs: 1000 })
        },
        |all| {
            let names = [b"/a/x/", b"/a/y/"].map(|name| name.to_vec());
            Arc::new(RootRoute::new(names.into_iter().zip(all).collect(), b"/a/x/", false))
        },
    ];
    for (index, route) in routes.into_iter().enumerate() {
        let mut cluster = Cluster::new(2, route);
        for key in ["1/other", "0/k", "1/k"] {
            cluster.set(key, "v");
        }
        let unique = unique_of(&mut cluster.rig, "k");
        let key = if index == 6 { "/a/*/k" } else { "k" };
        let refused = delete_with(&mut cluster.rig, key, &format!("C{}", unique + 100));
        // This route answers before the servers do.
        let code = if index == 2 { MetaCode::Nf } else { MetaCode::Ex };
        assert_eq!(refused, Outcome::Meta(code), "{index}");
        for key in ["0/k", "1/k"] {
            assert_eq!(cluster.rig.get(key), Ok(Some("v".to_owned())), "{index}: {key}");
        }
        delete_with(&mut cluster.rig, key, &format!("C{unique}"));
        for key in ["0/k", "1/k"] {
            assert_eq!(cluster.rig.get(key), Ok(None), "{index}: {key}");
        }
    }
}

#[test]
fn a_single_child_checks_the_cas_unique() {
    let routes: [fn(Vec<RouteRef>) -> RouteRef; 3] = [
        |children| Arc::new(AllAsyncRoute { children }),
        |children| Arc::new(AllFastestRoute { children }),
        |children| Arc::new(AllMajorityRoute { children }),
    ];
    for (index, route) in routes.into_iter().enumerate() {
        let mut cluster = Cluster::new(1, route);
        cluster.set("0/k", "v");
        let unique = unique_of(&mut cluster.rig, "k");
        delete_with(&mut cluster.rig, "k", &format!("C{}", unique + 100));
        assert_eq!(cluster.rig.get("0/k"), Ok(Some("v".to_owned())), "{index}");
        delete_with(&mut cluster.rig, "k", &format!("C{unique}"));
        assert_eq!(cluster.rig.get("0/k"), Ok(None), "{index}");
    }
}

/// If the child that decides fails, the others delete the key, and one of them answers.
#[test]
fn a_failed_decision_deletes_the_copies() {
    let mut cluster = Cluster::new(1, |all| {
        let children = vec![failing(Failure::Timeout), Arc::clone(&all[0])];
        Arc::new(AllFastestRoute { children })
    });
    cluster.set("0/k", "v");
    assert_eq!(delete_with(&mut cluster.rig, "k", "C1"), Outcome::Meta(MetaCode::Hd));
    assert_eq!(cluster.rig.get("0/k"), Ok(None));
}

/// Answers everything in the same way, and notes the command and the words of each request.
#[derive(Debug)]
struct Noting {
    outcome: Outcome,
    /// Notes in the trail where gets go.
    note: fn(&Trail),
    asked: Mutex<Vec<String>>,
}

impl Noting {
    fn new(outcome: Outcome) -> Self {
        Self { outcome, note: |_| {}, asked: Mutex::default() }
    }
}

impl Route for Noting {
    fn name(&self) -> String {
        "noting".to_owned()
    }

    fn route<'a>(&'a self, _: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let words = String::from_utf8_lossy(request.words);
        self.asked.lock().unwrap().push(format!("{:?} {words}", request.op));
        (self.note)(request.trail.unwrap());
        Box::pin(async { OwnedReply::of(self.outcome) })
    }

    fn next(&self, _: &Context, _: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}

/// The reply to a delete of a tree over children with these outcomes.
#[track_caller]
fn deleted(outcomes: &[Outcome], route: impl FnOnce(Vec<RouteRef>) -> RouteRef) -> Outcome {
    let children = outcomes.iter().map(|outcome| Arc::new(Noting::new(*outcome)) as RouteRef);
    let children = children.collect();
    Rig::new(patient(), |_| route(children)).simple(Command::Delete, "k")
}

/// A failed server has the value; one that refused a hold-off has not.
#[test]
fn a_failure_is_worse_than_a_refused_hold_off() {
    let done = Outcome::OnlyDeleted;
    let failures = Failure::ALL.map(Outcome::Failed);
    for other in failures.into_iter().chain([Outcome::NotFound, Outcome::Deleted]) {
        for outcomes in [[done, other], [other, done]] {
            let reply = deleted(&outcomes, |children| Arc::new(AllSyncRoute { children }));
            let is_worse = other.failure().is_some();
            assert_eq!(reply, if is_worse { other } else { done }, "{outcomes:?}");
        }
    }
}

#[test]
fn miss_failover_reports_a_refused_hold_off() {
    let (done, failed) = (Outcome::OnlyDeleted, Outcome::Failed(Failure::Timeout));
    for returns_best in [false, true] {
        let through = |outcomes: &[Outcome]| {
            deleted(outcomes, |children| Arc::new(MissFailoverRoute { children, returns_best }))
        };
        for other in [Outcome::NotFound, Outcome::Deleted] {
            assert_eq!(through(&[done, other]), done);
        }
        assert_eq!(through(&[Outcome::NotFound, done, Outcome::NotFound]), done);
        assert_eq!(through(&[done, failed]), failed);
        assert_eq!(through(&[Outcome::NotFound, Outcome::Deleted]), Outcome::Deleted);
    }
}

/// The next child, which gets read, has an item of its own with another unique.
#[test]
fn a_kept_delete_continues_without_its_cas_unique() {
    let kept = Noting { note: Trail::note_kept, ..Noting::new(Outcome::Meta(MetaCode::Nf)) };
    // The unique is that of the next child, which gets read: the old item here goes, too.
    let held = Noting { note: Trail::note_held, ..Noting::new(Outcome::Meta(MetaCode::Ex)) };
    let own = ["MetaDelete C7 O5", "Delete "];
    for (first, own, words) in [(kept, &own[..1], "MetaDelete O5"), (held, &own[..], own[0])] {
        let (first, next) = (Arc::new(first), Arc::new(Noting::new(Outcome::Meta(MetaCode::Hd))));
        let children = failover(vec![Arc::clone(&first) as _, Arc::clone(&next) as _]);
        let mut rig = Rig::new(patient(), |_| Arc::new(children));
        assert_eq!(delete_with(&mut rig, "k", "C7 O5"), Outcome::Meta(MetaCode::Hd));
        assert_eq!(*next.asked.lock().unwrap(), [words]);
        assert_eq!(*first.asked.lock().unwrap(), own);
    }
}

#[test]
fn all_fastest_skips_failures() {
    let mut cluster = Cluster::new(1, |all| {
        let children = vec![failing(Failure::Timeout), Arc::clone(&all[0])];
        Arc::new(AllFastestRoute { children })
    });
    cluster.set("k", "v");
    cluster.has("k", Some("v"));
    let mut rig = Rig::new(patient(), |_| {
        let children = vec![failing(Failure::Timeout), failing(Failure::Timeout)];
        Arc::new(AllFastestRoute { children })
    });
    assert_eq!(rig.get("k"), Err(Failure::Timeout));
}

#[test]
fn all_majority_returns_the_most_frequent_reply() {
    let mut cluster = Cluster::new(3, |all| Arc::new(AllMajorityRoute { children: all }));
    cluster.set("0/k", "v");
    cluster.has("k", None);
    cluster.set("1/k", "v");
    cluster.has("k", Some("v"));
}

/// A child that the reply does not wait for still does all its work, even one that has not been
/// asked yet, or one that has to ask another.
#[test]
fn children_not_waited_for_finish_their_work() {
    let routes: [fn(Vec<RouteRef>) -> RouteRef; 2] = [
        |children| Arc::new(AllFastestRoute { children }),
        |children| Arc::new(AllMajorityRoute { children }),
    ];
    for route in routes {
        let mut cluster = Cluster::new(2, |all| {
            let null = || Arc::new(NullRoute) as RouteRef;
            let late = Arc::new(LatencyInjectionRoute {
                child: failing(Failure::Busy),
                before_us: 0,
                after_us: 20_000,
                total_us: 0,
            });
            let second = Arc::new(failover(vec![late, Arc::clone(&all[1])]));
            route(vec![null(), null(), null(), Arc::clone(&all[0]), second])
        });
        assert_eq!(cluster.rig.store(Command::Set, "k", "v"), Outcome::NotStored);
        cluster.gets("0/k", "v");
        cluster.gets("1/k", "v");
    }
}

#[test]
fn failover_tries_the_next_child_only_after_a_failure() {
    let mut cluster = Cluster::new(2, |all| {
        let mut children = vec![failing(Failure::Tko)];
        children.extend(all);
        Arc::new(failover(children))
    });
    cluster.set("1/k", "second");
    cluster.has("k", None);
    cluster.set("k", "first");
    cluster.has("0/k", Some("first"));
    cluster.has("1/k", Some("second"));
}

#[test]
fn failover_obeys_its_errors_its_limit_and_its_tag() {
    let mut cluster = Cluster::new(1, |all| {
        let errors = FailoverErrors { gets: vec![Failure::Busy], ..FailoverErrors::default() };
        let children = vec![failing(Failure::Timeout), Arc::clone(&all[0])];
        Arc::new(FailoverRoute { errors, tag: Some(b":failover=1".to_vec()), ..failover(children) })
    });
    assert_eq!(cluster.rig.get("k"), Err(Failure::Timeout));
    cluster.set("k", "v");
    cluster.has("0/k|#|:failover=1", Some("v"));
    cluster.set("a|#|b", "w");
    cluster.has("0/a|#|b:failover=1", Some("w"));
    let mut cluster = Cluster::new(1, |all| {
        let children = vec![failing(Failure::Timeout), Arc::clone(&all[0])];
        let limit = Some(FailoverLimit::new(0.0, 2.0));
        Arc::new(FailoverRoute { limit, ..failover(children) })
    });
    let outcomes: Vec<_> = (0..4).map(|_| cluster.rig.get("k")).collect();
    let late = Err(Failure::Timeout);
    assert_eq!(outcomes, [Ok(None), Ok(None), late.clone(), late]);
    // Leaving a server that received no request costs nothing.
    let mut cluster = Cluster::new(1, |all| {
        let children = vec![failing(Failure::Tko), Arc::clone(&all[0])];
        let limit = Some(FailoverLimit::new(0.0, 2.0));
        Arc::new(FailoverRoute { limit, ..failover(children) })
    });
    assert!((0..4).all(|_| cluster.rig.get("k") == Ok(None)));
}

#[test]
fn the_gutter_shortens_lifetimes() {
    let mut cluster = Cluster::new(1, |all| {
        let target = Arc::clone(&all[0]);
        let gutter = Arc::new(ModifyExptimeRoute { target, change: Change::Min(1000) });
        Arc::new(failover(vec![failing(Failure::Tko), gutter]))
    });
    cluster.set("k", "v");
    let meta = Request { value: b"w", words: b"T5000", ..Request::new(Command::MetaSet, b"m") };
    cluster.rig.ask(&meta);
    // For created items.
    for (op, key) in [(Command::MetaArithmetic, b"a"), (Command::MetaGet, b"g")] {
        cluster.rig.ask(&Request { words: b"v N5000", ..Request::new(op, key) });
    }
    for (key, value) in [("k", "v"), ("m", "w"), ("a", "0"), ("g", "")] {
        cluster.has(key, Some(value));
        let secs = secs_left(&mut cluster, key);
        assert!((1..=1000).contains(&secs), "{key}: {secs}");
    }
}

/// The first requests of a worker, which need no task.
#[test]
fn absolute_times_are_compared_with_the_current_time() {
    let mut cluster = Cluster::new(1, |all| {
        let target = Arc::clone(&all[0]);
        Arc::new(ModifyExptimeRoute { target, change: Change::Min(3600) })
    });
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    for (key, exptime) in [(b"soon", now + 600), (b"late", now + 9000), (b"past", now - 600)] {
        let set = Request { exptime, value: b"v", ..Request::new(Command::Set, key) };
        assert_eq!(cluster.rig.ask(&set).outcome, Outcome::Stored);
    }
    cluster.has("past", None);
    let (soon, late) = (secs_left(&mut cluster, "soon"), secs_left(&mut cluster, "late"));
    assert!((1..=600).contains(&soon) && (3000..=3600).contains(&late), "{soon}, {late}");
}

#[test]
fn miss_failover_continues_until_a_hit() {
    let mut cluster =
        Cluster::new(2, |all| Arc::new(MissFailoverRoute { children: all, returns_best: false }));
    cluster.set("1/k", "v");
    cluster.has("k", Some("v"));
    cluster.has("absent", None);
    assert_eq!(cluster.rig.simple(Command::Delete, "k"), Outcome::Deleted);
    cluster.has("1/k", None);
    cluster.set("k", "v");
    cluster.has("1/k", None);
}

#[test]
fn routing_prefixes_select_clusters() {
    let mut cluster = Cluster::new(3, |all| {
        let names = [&b"/a/x/"[..], b"/a/y/", b"/b/x/"];
        let prefixes = names.iter().map(|name| name.to_vec()).zip(all).collect();
        Arc::new(RootRoute::new(prefixes, b"/a/y/", false))
    });
    cluster.set("k", "default");
    cluster.has("1/k", Some("default"));
    cluster.set("/b/x/k", "b");
    cluster.has("2/k", Some("b"));
    cluster.has("0/k", None);
    let reply = cluster.rig.ask(&Request::new(Command::Get, b"/b/x/k"));
    assert_eq!(reply.value, b"b");
    let unknown = cluster.rig.ask(&Request::new(Command::Get, b"/c/x/k"));
    assert_eq!(unknown.value, b"RootRoute: No rh found");
    // To all clusters of a region: the default's reply, the others in the background.
    cluster.set("/a/*/all", "v");
    cluster.has("1/all", Some("v"));
    cluster.gets("0/all", "v");
    cluster.has("2/all", None);
    cluster.set("/*/*/every", "v");
    cluster.gets("2/every", "v");
}

#[test]
fn a_route_with_several_aliases_gets_one_request() {
    let mut cluster = Cluster::new(2, |all| {
        let (one, other) = (&all[0], &all[1]);
        let prefixes = [("/b/x/", other), ("/a/x/", one), ("/a/y/", one), ("/././", one)];
        let prefixes = prefixes.map(|(name, route)| (name.as_bytes().to_vec(), Arc::clone(route)));
        Arc::new(RootRoute::new(prefixes.to_vec(), b"/././", false))
    });
    cluster.set("/*/*/n", "1");
    cluster.gets("1/n", "1");
    for (key, want) in [("/*/*/n", "2"), ("/a/*/n", "3")] {
        let incr = Request { number: 1, ..Request::new(Command::Incr, key.as_bytes()) };
        let reply = cluster.rig.ask(&incr);
        assert_eq!((reply.outcome, reply.number), (Outcome::Number, want.parse().unwrap()));
        cluster.has("0/n", Some(want));
    }
    cluster.gets("1/n", "2");
}

/// As with `--send-invalid-route-to-default`.
#[test]
fn a_pattern_without_a_match_goes_to_the_default() {
    let mut cluster = Cluster::new(1, |mut all| {
        Arc::new(RootRoute::new(vec![(b"/a/y/".to_vec(), all.remove(0))], b"/a/y/", true))
    });
    for key in ["/b/x/k", "/*/x/k", "/b*/*/k"] {
        cluster.set(key, key);
        cluster.has("k", Some(key));
    }
}

/// Accepts requests with token 7.
#[derive(Debug)]
struct Lender;

impl Route for Lender {
    fn name(&self) -> String {
        "lender".to_owned()
    }

    fn route<'a>(&'a self, _: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let outcome = match (request.op, request.number) {
            (Command::LeaseSet, 7) => Outcome::Stored,
            (Command::LeaseSet, 8) => Outcome::StaleStored,
            (op, _) => default_outcome(op),
        };
        Box::pin(async move { OwnedReply::of(outcome) })
    }

    fn next(&self, _: &Context, _: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}

#[test]
fn a_lease_set_reaches_the_shadow_if_stored() {
    let mut cluster = Cluster::new(1, |all| {
        let shadow = Shadow { target: Arc::clone(&all[0]), keys: Keys::Fraction(0.0, 1.0) };
        Arc::new(ShadowRoute { child: Arc::new(Lender), shadows: vec![shadow] })
    });
    let tries = [(7, Outcome::Stored), (8, Outcome::StaleStored), (9, Outcome::NotStored)];
    for (number, want) in tries {
        let key = format!("k{number}");
        let lease = Request::new(Command::LeaseSet, key.as_bytes());
        let lease = Request { number, value: b"v", flags: 5, ..lease };
        assert_eq!(cluster.rig.ask(&lease).outcome, want);
    }
    cluster.gets("0/k7", "v");
    assert_eq!(cluster.rig.ask(&Request::new(Command::Get, b"0/k7")).flags, 5);
    cluster.has("0/k8", None);
    cluster.has("0/k9", None);
}

#[test]
fn listed_keys_are_shadowed_up_to_their_hash_stop() {
    let mut cluster = Cluster::new(2, |all| {
        let keys = Keys::Listed(vec![b"k7".to_vec()]);
        let shadows = vec![Shadow { target: Arc::clone(&all[1]), keys }];
        Arc::new(ShadowRoute { child: Arc::clone(&all[0]), shadows })
    });
    cluster.set("k7|#|x", "v");
    cluster.gets("1/k7|#|x", "v");
}

#[test]
fn operations_and_prefixes_select_routes() {
    let mut cluster = Cluster::new(2, |all| {
        let policies = vec![(Command::Get, Arc::clone(&all[1]))];
        let default = Arc::clone(&all[0]);
        let by_operation: RouteRef =
            Arc::new(Selecting(OperationSelectorRoute { policies, default }));
        let prefixes = vec![
            (b"a".to_vec(), Arc::new(NullRoute) as RouteRef),
            (b"a:".to_vec(), by_operation),
            (b"b".to_vec(), Arc::clone(&all[1])),
        ];
        Arc::new(Selecting(PrefixSelectorRoute::new(prefixes, Arc::clone(&all[0]))))
    });
    cluster.set("a:k", "v");
    cluster.has("0/a:k", Some("v"));
    cluster.has("a:k", None);
    assert_eq!(cluster.rig.store(Command::Set, "ak", "v"), Outcome::NotStored);
    cluster.set("bk", "v");
    cluster.has("1/bk", Some("v"));
    cluster.set("ck", "v");
    cluster.has("0/ck", Some("v"));
}

#[test]
fn warm_up_reads_the_cold_cluster_first_and_fills_it() {
    let mut cluster = Cluster::new(2, |all| {
        let (cold, warm) = (Arc::clone(&all[0]), Arc::clone(&all[1]));
        Arc::new(WarmUpRoute { warm, cold, exptime: Some(0), hold_off: 0, leases: false })
    });
    cluster.set("1/k", "warm");
    cluster.has("k", Some("warm"));
    cluster.has("0/k", Some("warm"));
    cluster.set("k", "new");
    cluster.has("1/k", Some("warm"));
    cluster.has("k", Some("new"));
    cluster.set("1/cas", "warm");
    let found = cluster.rig.ask(&Request::new(Command::Gets, b"cas"));
    assert_eq!((found.outcome, &found.value[..]), (Outcome::Found, &b"warm"[..]));
    let unique = cluster.rig.ask(&Request::new(Command::Gets, b"0/cas")).number;
    assert_eq!(found.number, unique);
    cluster.has("absent", None);
}

/// The race of section 4.3: between the miss and the copy, the key is deleted, and the cold cluster
/// refuses the add.
#[test]
fn warm_up_returns_no_value_the_cold_cluster_refuses() {
    let mut cluster = Cluster::new(1, |all| {
        let policies = vec![(Command::Add, Arc::new(NullRoute) as RouteRef)];
        let default: RouteRef = Arc::new(NullRoute);
        let cold = Arc::new(Selecting(OperationSelectorRoute { policies, default }));
        Arc::new(WarmUpRoute {
            warm: Arc::clone(&all[0]),
            cold,
            exptime: Some(0),
            hold_off: 0,
            leases: false,
        })
    });
    cluster.set("0/k", "stale");
    cluster.has("k", None);
}

/// Its child, which does not report lifetimes.
#[derive(Debug)]
struct WithoutTtl(RouteRef);

impl Route for WithoutTtl {
    fn name(&self) -> String {
        "without-ttl".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if request.op == Command::MetaGet {
            return Box::pin(async { OwnedReply::from(Failure::Timeout) });
        }
        self.0.route(cx, request)
    }

    fn next(&self, _: &Context, _: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}

/// Such a copy would live for ever.
#[test]
fn warm_up_copies_no_value_of_unknown_lifetime() {
    for exptime in [None, Some(100)] {
        let mut cluster = Cluster::new(2, |all| {
            Arc::new(WarmUpRoute {
                warm: Arc::new(WithoutTtl(Arc::clone(&all[1]))),
                cold: Arc::clone(&all[0]),
                exptime,
                hold_off: 0,
                leases: false,
            })
        });
        cluster.set("1/k", "v");
        cluster.has("k", Some("v"));
        if exptime.is_some() {
            assert!((1..=100).contains(&secs_left(&mut cluster, "k")));
            continue;
        }
        cluster.has("0/k", None);
        // Its reply has a cas unique of the cold cluster.
        let gets = cluster.rig.ask(&Request::new(Command::Gets, b"k"));
        assert_eq!(gets.outcome, Outcome::NotFound);
    }
}

/// Deletes everything, and notes the words of each request.
#[derive(Debug, Default)]
struct Deleter(Mutex<Vec<String>>);

impl Route for Deleter {
    fn name(&self) -> String {
        "deleter".to_owned()
    }

    fn route<'a>(&'a self, _: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let words = String::from_utf8_lossy(request.words).into_owned();
        let code = if words.contains("C1") { MetaCode::Ex } else { MetaCode::Hd };
        self.0.lock().unwrap().push(words);
        Box::pin(async move { OwnedReply::of(Outcome::Meta(code)) })
    }

    fn next(&self, _: &Context, _: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}

/// A copy between the two deletes in the cold cluster has another cas unique.
#[test]
fn the_last_delete_of_a_warm_up_has_no_cas_unique() {
    let cold = Arc::new(Deleter::default());
    let route = Arc::clone(&cold);
    let mut rig = Rig::new(patient(), |_| {
        Arc::new(WarmUpRoute {
            warm: Arc::new(NullRoute),
            cold: route,
            exptime: Some(0),
            hold_off: 0,
            leases: true,
        })
    });
    let delete = Request { words: b"C7 O5", ..Request::new(Command::MetaDelete, b"k") };
    assert_eq!(rig.ask(&delete).outcome, Outcome::Meta(MetaCode::Hd));
    let delete = Request { words: b"C1", ..delete };
    assert_eq!(rig.ask(&delete).outcome, Outcome::Meta(MetaCode::Ex));
    assert_eq!(*cold.0.lock().unwrap(), ["C7 O5", "O5", "C1"]);
}

/// Without the hold-off, the next get would copy the warm cluster's old value.
#[test]
fn a_refused_hold_off_deletes_the_warm_value() {
    let (done, failed) = (Outcome::OnlyDeleted, Outcome::Failed(Failure::Timeout));
    for (of_cold, of_warm, reply, is_asked) in [
        (done, Outcome::Deleted, done, true),
        (done, Outcome::NotFound, done, true),
        (done, failed, failed, true),
        (Outcome::Deleted, failed, Outcome::Deleted, false),
    ] {
        let (cold, warm) = (Arc::new(Noting::new(of_cold)), Arc::new(Noting::new(of_warm)));
        let (to_cold, to_warm) = (Arc::clone(&cold), Arc::clone(&warm));
        let mut rig = Rig::new(patient(), |_| {
            let (exptime, hold_off, leases) = (Some(0), 2, false);
            Arc::new(WarmUpRoute { warm: to_warm, cold: to_cold, exptime, hold_off, leases })
        });
        assert_eq!(delete_with(&mut rig, "k", "C7"), reply);
        assert_eq!(*cold.asked.lock().unwrap(), ["MetaDelete C7 H2"]);
        let asked: &[&str] = if is_asked { &["Delete "] } else { &[] };
        assert_eq!(*warm.asked.lock().unwrap(), asked);
    }
}

#[test]
fn each_key_migrates_at_its_own_time() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (start, place) in [(now + 1000, 0), (now - 5000, 1)] {
        let mut cluster = Cluster::new(2, |all| {
            let (from, to) = (Arc::clone(&all[0]), Arc::clone(&all[1]));
            Arc::new(MigrateRoute { from, to, start_secs: start, interval_secs: 1000 })
        });
        cluster.set("k", "v");
        cluster.has(&format!("{place}/k"), Some("v"));
        cluster.has(&format!("{}/k", 1 - place), None);
    }
    let mut cluster = Cluster::new(2, |all| {
        let (from, to) = (Arc::clone(&all[0]), Arc::clone(&all[1]));
        Arc::new(MigrateRoute { from, to, start_secs: now - 1000, interval_secs: 1000 })
    });
    cluster.set("0/k", "v");
    cluster.set("1/k", "v");
    assert_eq!(cluster.rig.simple(Command::Delete, "k"), Outcome::Deleted);
    cluster.has("0/k", None);
    cluster.has("1/k", None);
}

#[test]
fn shadows_get_their_share_and_their_replies_are_ignored() {
    let mut cluster = Cluster::new(3, |all| {
        let shadow = |target: usize, keys| Shadow { target: Arc::clone(&all[target]), keys };
        let shadows = vec![
            shadow(1, Keys::Fraction(0.0, 0.5)),
            shadow(2, Keys::Listed(vec![b"k7".to_vec()])),
        ];
        Arc::new(ShadowRoute { child: Arc::clone(&all[0]), shadows })
    });
    for key in 0..100 {
        cluster.set(&format!("k{key}"), "v");
    }
    cluster.gets("2/k7", "v");
    cluster.has("2/k8", None);
    let mut shadowed = 0;
    for key in 0..100 {
        shadowed += u32::from(cluster.rig.get(&format!("1/k{key}")) == Ok(Some("v".into())));
    }
    assert!((20..80).contains(&shadowed), "{shadowed} of 100");
}

/// A key with three names on one server. For the host's number 7, the second is its own.
fn split_key(stores_all: bool, first_hit: bool) -> Cluster {
    Cluster::new(1, |all| {
        let destination = Arc::clone(&all[0]);
        Arc::new(KeySplitRoute { destination, replicas: 3, stores_all, first_hit })
    })
}

const NAMES: [&str; 3] = ["0/k", "0/k::1", "0/k::2"];

#[test]
fn a_hot_key_has_several_names() {
    let mut cluster = split_key(true, false);
    cluster.set("k", "v");
    cluster.has("0/k::1", Some("v"));
    for name in NAMES {
        cluster.gets(name, "v");
    }
    cluster.has("k", Some("v"));
    // The reply is that of the host's own name.
    assert_eq!(cluster.rig.simple(Command::Delete, "0/k"), Outcome::Deleted);
    assert_eq!(cluster.rig.simple(Command::Delete, "k"), Outcome::Deleted);
    for name in NAMES {
        cluster.rig.eventually(name, |rig| rig.get(name) == Ok(None));
    }
    // A key that is too long for further names has only one.
    let asked = |cluster: &Cluster| cluster.rig.registry.report()[0].totals.asked;
    let (long, before) = ("k".repeat(249), asked(&cluster));
    cluster.set(&long, "v");
    cluster.has(&long, Some("v"));
    assert_eq!(asked(&cluster) - before, 2);
}

/// The other names have other uniques and tokens, and may lack the item.
#[test]
fn name_specific_requests_go_to_their_own_name() {
    let mut cluster = split_key(true, false);
    cluster.set("0/k::2", "other");
    assert_eq!(cluster.rig.store(Command::Add, "k", "1"), Outcome::Stored);
    let number = cluster.rig.ask(&Request::new(Command::Gets, b"k")).number;
    let cas = Request { number, value: b"2", ..Request::new(Command::Cas, b"k") };
    assert_eq!(cluster.rig.ask(&cas).outcome, Outcome::Stored);
    assert_eq!(cluster.rig.store(Command::Append, "k", "3"), Outcome::Stored);
    for words in [&b"ME"[..], b"MA", b"C1", b"C1 MS"] {
        cluster.rig.ask(&Request { words, value: b"4", ..Request::new(Command::MetaSet, b"k") });
    }
    cluster.has("k", Some("234"));
    cluster.has("0/k", None);
    cluster.has("0/k::2", Some("other"));
    for words in [&b""[..], b"T100 F5 c k", b"MS"] {
        let value = if words.is_empty() { &b"none"[..] } else { words };
        cluster.rig.ask(&Request { words, value, ..Request::new(Command::MetaSet, b"k") });
        for name in NAMES {
            cluster.gets(name, &String::from_utf8_lossy(value));
        }
    }
}

/// A cas unique is valid only for the host's own name, and a delete must reach all names.
#[test]
fn a_delete_with_a_cas_unique_reaches_all_names() {
    let mut cluster = split_key(true, false);
    for name in NAMES {
        cluster.set(name, "v");
    }
    let unique = cluster.rig.ask(&Request::new(Command::Gets, b"k")).number;
    let delete = |rig: &mut Rig, words: &str| {
        let words = words.as_bytes();
        rig.ask(&Request { words, ..Request::new(Command::MetaDelete, b"k") }).outcome
    };
    let refused = delete(&mut cluster.rig, &format!("C{}", unique + 100));
    assert_eq!(refused, Outcome::Meta(MetaCode::Ex));
    // A delete of the other names would have been sent before these gets.
    for name in NAMES {
        assert_eq!(cluster.rig.get(name), Ok(Some("v".to_owned())), "{name}");
    }
    assert_eq!(delete(&mut cluster.rig, &format!("C{unique}")), Outcome::Meta(MetaCode::Hd));
    for name in NAMES {
        cluster.rig.eventually(name, |rig| rig.get(name) == Ok(None));
    }
}

#[test]
fn the_first_name_with_a_value_is_returned() {
    for name in NAMES {
        let mut cluster = split_key(false, true);
        cluster.set(name, "v");
        cluster.has("k", Some("v"));
        let meta = Request { words: b"v", ..Request::new(Command::MetaGet, b"k") };
        assert_eq!(cluster.rig.ask(&meta).value, b"v");
        cluster.has("absent", None);
        // A unique and a token are valid only for their own name.
        let is_own = name == NAMES[1];
        let found = cluster.rig.ask(&Request::new(Command::Gets, b"k"));
        assert_eq!(found.outcome == Outcome::Found, is_own, "{name}");
        let meta = Request { words: b"v c", ..meta };
        assert_eq!(!cluster.rig.ask(&meta).value.is_empty(), is_own, "{name}");
    }
}

#[test]
fn random_reaches_every_child() {
    let mut cluster = Cluster::new(2, |all| Arc::new(Selecting(RandomRoute { children: all })));
    cluster.set("0/k", "v");
    let hits = (0..100).filter(|_| cluster.rig.get("k") == Ok(Some("v".into()))).count();
    assert!((20..80).contains(&hits), "{hits} of 100");
}

/// A client that finds its request by the opaque or the key finds it also in a reply that no server
/// gave.
#[test]
fn replies_of_the_proxy_have_the_flags_of_a_servers_replies() {
    let asked: [(Command, &str, &[u8]); 12] = [
        (Command::MetaGet, "k O8 v", b"none"),
        (Command::MetaGet, "s O2 f t k", b"none"),
        (Command::MetaGet, "b k O8", b"a b"),
        (Command::MetaGet, "v", b"none"),
        (Command::MetaDelete, "O7 b k", b"none"),
        (Command::MetaDelete, "O7 b", b"none"),
        (Command::MetaDelete, "", b"none"),
        (Command::MetaSet, "MR k O9", b"none"),
        (Command::MetaSet, "O1 s MR c k b", b"none"),
        (Command::MetaArithmetic, "k O1 t c", b"none"),
        (Command::MetaDebug, "", b"none"),
        (Command::MetaDebug, "k O1", b"none"),
    ];
    let server = Server::holdall(&[]);
    let mut rig = Rig::new(patient(), |servers| servers.at(server.addr()));
    let mut nobody = Rig::new(patient(), |_| Arc::new(NullRoute));
    // A request sent by a task.
    let mut behind = Rig::new(patient(), |_| {
        Arc::new(AllSyncRoute { children: vec![Arc::new(NullRoute), Arc::new(NullRoute)] })
    });
    for (op, words, key) in asked {
        let base64 = words.split(' ').any(|word| word == "b");
        let request =
            Request { words: words.as_bytes(), base64, value: b"xyz", ..Request::new(op, key) };
        let right = rig.ask(&request);
        for own in [nobody.ask(&request), behind.ask(&request)] {
            assert_eq!(own.outcome, right.outcome, "{op:?} {words}");
            let [own, right] = [&own.words, &right.words].map(|one| String::from_utf8_lossy(one));
            assert_eq!(own, right, "{op:?} {words}");
        }
    }
}

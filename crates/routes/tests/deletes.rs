//! Failed deletes, and the answers to gets of their server until they are executed.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{Rig, Scripted, patient};
use proto::answer::MetaCode;
use routes::route::{
    AllFastestRoute, AllMajorityRoute, OperationSelectorRoute, RouteRef, Selecting, WarmUpRoute,
};
use routes::{Spooler, Target};
use spool::{Fsync, Spool};
use testkit::{Kind, Launch, Server, eventually};
use upstream::{Address, Command, Failure, Login, Outcome, Protocol, Registry, Request, Settings};

/// A server that has an old value, and executes deletes while the flag is set.
fn old(takes: &Arc<AtomicBool>) -> Scripted {
    let now = Arc::clone(takes);
    Scripted::new(move |asked| {
        let answers = asked.lines().map(|line| match line.split(' ').next() {
            Some("get") => Some("VALUE k 0 3\r\nold\r\nEND\r\n"),
            Some("delete") => now.load(Ordering::SeqCst).then_some("DELETED\r\n"),
            Some("version") => Some("VERSION 1\r\n"),
            _ => Some("STORED\r\n"),
        });
        answers.collect()
    })
}

/// Keeps failed deletes of the rig for these servers in the folder.
fn keeping(rig: &Rig, folder: &Path, holds_gets: bool, servers: &[&Scripted]) -> Spooler {
    let settings = spool::Settings { fsync: Fsync::Never, ..spool::Settings::default() };
    let spool = Spool::open(folder, settings).unwrap();
    let target = |server: &&Scripted| Target {
        name: server.address.to_string(),
        address: server.address.into(),
        settings: patient(),
        peers: Vec::new(),
    };
    let (registry, targets) = (rig.registry.clone(), servers.iter().map(target).collect());
    let spooler = Spooler::start(spool, None, registry, 1, holds_gets, targets, |_| {}).unwrap();
    rig.core.keep_deletes(spooler.deletes().clone()).unwrap();
    spooler
}

/// Asserts that the one kept delete is executed in the end, and that the server gets gets again.
#[track_caller]
fn executed(rig: &mut Rig, spooler: Spooler, folder: &Path) {
    rig.eventually("it is asked again", |rig| rig.get("k") == Ok(Some("old".to_owned())));
    rig.eventually("it is executed", |_| spooler.deletes().counts().replayed == 1);
    drop(spooler);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A server that refuses deletes has the old value, and would return it to every get.
#[test]
fn a_server_with_pending_deletes_gets_no_gets() {
    for holds_gets in [true, false] {
        let folder = std::env::temp_dir().join(format!("held-{}-{holds_gets}", std::process::id()));
        let takes = Arc::new(AtomicBool::new(false));
        let server = old(&takes);
        let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
        let spooler = keeping(&rig, &folder, holds_gets, &[&server]);
        let old = Ok(Some("old".to_owned()));
        assert_eq!(rig.get("k"), old);
        assert_eq!(rig.simple(Command::Delete, "k"), Outcome::NotFound, "it is kept");
        let held = if holds_gets { Err(Failure::TryAgain) } else { old };
        assert_eq!(rig.get("k"), held);
        assert_eq!(rig.store(Command::Set, "other", "v"), Outcome::Stored);
        takes.store(true, Ordering::SeqCst);
        executed(&mut rig, spooler, &folder);
    }
}

/// A reply that waits for only some of the servers leaves no delete of the others undone.
#[test]
fn deletes_that_fail_after_the_reply_are_kept() {
    let routes: [fn(Vec<RouteRef>) -> RouteRef; 2] = [
        |children| Arc::new(AllFastestRoute { children }),
        |children| Arc::new(AllMajorityRoute { children }),
    ];
    for (place, route) in routes.into_iter().enumerate() {
        let folder = std::env::temp_dir().join(format!("late-{}-{place}", std::process::id()));
        let takes = Arc::new(AtomicBool::new(false));
        let slow = Arc::clone(&takes);
        let late = Scripted::new(move |asked| {
            if asked.starts_with("delete") && !slow.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(50));
                return None;
            }
            Some("DELETED\r\n".repeat(asked.lines().count()))
        });
        let good = [(); 2].map(|()| old(&Arc::new(AtomicBool::new(true))));
        let mut rig = Rig::new(patient(), |servers| {
            route([&late, &good[0], &good[1]].map(|server| servers.at(server.address)).to_vec())
        });
        let spooler = keeping(&rig, &folder, false, &[&late]);
        assert_eq!(rig.simple(Command::Delete, "k"), Outcome::Deleted);
        rig.eventually("it is kept", |_| spooler.deletes().counts().pending == 1);
        takes.store(true, Ordering::SeqCst);
        rig.eventually("it is executed", |_| spooler.deletes().counts().replayed == 1);
        drop(spooler);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// The end of the proxy waits only a limited time for servers.
#[test]
fn deletes_that_are_unanswered_at_the_end_are_kept() {
    let folder = std::env::temp_dir().join(format!("ended-{}", std::process::id()));
    let silent = Scripted::new(|_| Some(String::new()));
    let good = old(&Arc::new(AtomicBool::new(true)));
    let mut rig = Rig::new(patient(), |servers| {
        let children = [&good, &silent].map(|server| servers.at(server.address)).to_vec();
        Arc::new(AllFastestRoute { children })
    });
    let spooler = keeping(&rig, &folder, false, &[]);
    assert_eq!(rig.simple(Command::Delete, "k"), Outcome::Deleted);
    drop(rig);
    drop(spooler);
    let spool = Spool::open(&folder, spool::Settings::default()).unwrap();
    let kept: Vec<_> = spool.destinations().collect();
    assert_eq!(kept, [(&*silent.address.to_string(), 1)]);
    drop(spool);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A client that requests it sees a notice of a kept delete before its reply.
#[test]
fn a_kept_delete_of_one_server_among_many_is_reported() {
    let folder = std::env::temp_dir().join(format!("told-{}", std::process::id()));
    let servers = [false, true].map(|takes| old(&Arc::new(AtomicBool::new(takes))));
    let mut rig = Rig::new(patient(), |all| {
        let children = servers.each_ref().map(|server| all.at(server.address)).to_vec();
        Arc::new(AllMajorityRoute { children })
    });
    let spooler = keeping(&rig, &folder, false, &[&servers[0]]);
    let asked = Request { tells_kept: true, ..Request::new(Command::Delete, b"k") };
    // Two of two are the majority if their outcomes are equal; otherwise the most frequent counts.
    assert_eq!(rig.ask(&asked).outcome, Outcome::Failed(Failure::TryAgain));
    drop(spooler);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A delete is kept for a warm server and then the cold one. Until the warm server executes it, its
/// values are not copied.
#[test]
fn a_warm_server_with_pending_deletes_is_not_copied_from() {
    let folder = std::env::temp_dir().join(format!("copied-{}", std::process::id()));
    let takes = Arc::new(AtomicBool::new(false));
    let (warm, cold) = (old(&takes), old(&Arc::new(AtomicBool::new(true))));
    let mut rig = Rig::new(patient(), |servers| {
        let (cold, warm) = (servers.at(cold.address), servers.at(warm.address));
        let default = Arc::clone(&warm);
        let (exptime, hold_off, leases) = (Some(0), 0, true);
        let deletes: RouteRef = Arc::new(WarmUpRoute { warm, cold, exptime, hold_off, leases });
        let policies = vec![(Command::Delete, deletes)];
        Arc::new(Selecting(OperationSelectorRoute { policies, default }))
    });
    let spooler = keeping(&rig, &folder, false, &[&warm, &cold]);
    assert_eq!(rig.get("k"), Ok(Some("old".to_owned())));
    assert_eq!(rig.simple(Command::Delete, "k"), Outcome::Deleted, "the cold server's answer");
    assert_eq!(rig.get("k"), Err(Failure::TryAgain));
    takes.store(true, Ordering::SeqCst);
    executed(&mut rig, spooler, &folder);
}

/// With a spool from a previous run, the first request after the start is refused, and the server
/// does not receive it.
#[test]
fn pending_deletes_are_known_before_the_first_request() {
    let folder = std::env::temp_dir().join(format!("held-start-{}", std::process::id()));
    let asked = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&asked);
    // It refuses deletes, and has the old value.
    let server = Scripted::new(move |lines| {
        let answers = lines.lines().map(|line| match line.split(' ').next() {
            Some("get") => {
                heard.store(true, Ordering::SeqCst);
                "VALUE k 0 3\r\nold\r\nEND\r\n"
            }
            Some("delete") => "SERVER_ERROR not now\r\n",
            _ => "VERSION 1\r\n",
        });
        Some(answers.collect())
    });
    for round in 0..20 {
        let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
        let _spooler = keeping(&rig, &folder, true, &[&server]);
        if round == 0 {
            assert_eq!(rig.simple(Command::Delete, "k"), Outcome::NotFound, "it is kept");
        }
        assert_eq!(rig.get("k"), Err(Failure::TryAgain), "round {round}");
    }
    assert!(!asked.load(Ordering::SeqCst));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The spooler of a program that has these records for a server, and its log.
fn spooler_with(
    folder: &Path,
    server: &Address,
    protocol: Protocol,
    records: &[&str],
) -> (Spooler, mpsc::Receiver<String>) {
    spooler_as(folder, server, Settings { protocol, ..patient() }, records)
}

/// The same, with these settings of the server.
fn spooler_as(
    folder: &Path,
    server: &Address,
    server_settings: Settings,
    records: &[&str],
) -> (Spooler, mpsc::Receiver<String>) {
    let settings = spool::Settings { fsync: Fsync::Never, ..spool::Settings::default() };
    let mut spool = Spool::open(folder, settings).unwrap();
    for record in records {
        spool.append("server", format!("pool\n{record}\r\n").as_bytes(), now_secs()).unwrap();
    }
    assert!(spool.commit(Instant::now()).is_empty());
    let target = Target {
        name: "server".to_owned(),
        address: server.clone(),
        settings: server_settings,
        peers: Vec::new(),
    };
    let (tell, told) = mpsc::channel();
    let log = move |line: &str| drop(tell.send(line.to_owned()));
    let registry = Registry::default();
    (Spooler::start(spool, None, registry, 1, true, vec![target], log).unwrap(), told)
}

fn now_secs() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()
}

/// Closes the connection after unknown commands, as twemproxy does. It accepts gets, and deletes of
/// keys in a line; once the flag is set, also meta commands and flushes.
fn picky(takes_all: &Arc<AtomicBool>, heard: &Arc<Mutex<String>>) -> Scripted {
    let (takes_all, heard) = (Arc::clone(takes_all), Arc::clone(heard));
    Scripted::new(move |asked| {
        heard.lock().unwrap().push_str(asked);
        let answers = asked.split_terminator("\r\n").map(|line| match line.split(' ').next() {
            Some("get") => Some("END\r\n"),
            Some("delete") => Some("DELETED\r\n"),
            _ if !takes_all.load(Ordering::SeqCst) => None,
            Some("mn") => Some("MN leases\r\n"),
            Some("ms") => Some("CLIENT_ERROR invalid mode\r\n"),
            Some("md") => Some("HD\r\n"),
            Some("version") => Some("VERSION 1.6.45\r\n"),
            Some("flush_all") => Some("OK\r\n"),
            _ => Some(""),
        });
        answers.collect()
    })
}

/// A request that was not sent has not been refused.
#[test]
fn a_local_refusal_keeps_the_delete() {
    // The second key is `a b`.
    for (round, record) in ["flush_all", "md YSBi b"].into_iter().enumerate() {
        let folder = std::env::temp_dir().join(format!("own-{}-{round}", std::process::id()));
        let (takes_all, heard) = (Arc::default(), Arc::default());
        let server = picky(&takes_all, &heard);
        let at = server.address.into();
        let (spooler, told) = spooler_with(&folder, &at, Protocol::Text, &[record, "delete k"]);
        let counts = || spooler.deletes().counts();
        let mut line = String::new();
        eventually("it is refused", || {
            line = told.try_recv().unwrap_or_default();
            !line.is_empty() || counts().refused > 0
        });
        assert!(
            line.starts_with("warning: the spool for server: a delete waits: the server "),
            "{line}"
        );
        assert_eq!((counts().pending, counts().refused), (2, 0), "{record}");
        drop(spooler);
        takes_all.store(true, Ordering::SeqCst);
        let (spooler, _told) = spooler_with(&folder, &at, Protocol::Text, &[]);
        eventually("both are executed", || spooler.deletes().counts().replayed == 2);
        assert!(heard.lock().unwrap().contains(record));
        drop(spooler);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A missing login is not a refusal of the delete: once the sender has it, the delete is executed.
/// A missing right is one.
#[test]
fn a_delete_waits_for_the_login_and_is_dropped_without_the_right() {
    let requests =
        [(Protocol::Text, "delete k"), (Protocol::Text, "md k I"), (Protocol::Binary, "delete k")];
    for (round, (protocol, record)) in requests.into_iter().enumerate() {
        let folder = std::env::temp_dir().join(format!("right-{}-{round}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (users, rights) = (folder.join("users"), folder.join("rights"));
        std::fs::write(&users, "reader:r\nwriter:w\n").unwrap();
        std::fs::write(&rights, "reader read *\nwriter readwrite *\n").unwrap();
        let extended = format!("rights={}", rights.display());
        let users = users.to_str().unwrap();
        let launch = Launch::new(Kind::Holdall).args(&["-o", &extended]);
        let server = match protocol {
            Protocol::Text => launch.args(&["-Y", users]),
            Protocol::Binary => launch.args(&["-S"]).env("MEMCACHED_SASL_PWDB", users),
        };
        let server = server.start();
        let settings = |login| Settings { protocol, login, ..patient() };
        let (at, spool) = (server.addr().into(), folder.join("spool"));
        let (spooler, told) = spooler_as(&spool, &at, settings(None), &[record]);
        let line = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(line, "warning: the spool for server: a delete waits: unauthenticated");
        let counts = spooler.deletes().counts();
        assert_eq!((counts.pending, counts.refused), (1, 0), "{record}");
        drop(spooler);
        assert!(told.try_iter().next().is_none(), "once");
        let writer = settings(Some(Login::new("writer", "w")));
        let (spooler, _told) = spooler_as(&spool, &at, writer, &[]);
        eventually("it is executed", || spooler.deletes().counts().replayed == 1);
        drop(spooler);
        let reader = settings(Some(Login::new("reader", "r")));
        let (spooler, told) = spooler_as(&spool, &at, reader, &[record]);
        eventually("it is refused", || spooler.deletes().counts().refused == 1);
        drop(spooler);
        let wanted = "warning: the spool for server: the server refuses deletes, which are \
                      dropped and counted as refused: permission denied";
        assert_eq!(told.iter().collect::<Vec<_>>(), [wanted]);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// A refusal of the delete itself is final. The value may stay, so the log says it.
#[test]
fn a_refused_delete_is_dropped_with_a_log_line() {
    let folder = std::env::temp_dir().join(format!("refused-{}", std::process::id()));
    let server = Scripted::new(|asked| {
        let answers = asked.lines().map(|line| match line.split(' ').next() {
            Some("delete") => "CLIENT_ERROR bad command line format\r\n",
            _ => "VERSION 1\r\n",
        });
        Some(answers.collect())
    });
    let at = server.address.into();
    let (spooler, told) = spooler_with(&folder, &at, Protocol::Text, &["delete k", "delete l"]);
    eventually("they are refused", || spooler.deletes().counts().refused == 2);
    assert_eq!(spooler.deletes().counts().pending, 0);
    drop(spooler);
    let lines: Vec<_> = told.iter().collect();
    let wanted = "warning: the spool for server: the server refuses deletes, which are dropped \
                  and counted as refused: bad command line format";
    assert_eq!(lines, [wanted]);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A delete that its server cannot be sent in its original form is sent as the plain delete of its
/// key: the acknowledgement promised only that the value goes.
#[test]
fn an_unsupported_delete_is_replayed_as_a_plain_delete() {
    let folder = std::env::temp_dir().join(format!("plain-{}", std::process::id()));
    let heard = Arc::default();
    let server = picky(&Arc::default(), &heard);
    // The second key is `b`, and no server accepts the flag of the third.
    let records = ["md a I T30", "md Yg== b", "md c W", "delete d"];
    let (spooler, told) = spooler_with(&folder, &server.address.into(), Protocol::Text, &records);
    eventually("all are done", || spooler.deletes().counts().pending == 0);
    let counts = spooler.deletes().counts();
    assert_eq!((counts.replayed, counts.refused), (4, 0), "{:?}", told.try_recv());
    let heard = heard.lock().unwrap();
    for key in ["a", "b", "c", "d"] {
        assert!(heard.contains(&format!("delete {key}\r\n")), "{heard}");
    }
    drop(spooler);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A delete whose hold-off the server refuses is executed: it is not kept, and a kept one is done.
#[test]
fn a_delete_without_its_hold_off_is_executed() {
    let folder = std::env::temp_dir().join(format!("unheld-{}", std::process::id()));
    let server = Scripted::new(|asked| {
        let answers = asked.split_terminator("\r\n").map(|line| match line.split(' ').next() {
            Some("mn") => "MN leases\r\n",
            Some("ms") => "CLIENT_ERROR invalid mode\r\n",
            Some("md") => "SERVER_ERROR deleted, but there is no room for the hold-off\r\n",
            Some("get") => "END\r\n",
            Some("version") => "VERSION 1.6.45\r\n",
            _ => "",
        });
        Some(answers.collect())
    });
    let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
    let spooler = keeping(&rig, &folder, true, &[&server]);
    let held = Request { exptime: 3600, ..Request::new(Command::Delete, b"k") };
    let meta = Request { words: b"H3600", ..Request::new(Command::MetaDelete, b"k") };
    for request in [held, meta] {
        let reply = rig.ask(&request);
        let text = "deleted, but there is no room for the hold-off";
        assert_eq!((reply.outcome, &*reply.value), (Outcome::OnlyDeleted, text.as_bytes()));
    }
    assert_eq!(rig.get("k"), Ok(None), "gets are not held");
    assert_eq!(spooler.deletes().counts().kept, 0);
    drop(spooler);
    std::fs::remove_dir_all(&folder).unwrap();
    let records = ["md a H3600", "md b"];
    let (spooler, _told) = spooler_with(&folder, &server.address.into(), Protocol::Text, &records);
    eventually("both are executed", || spooler.deletes().counts().replayed == 2);
    assert_eq!(spooler.deletes().counts().pending, 0);
    drop(spooler);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_delete_without_a_binary_form_is_replayed_as_a_plain_one() {
    let folder = std::env::temp_dir().join(format!("packet-{}", std::process::id()));
    let server = Server::holdall(&[]);
    let at = server.addr().into();
    let mut rig = Rig::new(patient(), |servers| servers.at(server.addr()));
    assert_eq!(rig.store(Command::Set, "k", "old"), Outcome::Stored);
    let (spooler, _told) = spooler_with(&folder, &at, Protocol::Binary, &["md k I T30"]);
    eventually("it is done", || spooler.deletes().counts().pending == 0);
    assert_eq!(spooler.deletes().counts().refused, 0);
    assert_eq!(rig.get("k"), Ok(None));
    drop(spooler);
    std::fs::remove_dir_all(folder).unwrap();
}

/// A forwarder whose server is down closes after every command, which is not a refusal.
#[test]
fn a_meta_delete_is_kept_if_the_server_closes() {
    let folder = std::env::temp_dir().join(format!("hangs-up-{}", std::process::id()));
    let is_back = Arc::new(AtomicBool::new(false));
    let now = Arc::clone(&is_back);
    let server = Scripted::new(move |asked| {
        let answers = asked.split_terminator("\r\n").map(|line| match line.split(' ').next() {
            _ if !now.load(Ordering::SeqCst) => None,
            Some("mn") => Some("MN\r\n"),
            Some("ms") => Some("CLIENT_ERROR invalid mode\r\n"),
            Some("md") => Some("HD\r\n"),
            Some("get") => Some("END\r\n"),
            Some("version") => Some("VERSION 1.6.45\r\n"),
            _ => Some(""),
        });
        answers.collect()
    });
    let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
    let spooler = keeping(&rig, &folder, true, &[&server]);
    let missing = Outcome::Meta(MetaCode::Nf);
    let request = Request { words: b"O7 k", ..Request::new(Command::MetaDelete, b"k") };
    for _ in 0..3 {
        let reply = rig.ask(&request);
        assert_eq!((reply.outcome, &*reply.words), (missing, &b" O7 kk"[..]));
    }
    assert_eq!(spooler.deletes().counts().pending, 3);
    is_back.store(true, Ordering::SeqCst);
    eventually("all are executed", || spooler.deletes().counts().replayed == 3);
    drop(spooler);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The unique may be of another server's item, and is old when the delete is executed.
#[test]
fn a_delete_is_kept_without_its_cas_unique() {
    let folder = std::env::temp_dir().join(format!("unique-{}", std::process::id()));
    let is_back = Arc::new(AtomicBool::new(false));
    let executed = Arc::new(Mutex::new(Vec::new()));
    let (now, heard) = (Arc::clone(&is_back), Arc::clone(&executed));
    let server = Scripted::new(move |asked| {
        let answers = asked.split_terminator("\r\n").map(|line| match line.split(' ').next() {
            _ if !now.load(Ordering::SeqCst) => None,
            Some("mn") => Some("MN\r\n"),
            Some("ms") => Some("CLIENT_ERROR invalid mode\r\n"),
            Some("md" | "delete") => {
                heard.lock().unwrap().push(line.to_owned());
                Some(if line.starts_with("md") { "HD\r\n" } else { "DELETED\r\n" })
            }
            Some("get") => Some("END\r\n"),
            Some("version") => Some("VERSION 1.6.45\r\n"),
            _ => Some(""),
        });
        answers.collect()
    });
    let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
    let spooler = keeping(&rig, &folder, true, &[&server]);
    let request = Request { words: b"C7", ..Request::new(Command::MetaDelete, b"k") };
    assert_eq!(rig.ask(&request).outcome, Outcome::Meta(MetaCode::Nf), "it is kept");
    is_back.store(true, Ordering::SeqCst);
    eventually("it is executed", || spooler.deletes().counts().replayed == 1);
    let executed = executed.lock().unwrap().clone();
    assert!(
        !executed.is_empty() && executed.iter().all(|line| !line.contains("C7")),
        "{executed:?}"
    );
    drop(spooler);
    std::fs::remove_dir_all(folder).unwrap();
}

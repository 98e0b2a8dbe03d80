//! Replies observed from memcached 1.6.45, for every split of the requests.

use engine::Counter;

use super::Worker;
use super::tests::{Client, check, packet, worker};

/// 1.6.45's answers to `cas` without its unique, and to data after lines of unknown length. With
/// `-o strict` nothing follows them.
#[test]
fn data_of_a_refused_line_is_not_executed() {
    const BAD: &str = "CLIENT_ERROR bad command line format\r\n";
    let served: [(&str, String); 6] = [
        ("cas k 0 0 2\r\nmn\r\nmn\r\n", format!("{BAD}MN\r\n")),
        ("cas k 0 0 2 noreply\r\nmn\r\nmn\r\n", "MN\r\n".to_owned()),
        ("cas k x 0 2 1\r\nmn\r\nmn\r\n", format!("{BAD}MN\r\n")),
        ("set k 0 0\r\nmn\r\n", format!("{BAD}MN\r\n")),
        ("ms k\r\nmn\r\n", format!("{BAD}MN\r\n")),
        ("set k 0 0 1\r\n12\r\nmn\r\n", format!("CLIENT_ERROR bad data chunk\r\n{BAD}MN\r\n")),
    ];
    for (sent, want) in &served {
        check(&[], sent.as_bytes(), want.as_bytes());
    }
    for (sent, want) in &served[..3] {
        check(&["-o", "strict"], sent.as_bytes(), want.as_bytes());
    }
    let ended =
        [("set k 0 0\r\nmn\r\n", BAD), ("ms k\r\nmn\r\n", BAD), ("set k 0 0 x\r\nmn\r\n", BAD)];
    let chunk = "CLIENT_ERROR bad data chunk\r\n";
    let ended = ended
        .into_iter()
        .chain([("set k 0 0 1\r\n12\r\nmn\r\n", chunk), ("ms k 1\r\n12\r\nmn\r\n", chunk)]);
    for (sent, want) in ended {
        check(&["-o", "strict"], sent.as_bytes(), want.as_bytes());
    }
}

/// As in 1.6.45.
#[test]
fn meta_replies_without_an_item_have_the_requested_flags() {
    check(
        &[],
        b"set q 0 0 2\r\nab\r\nms q 3 ME s k O7 c t f\r\nabc\r\nms q 3 C99999 s k c\r\nabc\r\n\
          ms no 3 C5 c s\r\nabc\r\nms no 3 MA s\r\nabc\r\nms q 3 MA s\r\nabc\r\n",
        b"STORED\r\nNS s3 kq O7 c0\r\nEX s3 kq c0\r\nNF c0 s3\r\nNS s3\r\nHD s5\r\n",
    );
    check(
        &[],
        b"ma n N0 q\r\nma n N0 q v\r\nma n v\r\nms e 1 E0\r\nx\r\nms e 1 C0\r\ny\r\nmn\r\n",
        b"VA 1\r\n2\r\nHD\r\nEX\r\nMN\r\n",
    );
}

/// A value that fits only without its key is too large, also if there is nothing to append it to.
#[test]
fn too_large_appends_are_refused_without_an_item() {
    let data = "x".repeat(1024);
    let sent = format!("append no 0 0 1024\r\n{data}\r\nprepend no 0 0 9\r\n123456789\r\n");
    let want = b"SERVER_ERROR object too large for cache\r\nNOT_STORED\r\n";
    check(&["-I", "1k"], sent.as_bytes(), want);
    let mut worker = worker(&["-I", "1k"]);
    let mut client = Client::new(&mut worker);
    let append = packet(0x0e, b"", b"no", data.as_bytes(), 0, 0);
    assert_eq!(client.send(&mut worker, &append)[6..8], [0, 3]);
}

/// As 1.6.45 answers.
#[test]
fn admin_replies_match_memcached() {
    check(
        &[],
        b"lru_crawler metadump all\r\nlru_crawler mgdump all\r\nstats sizes_enable\r\n\
          stats sizes_disable\r\nstats cachedump 0 0\r\nstats cachedump 999 0\r\n\
          slabs automove window\r\nslabs automove window x\r\nslabs automove window 0\r\n\
          slabs automove window 5\r\nrefresh_certs\r\n",
        b"OK\r\nEND\r\nOK\r\nEN\r\nERROR\r\nERROR\r\nEND\r\nCLIENT_ERROR Illegal slab id\r\n\
          CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n\
          CLIENT_ERROR automove window too low or too high\r\nOK\r\nError TLS not enabled\r\n",
    );
}

/// The dump is one statistic, as memcached sends it.
#[test]
fn binary_statistics_count_by_prefix() {
    let mut worker = worker(&["-D", ":"]);
    let (mut text, mut client) = (Client::new(&mut worker), Client::new(&mut worker));
    let mut stat =
        |worker: &mut Worker, key: &[u8]| client.send(worker, &packet(0x10, b"", key, b"", 0, 0));
    assert_eq!(stat(&mut worker, b"detail on")[6..12], [0, 0, 0, 0, 0, 0]);
    text.send(&mut worker, b"set foo:1 0 0 1\r\n1\r\nget foo:1\r\n");
    let dump = stat(&mut worker, b"detail dump");
    let want = b"detailedPREFIX foo get 1 hit 1 set 1 del 0\r\nEND\r\n";
    assert_eq!((&dump[24..24 + want.len()], dump.len()), (&want[..], 24 + want.len() + 24));
    text.send(
        &mut worker,
        b"ms bar:1 1\r\n1\r\nmg bar:1 v\r\nmg bar:2 v\r\nmd bar:1\r\nmd bar:1\r\n",
    );
    let mut binary = Client::new(&mut worker);
    for (opcode, extras) in [(0x1c, &[0; 4][..]), (0x04, b"")] {
        binary.send(&mut worker, &packet(opcode, extras, b"foo:1", b"", 0, 0));
    }
    let dump = stat(&mut worker, b"detail dump");
    let want = b"PREFIX bar get 2 hit 1 set 1 del 2\r\nPREFIX foo get 2 hit 2 set 1 del 1\r\n";
    assert!(dump.windows(want.len()).any(|window| window == want), "{}", dump.escape_ascii());
    for other in [&b"detail"[..], b"detail x", b"detailx"] {
        assert_eq!(stat(&mut worker, other)[6..8], [0, 1], "{}", other.escape_ascii());
    }
}

/// Stores and deletes appear as in memcached: 0 for no lifetime, the lifetime and size of the item
/// that an append leaves, those of a refused value, and no deletion by an invalidation.
#[test]
fn watcher_lines_match_memcached() {
    use net::Service;
    let mut worker = worker(&[]);
    let (mut watcher, mut client) = (Client::new(&mut worker), Client::new(&mut worker));
    client.session.peer.fd = 77;
    watcher.send(&mut worker, b"watch mutations deletions\r\n");
    worker.begin_turn(std::time::Instant::now());
    let sent = b"set w 5 100 3\r\nabc\r\nadd w 0 0 1\r\n1\r\nappend w 0 0 1\r\n1\r\n\
        append w 0 7 1\r\n1\r\ngat 50 w\r\nappend w 0 0 1\r\n1\r\nappend no 0 9 1\r\n1\r\n\
        md w I E5 T30\r\nms w 1 C1 I E9 T90\r\nx\r\nmd w x I T40\r\nmd w x T60\r\nmd w x\r\nmd no x\r\n\
        md w C1 x\r\ndelete w\r\ndelete w\r\n";
    client.send(&mut worker, sent);
    let seen = String::from_utf8(watcher.send(&mut worker, b"")).unwrap();
    let seen: Vec<_> = seen.lines().map(|line| line.split(" type=").nth(1).unwrap()).collect();
    let want = [
        "item_store key=w status=stored cmd=set ttl=100 clsid=1 cfd=77 size=3",
        "item_store key=w status=not_stored cmd=add ttl=0 clsid=1 cfd=77 size=1",
        "item_store key=w status=stored cmd=append ttl=100 clsid=1 cfd=77 size=4",
        "item_store key=w status=stored cmd=append ttl=100 clsid=1 cfd=77 size=5",
        "item_store key=w status=stored cmd=append ttl=50 clsid=1 cfd=77 size=6",
        "item_store key=no status=not_stored cmd=append ttl=9 clsid=0 cfd=77 size=1",
        "item_store key=w status=stored cmd=cas ttl=30 clsid=1 cfd=77 size=1",
        "item_store key=w status=stored cmd=set ttl=40 clsid=1 cfd=77 size=0",
        "item_store key=w status=stored cmd=set ttl=60 clsid=1 cfd=77 size=0",
        "deleted key=w cmd=md clsid=1 size=0",
        "item_store key=w status=stored cmd=set ttl=0 clsid=1 cfd=77 size=0",
        "deleted key=w cmd=md clsid=1 size=0",
        "deleted key=w cmd=delete clsid=1 size=0",
    ];
    assert_eq!(seen, want);
}

/// As in 1.6.18, the request that finds a dead item counts it, once, unless it is a store; and of
/// the meta commands only `me` is counted as one.
#[test]
fn each_dead_item_is_counted_once() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    let dead: [(&[u8], Counter); 2] = [
        (b"set k 0 -1 1\r\nx\r\n", Counter::GetExpired),
        (b"set k 0 0 1\r\nx\r\nflush_all\r\n", Counter::GetFlushed),
    ];
    let requests = [
        ("get k", 1),
        ("gets k", 1),
        ("mg k v", 1),
        ("mg k c", 1),
        ("mg k N5", 1),
        ("me k", 1),
        ("gat 5 k", 1),
        ("touch k 5", 1),
        ("incr k 1", 1),
        ("ma k", 1),
        ("delete k", 1),
        ("md k", 1),
        ("lease-get k", 1),
        ("set k 0 0 1\r\ny", 0),
        ("replace k 0 0 1\r\ny", 0),
        ("append k 0 0 1\r\ny", 0),
        ("ms k 1\r\ny", 0),
    ];
    for (store, counter) in dead {
        for (request, want) in requests {
            client.send(&mut worker, store);
            let count =
                |worker: &Worker, counter| worker.context.shared.engine.totals().get(counter);
            let before = [counter, Counter::CmdMeta].map(|counter| count(&worker, counter));
            client.send(&mut worker, format!("{request}\r\n{request}\r\n").as_bytes());
            let after = [counter, Counter::CmdMeta].map(|counter| count(&worker, counter));
            assert_eq!(after[0] - before[0], want, "{counter:?} {request}");
            let debugs = if request == "me k" { 2 } else { 0 };
            assert_eq!(after[1] - before[1], debugs, "{request}");
            client.send(&mut worker, b"delete k\r\n");
        }
    }
}

//! Leases, stale values, the hold-off of deletes, and prefixes: features that memcached lacks.

use std::time::{Duration, Instant};

use super::{Row, check, row};
use testkit::{Server, Wire};

/// The first reader must fill the key, and later ones wait.
const LEASES: &[Row] = &[
    row(
        "lease-get <k>\r\nlease-get <k>\r\nget <k>\r\n",
        "LVALUE <k> <n> 0 0\r\n\r\nEND\r\nLVALUE <k> 1 0 0\r\n\r\nEND\r\nEND\r\n",
    ),
    row("set <k> 7 0 2\r\nhi\r\nlease-get <k>\r\n", "STORED\r\nVALUE <k> 7 2\r\nhi\r\nEND\r\n"),
    row(
        "set <k> 7 0 2\r\nhi\r\nlease-get <k> <k>x <k>\r\n",
        "STORED\r\nVALUE <k> 7 2\r\nhi\r\nLVALUE <k>x <n> 0 0\r\n\r\nVALUE <k> 7 2\r\nhi\r\nEND\r\n",
    ),
    // Forged tokens, and the token that means "wait".
    row(
        "lease-get <k>\r\nlease-set <k> 12345 0 0 1\r\nx\r\nlease-set <k> 1 0 0 1\r\nx\r\n\
         lease-set <k> 0 0 0 1\r\nx\r\nlease-set <k> 18446744073709551615 0 0 1\r\nx\r\nget <k>\r\n",
        "LVALUE <k> <n> 0 0\r\n\r\nEND\r\nNOT_STORED\r\nNOT_STORED\r\nNOT_STORED\r\nNOT_STORED\r\nEND\r\n",
    ),
    row("lease-set <k> 5 0 0 1 noreply\r\nx\r\nget <k>\r\n", "END\r\n"),
    row(
        "lease-set <k> x 0 0 1\r\nx\r\nlease-set <k> 5 0 0\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
    ),
    row("lease-get\r\n", "CLIENT_ERROR bad command line format\r\n"),
    row("mg <k> v G\r\nmg <k> v G\r\n", "VA 0 W G<n>\r\n\r\nVA 0 Z\r\n\r\n"),
    row("mg <k> G k Oab\r\nmg <k> G q\r\nmg <k>\r\n", "HD k<k> Oab W G<n>\r\nHD Z\r\nEN\r\n"),
    row("ms <k> 2\r\nhi\r\nmg <k> v G\r\n", "HD\r\nVA 2\r\nhi\r\n"),
    row(
        "mg <k> G\r\nms <k> 2 G77\r\nhi\r\nms <k> 2 G\r\nhi\r\nmg <k> v\r\n",
        "HD W G<n>\r\nNS\r\nNS\r\nEN\r\n",
    ),
    row("ms <k> 2 Gx\r\nhi\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
];

const STALE: &[Row] = &[
    row(
        "lease-get <k>x\r\nset <k> 7 0 2\r\nhi\r\ndelete <k>\r\nget <k>\r\nlease-get <k>\r\nlease-get <k>\r\n",
        "LVALUE <k>x <n> 0 0\r\n\r\nEND\r\nSTORED\r\nDELETED\r\nEND\r\n\
         LVALUE <k> <n> 7 2\r\nhi\r\nEND\r\nLVALUE <k> 1 7 2\r\nhi\r\nEND\r\n",
    ),
    row(
        "ms <k> 2 F7\r\nhi\r\nmd <k>\r\nmg <k> v\r\nmg <k> v f A\r\nmg <k> v G\r\nmg <k> v G\r\n",
        "HD\r\nHD\r\nEN\r\nVA 2 f7 X\r\nhi\r\nVA 2 X W G<n>\r\nhi\r\nVA 2 Z X\r\nhi\r\n",
    ),
    // It shows no cas unique, by which clients tell a hit from a lease.
    row(
        "set <k> 7 0 2\r\nhi\r\ngets <k>\r\ndelete <k>\r\nmg <k> c A\r\nmg <k> v f c G R5\r\n\
         mg <k> v f c G R5\r\n",
        "STORED\r\nVALUE <k> 7 2 <n>\r\nhi\r\nEND\r\nDELETED\r\nHD c0 X\r\n\
         VA 2 f7 c0 X W G<n>\r\nhi\r\nVA 2 f7 c0 Z X\r\nhi\r\n",
    ),
    row(
        "ms <k> 3 c\r\nold\r\nmd <k> I\r\nmd <k>\r\nmg <k> v c G R5\r\nmg <k> v c G R5\r\n",
        "HD c<n>\r\nHD\r\nHD\r\nVA 3 c0 X W G<n>\r\nold\r\nVA 3 c0 Z X\r\nold\r\n",
    ),
    // An invalidated item is there, and its cas unique is the one that a client has to send.
    row(
        "ms <k> 3 E7\r\nold\r\nmd <k> I E9\r\nmg <k> v c G R5\r\nmg <k> v c G R5\r\n\
         ms <k> 3 C9\r\nnew\r\nmg <k> v G R5\r\n",
        "HD\r\nHD\r\nVA 3 c9 X W\r\nold\r\nVA 3 c9 Z X\r\nold\r\nHD\r\nVA 3\r\nnew\r\n",
    ),
    row("mg <k> A v\r\nmg <k> A q\r\n", "EN\r\n"),
    // For every other command the key is gone.
    row(
        "set <k> 0 0 1\r\n5\r\ndelete <k>\r\nincr <k> 1\r\nappend <k> 0 0 1\r\nx\r\nreplace <k> 0 0 1\r\nx\r\n\
         touch <k> 0\r\ndelete <k>\r\nmg <k> A v\r\nadd <k> 0 0 1\r\n6\r\nmg <k> A v\r\n",
        "STORED\r\nDELETED\r\nNOT_FOUND\r\nNOT_STORED\r\nNOT_STORED\r\nNOT_FOUND\r\nNOT_FOUND\r\n\
         VA 1 X\r\n5\r\nSTORED\r\nVA 1\r\n6\r\n",
    ),
    // A fill removes the stale value; a flushed value is gone, not stale.
    row(
        "set <k> 0 0 1\r\n5\r\ndelete <k>\r\nset <k> 0 -1 1\r\n6\r\nmg <k> A v\r\n",
        "STORED\r\nDELETED\r\nSTORED\r\nEN\r\n",
    ),
    row(
        "set <k> 0 0 1\r\n5\r\ndelete <k>\r\nflush_prefix <k>\r\nmg <k> A v\r\n",
        "STORED\r\nDELETED\r\nOK\r\nEN\r\n",
    ),
];

/// The number in `delete k N` is a hold-off if the operator enables it.
const HOLD_OFF: &[Row] = &[
    row(
        "delete <k> 100\r\nadd <k> 0 0 1\r\nx\r\nms <k> 1 ME\r\nx\r\nset <k> 0 0 1\r\ny\r\nget <k>\r\n",
        "NOT_FOUND\r\nNOT_STORED\r\nNS\r\nSTORED\r\nVALUE <k> 0 1\r\ny\r\nEND\r\n",
    ),
    row(
        "set <k> 0 0 1\r\nx\r\nmd <k> H100\r\nadd <k> 0 0 1\r\nx\r\nget <k>\r\n",
        "STORED\r\nHD\r\nNOT_STORED\r\nEND\r\n",
    ),
    row(
        "delete <k> 0\r\ndelete <k>\r\nadd <k> 0 0 1\r\nx\r\n",
        "NOT_FOUND\r\nNOT_FOUND\r\nSTORED\r\n",
    ),
    row(
        "delete <k> 3601\r\nmd <k> H3601\r\ndelete <k> -1\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad token in command line format\r\n\
         CLIENT_ERROR bad command line format\r\n",
    ),
];

/// Otherwise the number is ignored, as in memcached, and only the meta flag sets a hold-off.
const NO_HOLD_OFF: &[Row] = &[
    row(
        "set <k> 0 0 1\r\nx\r\ndelete <k> 100\r\nadd <k> 0 0 1\r\nx\r\ndelete <k> 4294967295 noreply\r\nget <k>\r\n",
        "STORED\r\nDELETED\r\nSTORED\r\nEND\r\n",
    ),
    row(
        "set <k> 0 0 1\r\nx\r\nmd <k> H100\r\nadd <k> 0 0 1\r\nx\r\n",
        "STORED\r\nHD\r\nNOT_STORED\r\n",
    ),
];

const PREFIXES: &[Row] = &[
    row(
        "set <k>:a 0 0 1\r\nx\r\nset <k>:b 0 0 1\r\nx\r\nset <k> 0 0 1\r\nx\r\nflush_prefix <k>:\r\nget <k>:a <k>:b <k>\r\n\
         set <k>:a 0 0 1\r\ny\r\nget <k>:a <k>:b\r\n",
        "STORED\r\nSTORED\r\nSTORED\r\nOK\r\nVALUE <k> 0 1\r\nx\r\nEND\r\nSTORED\r\nVALUE <k>:a 0 1\r\ny\r\nEND\r\n",
    ),
    row(
        "ms <k>:a 1\r\nx\r\nmd <k>: U k\r\nmd <k>: U q\r\nmg <k>:a v\r\nflush_prefix <k>: noreply\r\n",
        "HD\r\nHD k<k>:\r\nEN\r\n",
    ),
    // A condition of a delete never removes all of a prefix.
    row(
        "ms <k>:a 1\r\nx\r\nmd <k>: U C5\r\nmd <k>: U I\r\nmd <k>: H5 U\r\nmg <k>:a v\r\n",
        "HD\r\nCLIENT_ERROR invalid flag\r\nCLIENT_ERROR invalid flag\r\n\
         CLIENT_ERROR invalid flag\r\nVA 1\r\nx\r\n",
    ),
    row(
        "flush_prefix\r\nflush_prefix a b\r\n",
        "CLIENT_ERROR bad command line format\r\nCLIENT_ERROR bad command line format\r\n",
    ),
];

#[test]
fn leases() {
    check(&Server::under_test(&[]), LEASES);
}

#[test]
fn stale_values() {
    check(&Server::under_test(&[]), STALE);
}

#[test]
fn stale_values_off() {
    let server = Server::under_test(&["-o", "stale_seconds=0"]);
    let mut wire = server.connect();
    token(&mut wire, "other");
    wire.expect(b"set k 0 0 1\r\nx\r\ndelete k\r\nmg k v A\r\n", b"STORED\r\nDELETED\r\nEN\r\n");
}

#[test]
fn hold_off() {
    check(&Server::under_test(&["-o", "delete_hold_off"]), HOLD_OFF);
    check(&Server::under_test(&[]), NO_HOLD_OFF);
}

#[test]
fn prefixes() {
    check(&Server::under_test(&[]), PREFIXES);
}

#[test]
fn flush_prefix_is_refused_if_flush_all_is_disabled() {
    let server = Server::under_test(&["-F"]);
    let refused = b"CLIENT_ERROR flush_all not allowed\r\n";
    let mut wire = server.connect();
    wire.expect(
        b"set a:1 0 0 1\r\nx\r\nflush_prefix a:\r\n",
        &[b"STORED\r\n", &refused[..]].concat(),
    );
    wire.expect(
        b"md a: U\r\nget a:1\r\n",
        &[&refused[..], b"VALUE a:1 0 1\r\nx\r\nEND\r\n"].concat(),
    );
}

/// The token in the reply to a lease-get of an absent key.
fn token(wire: &mut Wire, key: &str) -> u64 {
    wire.send(format!("lease-get {key}\r\n").as_bytes());
    let line = wire.line();
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!(words[..2], ["LVALUE", key], "{line}");
    wire.read_exact(words[4].parse::<usize>().unwrap() + 2);
    assert_eq!(wire.line(), "END");
    words[2].parse().unwrap()
}

fn lease_set(wire: &mut Wire, key: &str, token: u64) -> String {
    wire.send(format!("lease-set {key} {token} 0 0 1\r\nv\r\n").as_bytes());
    wire.line()
}

/// Whatever happens to the key between get and set, the value read before is refused.
#[test]
fn a_token_is_valid_once_and_for_an_unchanged_key() {
    let server = Server::under_test(&["-o", "lease_interval=0"]);
    let mut wire = server.connect();
    let given = token(&mut wire, "good");
    assert_eq!(lease_set(&mut wire, "other", given), "NOT_STORED", "another key's");
    assert_eq!(lease_set(&mut wire, "good", given), "STORED");
    assert_eq!(lease_set(&mut wire, "good", given), "NOT_STORED", "a second time");
    wire.expect(b"delete good\r\n", b"DELETED\r\n");
    assert_eq!(lease_set(&mut wire, "good", given), "NOT_STORED", "used, and then a delete");
    let between: &[(&str, &str)] = &[
        ("delete <k>\r\n", "NOT_FOUND"),
        ("md <k> q\r\nmn\r\n", "NF\r\nMN"),
        ("set <k> 0 0 1\r\nx\r\ndelete <k>\r\n", "STORED\r\nDELETED"),
        ("set <k> 0 -1 1\r\nx\r\n", "STORED"),
        ("add <k> 0 -1 1\r\nx\r\n", "STORED"),
        ("ma <k> N-1\r\n", "HD"),
        ("mg <k> N-1\r\n", "HD W"),
        ("set <k> 0 0 1\r\nx\r\n", "STORED"),
        ("flush_all\r\n", "OK"),
        ("flush_prefix <k>\r\n", "OK"),
        ("md <k> H1\r\n", "NF"),
    ];
    for (number, (commands, answers)) in between.iter().enumerate() {
        let key = format!("between{number}");
        let given = token(&mut wire, &key);
        let answers = format!("{answers}\r\n").replace("<k>", &key);
        wire.expect(commands.replace("<k>", &key).as_bytes(), answers.as_bytes());
        assert_eq!(lease_set(&mut wire, &key, given), "NOT_STORED", "{commands}");
    }
    // Commands that do not change the key's state leave the token valid.
    let given = token(&mut wire, "idle");
    wire.expect(
        b"get idle\r\ntouch idle 0\r\nincr idle 1\r\n",
        b"END\r\nNOT_FOUND\r\nNOT_FOUND\r\n",
    );
    wire.expect(b"flush_prefix other:\r\n", b"OK\r\n");
    assert_eq!(lease_set(&mut wire, "idle", given), "STORED");
}

/// A reader that cannot fill the key releases its token, void or not, and the next reader gets one.
#[test]
fn a_token_can_be_released() {
    let server = Server::under_test(&["-o", "lease_interval=3600"]);
    let mut wire = server.connect();
    wire.expect(b"set k 7 0 5\r\nstale\r\n", b"STORED\r\n");
    token(&mut wire, "other");
    wire.expect(b"delete k\r\n", b"DELETED\r\n");
    let first = token(&mut wire, "k");
    let others = [0, 1, first ^ 2, first | 1 << 63, u64::MAX];
    for forged in others {
        wire.expect(format!("lease-set k {forged} 0 -1 0\r\n\r\n").as_bytes(), b"NOT_STORED\r\n");
        assert_eq!(token(&mut wire, "k"), 1, "{forged}");
    }
    wire.expect(format!("lease-set k {first} 0 -1 0\r\n\r\n").as_bytes(), b"NOT_STORED\r\n");
    // A released token is void, and the stale value is neither lost nor removed.
    assert_eq!(lease_set(&mut wire, "k", first), "NOT_STORED");
    wire.expect(b"mg k v A\r\n", b"VA 5 X\r\nstale\r\n");
    let second = token(&mut wire, "k");
    assert!(second > 1 && second != first);
    wire.expect(format!("lease-set k {first} 0 -1 0\r\n\r\n").as_bytes(), b"NOT_STORED\r\n");
    assert_eq!(token(&mut wire, "k"), 1, "another's is not given back");
    // Releasing a void token, by meta, with any block.
    wire.expect(b"delete k\r\n", b"NOT_FOUND\r\n");
    assert_eq!(lease_set(&mut wire, "k", second), "NOT_STORED");
    wire.expect(format!("ms k 4 G{second} T-1 k\r\nblah\r\n").as_bytes(), b"NS kk\r\n");
    let third = token(&mut wire, "k");
    assert!(third > 1);
    wire.expect(format!("lease-set k {third} 0 -1 0 noreply\r\n\r\n").as_bytes(), b"");
    let fourth = token(&mut wire, "k");
    assert_eq!(lease_set(&mut wire, "k", fourth), "STORED");
    // The key exists: there is nothing to release, and nothing is removed.
    wire.expect(format!("lease-set k {fourth} 0 -1 0\r\n\r\n").as_bytes(), b"NOT_STORED\r\n");
    wire.expect(b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    assert_eq!(server.stat("lease_released"), 3);
}

#[test]
fn a_token_is_void_after_a_restart() {
    let given = token(&mut Server::under_test(&[]).connect(), "k");
    let next = Server::under_test(&[]);
    token(&mut next.connect(), "k");
    assert_eq!(lease_set(&mut next.connect(), "k", given), "NOT_STORED");
}

/// Tokens are two to three seconds apart, although the key is constantly deleted and no client
/// fills it.
#[test]
fn deletes_do_not_extend_the_lease_interval() {
    let server = Server::under_test(&["-o", "lease_interval=2"]);
    let mut wire = server.connect();
    let (begin, mut given) = (Instant::now(), Vec::new());
    while given.len() < 3 {
        assert!(begin.elapsed() < Duration::from_secs(20), "no token came");
        if token(&mut wire, "hot") > 1 {
            given.push(begin.elapsed());
        }
        wire.expect(b"delete hot\r\n", b"NOT_FOUND\r\n");
        std::thread::sleep(Duration::from_millis(20));
    }
    for pair in given.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(2), "{given:?}");
    }
}

/// Refused for the whole time and accepted within two seconds after: the resolution is a second.
#[test]
fn an_add_is_refused_for_the_hold_off_of_the_delete() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let begin = Instant::now();
    wire.expect(b"md k H2\r\n", b"NF\r\n");
    let refused = loop {
        wire.send(b"add k 0 0 1\r\nx\r\n");
        match wire.line().as_str() {
            "STORED" => break begin.elapsed(),
            other => assert_eq!(other, "NOT_STORED"),
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "never accepted");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(refused >= Duration::from_secs(2), "accepted after {refused:?}");
    assert!(server.stat("holdoff_refused") > 0 && server.stat("holdoffs") == 1);
}

/// During a hold-off, one of the readers that miss reads the database at once; its value is no
/// copy, so it is stored.
#[test]
fn a_hold_off_does_not_delay_readers() {
    let server = Server::under_test(&[]);
    let mut wire = server.connect();
    let before = token(&mut wire, "before");
    wire.expect(b"md before H3600\r\nmd k H3600\r\n", b"NF\r\nNF\r\n");
    let given = token(&mut wire, "k");
    assert!(given > 1 && token(&mut wire, "k") == 1, "one of all readers");
    wire.expect(b"add k 0 0 1\r\nx\r\n", b"NOT_STORED\r\n");
    assert_eq!(lease_set(&mut wire, "k", given), "STORED");
    assert_eq!(lease_set(&mut wire, "before", before), "NOT_STORED");
}

/// More hold-offs than the table holds: excess ones get an error, and other keys are added as
/// usual.
#[test]
fn a_flood_of_hold_offs_affects_no_other_key() {
    let server = Server::under_test(&["-m", "64"]);
    let mut wire = server.connect();
    let (mut held, mut refused) = (0, 0);
    for thousand in 0..120 {
        let batch = (0..1000).map(|key| format!("md flood{thousand}-{key} H3600\r\n"));
        wire.send(batch.collect::<String>().as_bytes());
        for _ in 0..1000 {
            match wire.line().as_str() {
                "NF" => held += 1,
                "SERVER_ERROR deleted, but there is no room for the hold-off" => refused += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert!(held > 10_000 && refused > 10_000, "{held} held, {refused} refused");
    assert_eq!((server.stat("holdoffs"), server.stat("holdoff_no_memory")), (held, refused));
    for key in 0..1000 {
        wire.expect(format!("add other{key} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    }
    assert!(token(&mut wire, "cold") > 1, "a token has a place");
}

/// Many more keys than the table may hold: its memory is bounded, and evicting keys is safe.
#[test]
fn a_flood_of_misses_uses_bounded_memory() {
    let server = Server::under_test(&["-m", "64"]);
    let mut wire = server.connect();
    wire.expect(b"md held H3600\r\n", b"NF\r\n");
    let bytes = server.stat("lease_table_bytes");
    assert!((1..=(64 << 20) / 128).contains(&bytes), "{bytes} bytes");
    let mut tokens = Vec::new();
    for thousand in 0..100 {
        let mut batch = Vec::new();
        for key in 0..1000 {
            batch.extend_from_slice(format!("mg flood{thousand}-{key} G\r\n").as_bytes());
        }
        batch.extend_from_slice(b"mn\r\n");
        wire.send(&batch);
        for key in 0..1000 {
            let line = wire.line();
            let token = line.strip_prefix("HD W G").unwrap_or_else(|| panic!("{line}"));
            tokens.push((format!("flood{thousand}-{key}"), token.parse().unwrap()));
        }
        assert_eq!(wire.line(), "MN");
    }
    let bytes = server.stat("lease_table_bytes");
    assert!((1..=(64 << 20) / 28).contains(&bytes), "{bytes} bytes");
    let lost = server.stat("lease_keys_lost");
    assert!(lost > 50_000, "{lost}");
    // The holder of an evicted token may not store. An evicted token older than the interval does
    // not count as lost, and the hold-off does.
    let refused =
        tokens.iter().filter(|(key, token)| match lease_set(&mut wire, key, *token).as_str() {
            "STORED" => false,
            "NOT_STORED" => true,
            other => panic!("{other}"),
        });
    let refused = refused.count() as u64;
    assert!(refused + 1 >= lost, "{refused} refused of {lost} lost");
    wire.expect(b"add held 0 0 1\r\nx\r\n", b"NOT_STORED\r\n");
}

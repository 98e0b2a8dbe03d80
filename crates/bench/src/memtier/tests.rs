//! Every flag of both programs has an effect, a warning, or a refusal with its name.

use std::collections::BTreeSet;

use super::{FlagError, Invocation, Parsed, flags, mcblaster, parse, parse_mcblaster, refusals};
use generator::keys::Pattern;
use generator::sizes::ValueSize;
use generator::spec::{Arrival, Credentials, Pace, Protocol, Ratio, Tls};

fn outcome(parsed: Result<Parsed, FlagError>) -> Result<Invocation, String> {
    match parsed.map_err(|error| error.to_string())? {
        Parsed::Run(run) => Ok(*run),
        Parsed::Print(text) => Err(text),
    }
}

fn memtier(line: &str) -> Result<Invocation, String> {
    outcome(parse(line.split_whitespace().map(str::to_owned)))
}

fn mcblaster(line: &str) -> Result<Invocation, String> {
    outcome(parse_mcblaster(line.split_whitespace().map(str::to_owned)))
}

/// The run of an invocation, without its warnings, but with the login, which is never printed.
fn asked(run: &Invocation) -> String {
    let login = run.spec.credentials.as_ref().map(|Credentials(line)| line.as_str());
    format!("{:?} {login:?}", Invocation { warnings: Vec::new(), ..run.clone() })
}

/// memtier_benchmark's supported flags: the flags to test each with, and its own with a value.
const DONE: [(&str, &str); 46] = [
    ("", "--server=127.0.0.2"),
    ("", "--host=127.0.0.2"),
    ("", "--port=1"),
    ("", "--unix-socket=/s"),
    ("", "--uri=rediss://me:secret@127.0.0.2:7/0 --tls-skip-verify"),
    ("--server=::1", "--ipv4"),
    ("--server=127.0.0.1", "--ipv6"),
    ("", "--protocol=memcache_text"),
    ("", "--authenticate=secret"),
    ("", "--tls --cacert=f"),
    ("--tls --cacert=f --key=k", "--cert=c"),
    ("--tls --cacert=f --cert=c", "--key=k"),
    ("--tls", "--cacert=f"),
    ("--tls --cacert=f", "--tls-skip-verify"),
    ("--tls --cacert=f", "--sni=name"),
    ("", "--run-count=3"),
    ("", "--out-file=f"),
    ("", "--json-out-file=f"),
    ("", "--hdr-file-prefix=f"),
    ("", "--hide-histogram"),
    ("--run-count=3", "--print-all-runs"),
    ("", "--print-percentiles=50,99.99"),
    ("", "--miss-rate-threshold=0.5"),
    ("", "--requests=7"),
    ("", "--clients=7"),
    ("", "--threads=7"),
    ("", "--test-time=7"),
    ("", "--ratio=1:1"),
    ("", "--pipeline=7"),
    ("", "--reconnect-interval=7"),
    ("", "--multi-key-get=7"),
    ("", "--randomize"),
    ("", "--rate-limiting=7"),
    ("", "--data-size=7"),
    ("", "--data-size-range=1-7"),
    ("", "--data-size-list=1:1,7:2"),
    ("", "--expiry-range=7-7"),
    ("", "--data-verify"),
    ("", "--key-prefix=p"),
    ("", "--key-minimum=7"),
    ("", "--key-maximum=7"),
    ("", "--key-pattern=S:S"),
    ("--key-pattern=G:G", "--key-stddev=7"),
    ("--key-pattern=Z:Z", "--key-zipf-exp=1.7"),
    ("", "--help"),
    ("", "--version"),
];

#[test]
fn every_memtier_flag_has_an_effect_or_is_reported() {
    let mut tried = BTreeSet::new();
    for (beside, flag) in DONE {
        let name = flag.trim_start_matches('-').split(['=', ' ']).next().unwrap();
        tried.insert(name);
        let with = memtier(&format!("{beside} {flag}"));
        if matches!(name, "help" | "version" | "ipv4" | "ipv6") {
            // Text, or an error that such an address is of another kind.
            assert!(with.is_err_and(|said| said.len() > 5), "{flag}");
            continue;
        }
        let with = with.unwrap_or_else(|error| panic!("{beside} {flag}: {error}"));
        // The flags that it is tested with may require it.
        let without = memtier(beside).map_or_else(|error| error, |run| asked(&run));
        assert_ne!(asked(&with), without, "{flag} changes nothing");
        assert!(with.warnings.is_empty(), "{flag}: {:?}", with.warnings);
    }
    for (name, short, takes_value, what) in flags::FLAGS {
        let value = if takes_value { "=1" } else { "" };
        match what {
            flags::Use::Done => assert!(tried.contains(name), "--{name} was not tried"),
            flags::Use::Warned => {
                let run = memtier(&format!("--{name}{value}")).unwrap();
                assert_eq!(run.warnings, [format!("--{name} changes nothing here")]);
                assert_eq!(asked(&run), asked(&memtier("").unwrap()), "--{name}");
            }
            flags::Use::Refused => {
                let error = memtier(&format!("--{name}{value}")).unwrap_err();
                let why = refusals::why(name);
                assert_eq!(error, format!("--{name} cannot be done here: {why}"));
                assert!(!why.is_empty(), "--{name}");
            }
        }
        let (short, value) = (short.map(|letter| format!("-{letter}")), value.trim_matches('='));
        if let Some(short) = short.filter(|_| what == flags::Use::Done && takes_value) {
            let long = memtier(&format!("--{name} {value}")).map(|run| asked(&run));
            let attached = memtier(&format!("{short}{value}")).map(|run| asked(&run));
            assert_eq!(attached, long, "{short}");
        }
    }
}

#[test]
fn the_studys_command_line_is_read() {
    let line = "-s 127.0.0.1 -p 11120 --test-time=60 -c 6 -t 2 -P memcache_binary --random-data \
                --key-minimum=100 --key-maximum=10000";
    let run = memtier(line).unwrap();
    let spec = &run.spec;
    assert_eq!((spec.threads, spec.connections, spec.seconds), (2, 6, 60.0));
    assert_eq!((spec.first_key, spec.keys), (100, 9901));
    assert_eq!((spec.protocol, spec.ratio), (Protocol::Binary, Ratio { sets: 1, gets: 10 }));
    assert_eq!(spec.targets[0].to_string(), "127.0.0.1:11120");
    assert_eq!(run.warnings, ["--random-data changes nothing here"]);
    assert_eq!(run.requests, None);
}

#[test]
fn defaults_match_memtier() {
    let run = memtier("").unwrap();
    let spec = &run.spec;
    assert_eq!((spec.threads, spec.connections, run.requests), (4, 50, Some(10_000)));
    assert_eq!((spec.protocol, spec.key_prefix.as_str()), (Protocol::Resp, "memtier-"));
    assert_eq!(spec.value_size, ValueSize::Fixed(32));
    let run = memtier("--rate-limiting 100 -c2 -t3 --key-pattern=G:G --key-stddev 5").unwrap();
    assert_eq!(run.spec.pace, Pace::Open { rate: 600.0, arrival: Arrival::Fixed });
    assert_eq!(run.spec.pattern, Pattern::Gaussian { deviation: 5.0 });
    let all = |pattern: &str| {
        let keys = "--key-minimum=1 --key-maximum=100 -n allkeys -c 3 -t 2";
        memtier(&format!("{keys} --key-pattern={pattern}")).unwrap().requests
    };
    assert_eq!((all("R:R"), all("S:S"), all("P:P")), (Some(100), Some(100), Some(17)));
}

#[test]
fn credentials_are_a_password_or_a_user_and_a_password() {
    let login = |line: &str| {
        let run = memtier(line).unwrap();
        assert!(!format!("{run:?}").contains("secret"), "{line}");
        run.spec.credentials.map(|Credentials(line)| line)
    };
    assert_eq!(login("-a secret").unwrap(), "secret");
    assert_eq!(login("-a me:secret").unwrap(), "me:secret");
    assert_eq!(login("-P memcache_binary -a me:secret").unwrap(), "me:secret");
    assert_eq!(login("-P memcache_text --authenticate me:secret").unwrap(), "me:secret");
    assert_eq!(login("-u redis://127.0.0.1"), None);
    for line in ["-P memcache_text -a secret", "-P memcache_binary -a :secret"] {
        let error = memtier(line).unwrap_err();
        assert!(error.contains("USER:PASSWORD") && !error.contains("secret"), "{error}");
    }
    let run = memtier("--uri rediss://me:secret@[::1]:7/0 --cacert f").unwrap();
    assert_eq!(run.spec.targets[0].to_string(), "[::1]:7");
    assert_eq!(run.spec.tls, Some(Tls::Verified("f".into())));
    for uri in ["secret@h", "http://secret@127.0.0.1", "redis://secret@127.0.0.1/3"] {
        let error = memtier(&format!("--uri {uri}")).unwrap_err();
        assert!(error.contains("--uri") && !error.contains("secret"), "{error}");
    }
}

#[test]
fn unknown_and_invalid_flags_are_refused() {
    for (line, words) in [
        ("--frobnicate", "unknown flag"),
        ("-Q", "unknown flag"),
        ("-DQ", "unknown flag"),
        ("--", "unknown flag"),
        ("-", "is no flag"),
        ("extra", "is no flag"),
        ("--key", "--key"),
        ("--key-", "may be --key-prefix, --key-minimum or more"),
        ("--threads", "needs a value"),
        ("--threads=x", "is not a number"),
        ("--hide-histogram=1", "takes no value"),
        ("--protocol=gopher", "is not a protocol"),
        ("-n 5 --test-time 5", "exclude"),
        ("--key-minimum 5 --key-maximum 4", "out of range"),
        ("--tls", "--cacert or --tls-skip-verify"),
        ("--cacert f", "for --tls"),
        ("--cert c --key k", "--tls"),
        ("--tls --cacert f --cert c", "go together"),
        ("--print-percentiles 50,101", "not a percentile"),
        ("-s ::1 -4", "no such address"),
    ] {
        let error = memtier(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
    // As in getopt_long: a unique prefix of a name, and letters after one dash.
    let short = memtier("--test 7 -DRx3").unwrap();
    assert_eq!((short.spec.seconds, short.runs, short.warnings.len()), (7.0, 3, 2));
}

#[test]
fn out_of_range_numbers_are_usage_errors() {
    for line in [
        "--test-time inf",
        "--test-time 1e30",
        "--test-time -5",
        "--test-time nan",
        "--test-time 0",
        "-n 0",
        "--pipeline 0",
        "--multi-key-get 0",
        "--rate-limiting -5",
        "--rate-limiting nan",
        "--rate-limiting 0",
        "--rate-limiting 1e12",
        "--key-maximum 18446744073709551615",
        "--key-minimum 1 --key-maximum 18446744073709551615",
        "--key-pattern Z:Z --key-zipf-exp nan",
        "--key-pattern G:G --key-stddev -1",
        "--key-prefix=a\rb",
    ] {
        let words = line.split(' ').map(str::to_owned);
        let error = parse(words).map(|_| ()).expect_err(line);
        assert!(error.is_usage(), "{line}: {error}");
    }
    for line in ["-p 1 -r 5 -d nan h", "-p 1 -r 5 -k 2000000000000 h", "-p 1 -r 4000000000 h"] {
        let error = parse_mcblaster(line.split(' ').map(str::to_owned)).map(|_| ());
        assert!(error.expect_err(line).is_usage(), "{line}");
    }
}

#[test]
fn a_load_of_only_sets_follows_the_set_pattern() {
    let only = memtier("--ratio 1:0 --key-pattern P:R -n allkeys --key-maximum 9999").unwrap();
    assert_eq!((only.spec.pattern, only.warnings.len()), (Pattern::Sequential, 0));
    // Ten thousand keys, divided among 200 connections.
    assert_eq!(only.requests, Some(50));
    let only = memtier("--ratio 1:0 --key-pattern S:R").unwrap();
    assert_eq!((only.spec.pattern, only.warnings.len()), (Pattern::Sequential, 0));
    let both = memtier("--ratio 1:1 --key-pattern S:R").unwrap();
    assert_eq!((both.spec.pattern, both.warnings.len()), (Pattern::Uniform, 1));
    assert!(both.spec.ratio_in_turn, "sets and gets take turns");
    let gets = memtier("--ratio 0:1 --key-pattern S:R").unwrap();
    assert_eq!((gets.spec.pattern, gets.warnings.len()), (Pattern::Uniform, 0));
}

#[test]
fn every_mcblaster_flag_has_an_effect_or_is_reported() {
    let base = "-p 1 -r 5 127.0.0.1";
    for (letter, value, what, words) in mcblaster::FLAGS {
        let flag = format!("-{letter}{}", if value.is_some() { "77" } else { "" });
        let run = mcblaster(&format!("{base} {flag}"));
        match what {
            mcblaster::Use::Done => {
                assert_ne!(asked(&run.unwrap()), asked(&mcblaster(base).unwrap()), "{flag}");
            }
            mcblaster::Use::Warned => {
                let run = run.unwrap();
                assert_eq!(asked(&run), asked(&mcblaster(base).unwrap()), "{flag}");
                assert_eq!(run.warnings, [format!("-{letter} changes nothing here")]);
            }
            mcblaster::Use::Refused => {
                let error = run.unwrap_err();
                assert_eq!(error, format!("-{letter} cannot be done here: {words}"));
            }
        }
    }
}

#[test]
fn the_papers_command_lines_are_read() {
    let line = "-p 11211 -t 16 -z 64 -k 1000000 -r 10 -W 75000 -d 20 127.0.0.1";
    let load = mcblaster(line).unwrap().spec;
    assert_eq!((load.threads, load.keys, load.seconds), (16, 1_000_000, 20.0));
    assert_eq!(load.ratio, Ratio { sets: 75_000, gets: 10 });
    assert_eq!(load.pace, Pace::Open { rate: 75_010.0, arrival: Arrival::Fixed });
    let line = "-p 11211 -t 16 -z 64 -k 1000000 -r 300000 -W 0 -d 120 127.0.0.1";
    let gets = mcblaster(line).unwrap().spec;
    assert_eq!((gets.ratio, gets.preload), (Ratio { sets: 0, gets: 300_000 }, true));
    let sets = mcblaster("-p 1 -w 5 127.0.0.1").unwrap().spec;
    assert_eq!((sets.keys, sets.connections, sets.preload), (1, 1, false));
}

#[test]
fn invalid_mcblaster_command_lines_are_refused() {
    for (line, words) in [
        ("-Q 1 h", "unknown flag"),
        ("-qQ h", "unknown flag"),
        ("-t", "needs a value"),
        ("-p 1 -t x 127.0.0.1", "not a number"),
        ("-p 1 -k 0 -r 1 127.0.0.1", "out of range"),
        ("-p 1 127.0.0.1", "a rate is missing"),
        ("-r 1 127.0.0.1", "-p PORT"),
        ("", "host is missing"),
        ("a b", "one host"),
    ] {
        let error = mcblaster(line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
    assert!(mcblaster("--help").unwrap_err().contains("mcblaster's command line"));
}

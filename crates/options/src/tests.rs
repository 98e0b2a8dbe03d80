//! The command line as an operator types it, and the tables compared with their documentation.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use super::extended::{EXTENDED, Value};
use super::table::{Flag, Meaning, flags};
use super::*;

fn environment() -> Environment {
    Environment { cpus: 2, sasl_users: Some("/tmp/sasl".into()), ..Environment::default() }
}

fn try_parse(style: Style, arguments: &[&str]) -> Result<Invocation, Refusal> {
    parse(style, arguments.iter().map(OsString::from), &environment())
}

#[track_caller]
fn run(style: Style, arguments: &[&str]) -> (Options, Vec<String>) {
    match try_parse(style, arguments) {
        Ok(Invocation::Run { options, warnings, .. }) => (*options, warnings),
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[track_caller]
fn options(arguments: &[&str]) -> Options {
    run(Style::Holdall, arguments).0
}

#[track_caller]
fn refused(arguments: &[&str]) -> Refusal {
    match try_parse(Style::Holdall, arguments) {
        Err(refusal) => refusal,
        Ok(accepted) => panic!("{arguments:?} was accepted: {accepted:?}"),
    }
}

/// The required options of TLS.
const TLS: [&str; 3] = ["-Z", "-o", "ssl_chain_cert=/tmp/c,ssl_key=/tmp/k,ssl_ca_cert=/tmp/a"];

fn at(host: Option<&str>, port: u16) -> Endpoint {
    Endpoint { host: host.map(str::to_owned), port, tls: net::TlsMode::Plain }
}

/// An argument that the flag accepts.
fn sample(flag: &Flag) -> Option<&'static str> {
    flag.argument?;
    Some(match flag.long {
        "port" | "udp-port" => "11300",
        "listen" => "127.0.0.1:11301",
        "unix-socket" | "pidfile" | "memory-file" | "auth-file" => "/tmp/x",
        "unix-mask" => "0770",
        "slab-growth-factor" => "1.5",
        "protocol" => "ascii",
        "extended" => "modern",
        "prefix-delimiter" => "/",
        "user" => "nobody",
        "metrics" => "127.0.0.1:9150",
        "console" => "127.0.0.1:8811,interval=5",
        "otlp" => "http://127.0.0.1:4318",
        "log-format" => "json",
        "log-filter" => "warn,connections=debug",
        "max-item-size" => "2048",
        _ => "100",
    })
}

/// Helm charts write a flag, a space and its value as one element of a list.
#[test]
fn a_flag_and_its_value_may_be_one_argument() {
    let flags = "-m 1024|-I 5m|-c 16384|-p 11212|-U 0|-t 2|-b 1024|-R 20|-n 48|-f 1.25|-a 0700|\
                 -l 127.0.0.1|-o idle_timeout=60";
    let joined: Vec<&str> = flags.split('|').collect();
    let split: Vec<&str> = flags.split(['|', ' ']).collect();
    for style in [Style::Memcached, Style::Holdall] {
        let given = |arguments: &[&str]| match try_parse(style, arguments) {
            Ok(Invocation::Run { options, given, .. }) => format!("{options:?} {given:?}"),
            other => panic!("{arguments:?}: {other:?}"),
        };
        assert_eq!(given(&joined), given(&split));
    }
    assert_eq!(options(&["-D "]).prefix_delimiter, b' ');
    for bad in ["-m 64mb", "-c 10x", "-c 1 0", "-m "] {
        refused(&[bad]);
    }
}

#[test]
fn operators_flags_are_read_whole_or_refused() {
    let given = options(&["--metrics", "[::1]:9150", "--drain=30"]);
    assert_eq!(given.metrics, Some("[::1]:9150".parse().unwrap()));
    assert_eq!(given.drain.as_secs(), 30);
    let given = options(&["--otlp=https://c:4318"]);
    assert_eq!(given.otlp.as_deref(), Some("https://c:4318"));
    let given = options(&["--console=127.0.0.1:8811,interval=5"]);
    assert_eq!(given.console.as_deref(), Some("127.0.0.1:8811,interval=5"));
    let none = options(&[]);
    assert_eq!((none.otlp, none.console), (None, None));
    assert_eq!((none.metrics, none.drain.as_secs()), (None, 0));
    for (arguments, message) in [
        (["--metrics", "9150"], "--metrics: '9150' is not an address and a port"),
        (["--console", "8811,actions"], "--console: '8811' is not an address and a port"),
        (["--otlp", "c:4318"], "--otlp: 'c:4318' is not an address that begins with http://"),
        (["--drain", "3601"], "--drain: 3601 is too large: the most is 3600"),
        (["-o", "transient_ttl=3601"], "-o transient_ttl: 3601 is too large: the most is 3600"),
        // In the unit that was typed.
        (["-m", "0"], "-m (--memory-limit): 0 is too small: the least is 1"),
        (["-m", "512k"], "-m (--memory-limit): 512k is too small: the least is 1m"),
        (["-m", "99999999g"], "-m (--memory-limit): 99999999g is too large: the most is 16384g"),
        (["-I", "1023"], "-I (--max-item-size): 1023 is too small: the least is 1024"),
        (["-I", "2g"], "-I (--max-item-size): 2g is too large: the most is 1g"),
        (["-I", "99999999999999g"], "-I (--max-item-size): 99999999999999g is too large"),
    ] {
        let refusal = refused(&arguments);
        assert!(refusal.to_string().starts_with(message), "{refusal:?}");
        assert_eq!(refusal.status, EXIT_USAGE);
    }
}

#[test]
fn the_collectors_password_is_not_shown() {
    let url = "http://user:secret@c:4318";
    let given = options(&["--otlp", url]);
    assert_eq!(given.otlp.as_deref(), Some(url));
    let shown = stats_settings::of(&given);
    assert!(shown.contains(&("otlp", "http://***@c:4318".to_owned())), "{shown:?}");
    let shown = |key, value: &str| settings::shown(key, &[value.to_owned()], ",");
    assert_eq!(shown("otlp", url), "http://***@c:4318");
    assert_eq!(shown("rights", "/etc/a@b"), "/etc/a@b");
    let refusal = refused(&["--otlp", "user:secret@c:4318"]).to_string();
    assert!(refusal.starts_with("--otlp: '***@c:4318' is not an address"), "{refusal}");
}

/// memcached accepts any value.
#[test]
fn a_large_temporary_ttl_is_cut_with_a_warning() {
    let settle = |text: &str| match try_parse(Style::Memcached, &["-o", text]).unwrap() {
        Invocation::Run { options, warnings, .. } => (options.transient_secs, warnings),
        Invocation::Print(page) => panic!("{page}"),
    };
    let warning = "-o temporary_ttl: 3600 is used instead of 3601: it is the most".to_owned();
    assert_eq!(settle("temporary_ttl=3601"), (3600, vec![warning]));
    assert_eq!(settle("temporary_ttl=3600,transient_ttl=3600"), (3600, Vec::new()));
}

#[test]
fn an_unknown_name_gets_the_nearest_suggestion() {
    for (arguments, message) in [
        (&["--memry-limit=1"][..], "unknown flag --memry-limit; did you mean --memory-limit?"),
        (&["--memroy=1"], "unknown flag --memroy; did you mean --memory-file or --memory-limit?"),
        (&["--frobnicate"], "unknown flag --frobnicate"),
        (&["-o", "idle_timout=3"], "unknown option -o idle_timout; did you mean idle_timeout?"),
        (&["-o", "frobnicate"], "unknown option -o frobnicate"),
    ] {
        assert_eq!(refused(arguments).to_string(), message);
    }
}

/// Every form of each flag of the table gives the same result, according to its meaning.
#[test]
fn every_flag_parses_in_every_form() {
    for flag in flags().filter(|flag| !matches!(flag.meaning, Meaning::Config)) {
        let mut forms: Vec<Vec<String>> = Vec::new();
        match (sample(flag), flag.short) {
            (Some(value), short) => {
                forms.push(vec![format!("--{}", flag.long), value.to_owned()]);
                forms.push(vec![format!("--{}={value}", flag.long)]);
                // Flags that memcached lacks have no letter.
                if let Some(short) = short {
                    forms.push(vec![format!("-{short}"), value.to_owned()]);
                    forms.push(vec![format!("-{short}{value}")]);
                    forms.push(vec![format!("-v{short}{value}")]);
                }
            }
            (None, short) => {
                forms.push(vec![format!("--{}", flag.long)]);
                // Flags that memcached lacks have no letter.
                forms.extend(short.map(|short| vec![format!("-{short}")]));
            }
        }
        for style in [Style::Holdall, Style::Memcached] {
            for form in &forms {
                let mut words: Vec<&str> = form.iter().map(String::as_str).collect();
                if flag.long == "enable-ssl" {
                    words.extend(&TLS[1..]);
                }
                let result = try_parse(style, &words);
                match (flag.meaning, &result) {
                    (Meaning::Used(_) | Meaning::Extended, Ok(Invocation::Run { .. })) => {}
                    (Meaning::Print(_), Ok(Invocation::Print(_))) => {}
                    (Meaning::NoEffect(why), Ok(Invocation::Run { warnings, .. })) => {
                        assert!(warnings.iter().any(|line| line.contains(why)), "{words:?}");
                    }
                    (Meaning::Refused(why), Err(refusal)) => {
                        assert!(refusal.to_string().contains(why), "{words:?}: {refusal:?}");
                        assert_eq!(refusal.status, EXIT_USAGE, "{words:?}");
                    }
                    _ => panic!("{words:?}: {result:?}"),
                }
            }
        }
    }
}

#[test]
fn every_extended_option_has_its_effect() {
    for option in EXTENDED {
        let value = match option.value {
            Value::None => String::new(),
            Value::Optional(_) | Value::Required(_) => match option.name {
                "eviction" => "=lru".to_owned(),
                "affinity" => "=auto".to_owned(),
                "slab_automove" => "=2".to_owned(),
                "slab_automove_ratio" => "=0.7".to_owned(),
                "lru_crawler_sleep" | "lru_crawler_tocrawl" => "=7".to_owned(),
                "stripes" => "=64".to_owned(),
                "ssl_verify_mode" | "ssl_min_version" => "=2".to_owned(),
                "ssl_ciphers" => "=ECDHE-RSA-AES128-GCM-SHA256".to_owned(),
                _ => "=7".to_owned(),
            },
        };
        let element = format!("{}{value}", option.name);
        let result = {
            let mut words = vec!["-Y", "/tmp/x", "-o", element.as_str()];
            if option.name.starts_with("ssl_") {
                words.splice(..2, TLS);
            }
            try_parse(Style::Memcached, &words)
        };
        match (option.meaning, &result) {
            (Meaning::Used(_), Ok(Invocation::Run { warnings, .. })) => {
                assert!(!warnings.iter().any(|line| line.contains(option.name)), "{element}");
            }
            (Meaning::NoEffect(reason), Ok(Invocation::Run { warnings, .. })) => {
                let want = format!("-o {} has no effect here: {reason}", option.name);
                assert!(warnings.contains(&want), "{element}: {warnings:?}");
            }
            (Meaning::Refused(reason), Err(refusal)) => {
                assert!(refusal.message.contains(reason), "{element}: {refusal:?}");
            }
            _ => panic!("{element}: {result:?}"),
        }
        if matches!(option.value, Value::Required(_)) {
            assert_eq!(refused(&["-o", option.name]).status, EXIT_USAGE, "{}", option.name);
        }
    }
}

/// The list of memcached 1.6.45, from its `getopt` string and `subopts_tokens`.
#[test]
fn memcacheds_flags_are_all_known() {
    let letters: BTreeSet<char> = flags().filter_map(|flag| flag.short).collect();
    let want: BTreeSet<char> = "aApsUmMcCkhivVdldruPftDLRCBbIFXWYeoZSnN".chars().collect();
    assert_eq!(letters, want);
    let names = "maxconns_fast hashpower no_hashexpand slab_reassign slab_automove slab_automove_ratio \
        slab_automove_window tail_repair_time hash_algorithm lru_crawler lru_crawler_sleep lru_crawler_tocrawl \
        lru_maintainer hot_lru_pct warm_lru_pct hot_max_factor warm_max_factor temporary_ttl idle_timeout \
        watcher_logbuf_size worker_logbuf_size slab_sizes slab_chunk_max track_sizes no_inline_ascii_resp \
        inline_ascii_resp no_chunked_items no_slab_reassign no_slab_automove no_maxconns_fast no_lru_crawler \
        no_lru_maintainer no_drop_privileges drop_privileges resp_obj_mem_limit read_buf_mem_limit \
        ssl_chain_cert ssl_key ssl_verify_mode ssl_keyformat ssl_ciphers ssl_ca_cert ssl_wbuf_size \
        ssl_session_cache ssl_kernel_tls ssl_min_version modern no_modern ext_page_size ext_path ext_wbuf_size \
        ext_threads ext_io_depth ext_item_size ext_item_age ext_low_ttl ext_recache_rate ext_compact_under \
        ext_drop_under ext_max_sleep ext_max_frag ext_drop_unread slab_automove_freeratio relaxed_privileges \
        proxy_config proxy_arg proxy_uring proxy_memprofile sock_cookie_id";
    for name in names.split_whitespace() {
        assert!(EXTENDED.iter().any(|option| option.name == name), "-o {name} is missing");
    }
}

#[test]
fn no_name_is_taken_twice() {
    let mut seen = BTreeSet::new();
    for flag in flags() {
        assert!(seen.insert(flag.long.to_owned()), "--{}", flag.long);
        if let Some(short) = flag.short {
            assert!(seen.insert(short.to_string()), "-{short}");
        }
    }
    for option in EXTENDED {
        assert!(seen.insert(format!("-o {}", option.name)), "-o {}", option.name);
    }
}

#[test]
fn unknown_flags_and_options_are_refused() {
    for unknown in [&["-Q"][..], &["--foo"], &["--foo=1"], &["-o", "foo"], &["-o", "foo=1"]] {
        assert_eq!(refused(unknown).status, EXIT_USAGE, "{unknown:?}");
    }
    assert_eq!(refused(&["-Q"]).message, "unknown flag -Q");
    assert_eq!(refused(&["-o", "modern,foo=1"]).message, "unknown option -o foo");
    assert_eq!(refused(&["start"]).message, "'start' is not a flag");
    assert_eq!(try_parse(Style::Memcached, &["--config=x"]).unwrap_err().status, 1);
    let (_, warnings) = run(Style::Memcached, &["start"]);
    assert!(warnings.iter().any(|line| line.contains("'start' is not a flag")), "{warnings:?}");
}

#[test]
fn wrong_arguments_are_refused_with_memcacheds_status() {
    let wrong: &[&[&str]] = &[
        &["-p", "99999"],
        &["-p", "abc"],
        &["-p", "-2"],
        &["-c", "0"],
        &["-t", "0"],
        &["-R", "0"],
        &["-f", "1"],
        &["-n", "0"],
        &["-m", "0"],
        &["-m", "64x"],
        &["-I", "10"],
        &["-I", "2g"],
        &["-I", "900m"],
        &["-B", "foo"],
        &["-a", "999"],
        &["-D", "::"],
        &["-o", "stripes=48"],
        &["-o", "stripes=16"],
        &["-o", "affinity=0,1"],
        &["-o", "eviction=random"],
        &["-o", "keep_tcp=1"],
    ];
    for arguments in wrong {
        let refusal = refused(arguments);
        assert_eq!(refusal.status, EXIT_USAGE, "{arguments:?}: {refusal:?}");
    }
    assert_eq!(refused(&["-p"]).status, EXIT_USAGE);
    // memcached's status for unknown options. A comma ends the element, so the rest is unknown.
    for unknown in [&["-p"][..], &["-o", "affinity=0,1"]] {
        assert_eq!(try_parse(Style::Memcached, unknown).unwrap_err().status, 1, "{unknown:?}");
    }
    assert_eq!(try_parse(Style::Memcached, &["-o", "unknown"]).unwrap_err().status, 1);
}

#[test]
fn defaults() {
    let options = options(&[]);
    assert_eq!(options.tcp, [at(Some("127.0.0.1"), 11211)]);
    assert!(options.udp.is_empty() && options.unix.path.is_none());
    assert_eq!((options.memory_bytes, options.item_bytes_max), (64 << 20, 1 << 20));
    assert_eq!((options.threads, options.connections_max, options.backlog), (2, 1024, 1024));
    assert_eq!(options.requests_per_turn, 20);
    assert!(
        options.evict && options.maxconns_fast && options.cas && options.stripes.is_power_of_two()
    );
    assert_eq!(options.growth_factor.to_string(), GROWTH_FACTOR_TEXT);
    assert_eq!(options.chunk_bytes_min.to_string(), CHUNK_BYTES_MIN_TEXT);
    assert_eq!(options.transient_secs.to_string(), TRANSIENT_SECS_TEXT);
}

#[test]
fn the_memcached_style_listens_on_every_interface() {
    let (options, _) = run(Style::Memcached, &["-u", "nobody"]);
    assert_eq!(options.tcp, [at(None, 11211)]);
    let (_, warnings) = run(Style::Memcached, &["-l", "127.0.0.1"]);
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn ports_follow_memcached() {
    let local = Some("127.0.0.1");
    assert_eq!(options(&["-p11300"]).tcp, [at(local, 11300)]);
    assert_eq!(options(&["-p", "-1"]).tcp, [at(local, 0)]);

    let udp_alone = options(&["-U", "11300"]);
    assert_eq!((udp_alone.tcp, udp_alone.udp), (vec![at(local, 11300)], vec![at(local, 11300)]));
    let both = options(&["-U", "11300", "-p", "11400"]);
    assert_eq!((both.tcp, both.udp), (vec![at(local, 11400)], vec![at(local, 11300)]));
    let udp_only = options(&["-U", "11300", "-p", "0"]);
    assert_eq!((udp_only.tcp, udp_only.udp), (vec![], vec![at(local, 11300)]));
    assert_eq!(options(&["-U", "0"]).tcp, [at(local, 11211)]);
    // A separate socket, or none at all: memcached starts, and holdall also does.
    let (nowhere, warnings) = run(Style::Memcached, &["-p", "0", "-l", "127.0.0.1:11300"]);
    assert_eq!((nowhere.tcp, nowhere.udp, nowhere.unix.path), (vec![], vec![], None));
    assert!(warnings.iter().any(|line| line.starts_with("nobody can connect")), "{warnings:?}");

    let list = options(&["-l", "10.0.0.1:5,[::1];h", "-l", "*", "-p", "7"]);
    let want = [at(Some("10.0.0.1"), 5), at(Some("::1"), 7), at(Some("h"), 7), at(None, 7)];
    assert_eq!(list.tcp, want);
}

#[test]
fn a_unix_socket_turns_the_network_off() {
    let unix = options(&["-s", "/run/x.sock", "-p", "11300", "-U", "11300", "-a", "770"]);
    assert_eq!((unix.tcp, unix.udp), (vec![], vec![]));
    assert_eq!((unix.unix.path, unix.unix.mode), (Some(PathBuf::from("/run/x.sock")), 0o770));
    let both = options(&["-s", "/run/x.sock", "-o", "keep_tcp"]);
    assert_eq!(both.tcp, [at(Some("127.0.0.1"), 11211)]);
    assert!(options(&["-s", "x.sock"]).unix.path.is_some_and(|path| path.is_absolute()));
}

#[test]
fn short_flags_join_and_the_last_value_counts() {
    let joined = options(&["-vvdp11300", "-m1g", "-m", "2g", "-MCt3"]);
    assert_eq!(joined.verbosity, 2);
    assert!(joined.daemon && !joined.evict && !joined.cas);
    assert_eq!((joined.memory_bytes, joined.threads), (2 << 30, 3));
    assert_eq!(options(&["-vvvvv"]).verbosity, 3);
    assert_eq!(options(&["--memory-l=128"]).memory_bytes, 128 << 20);
}

#[test]
fn sizes_have_memcacheds_units() {
    assert_eq!(options(&["-m", "100"]).memory_bytes, 100 << 20);
    // The maximum of a store.
    assert_eq!(options(&["-m", "16777216"]).memory_bytes, 1 << 44);
    assert_eq!(options(&["-I", "2m"]).item_bytes_max, 2 << 20);
    assert_eq!(options(&["-I", "65536"]).item_bytes_max, 65536);
}

#[test]
fn costly_and_surprising_settings_cause_warnings() {
    let warnings = |arguments: &[&str]| run(Style::Holdall, arguments).1;
    assert_eq!(warnings(&["-t", "3"]), ["-t: 3 worker threads for 2 processors only cost time"]);
    assert!(warnings(&["-t", "2"]).is_empty());
    assert_eq!(options(&["-m", "1"]).item_bytes_max, 512 << 10, "the default shrinks to fit");
    let less = "-m: items over 512 kB are refused, since an item has at most half of -m";
    assert_eq!(warnings(&["-m", "1"]), [less]);
    assert!(warnings(&["-m", "1", "-I", "512k"]).is_empty());
    assert!(warnings(&["-m", "2"]).is_empty());
}

#[test]
fn extended_options_are_a_list() {
    let (options, warnings) = run(
        Style::Holdall,
        &["-o", "stripes=128,affinity=0:2,modern,", "-o", "idle_timeout=5,no_maxconns_fast,modern"],
    );
    assert_eq!(options.stripes, 128);
    assert_eq!(options.affinity, Affinity::List(vec![0, 2]));
    assert_eq!(options.idle_timeout, Some(Duration::from_secs(5)));
    assert!(!options.maxconns_fast);
    assert_eq!(warnings, ["-o modern has no effect here: the defaults are the modern ones"]);
}

#[test]
fn information_flags_take_precedence_over_invalid_values() {
    let printed = |style, arguments: &[&str]| match try_parse(style, arguments) {
        Ok(Invocation::Print(text)) => text,
        other => panic!("{other:?}"),
    };
    let version = concat!("holdall ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(printed(Style::Holdall, &["-m", "x", "-V"]), version);
    assert_eq!(printed(Style::Memcached, &["-V"]), "memcached 1.6.45\n");
    assert!(printed(Style::Memcached, &["-h"]).starts_with("memcached 1.6.45\n"));
    assert!(printed(Style::Holdall, &["-h"]).starts_with(version));
    assert!(printed(Style::Holdall, &["-i"]).contains("Apache License"));
    assert_eq!(printed(Style::Memcached, &["--enable-ssl", "--version"]), "memcached 1.6.45\n");
}

#[test]
fn help_lists_only_supported_flags() {
    for style in [Style::Holdall, Style::Memcached] {
        let text = help::page(table::Page::Help, style);
        for flag in flags() {
            let is_offered = text.contains(&format!("--{}", flag.long));
            let is_known = style == Style::Holdall || flag.long != "config";
            let want = is_known && !matches!(flag.meaning, Meaning::Refused(_));
            assert_eq!(is_offered, want, "{style:?} --{}", flag.long);
        }
        assert!(text.lines().all(|line| line.len() <= 100), "a line is too long");
    }
}

fn file_with(text: &str) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("holdall-conf-{}-{count}", std::process::id()));
    std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    path
}

/// The file of Debian's package, without its comments.
#[test]
fn debians_memcached_conf_is_understood() {
    let file = file_with(
        "# memcached default config file\n-d\nlogfile /var/log/memcached.log\n# -vv\n-m 64\n-p 11300\n\
         -u memcache\n-l 127.0.0.1\n-l ::1\n-P /var/run/memcached/memcached.pid\n",
    );
    let path = file.to_str().unwrap();
    let (options, warnings) = run(Style::Holdall, &["-m", "128", "--config", path]);
    assert_eq!(options.tcp, [at(Some("127.0.0.1"), 11300), at(Some("::1"), 11300)]);
    assert_eq!(options.memory_bytes, 128 << 20, "the command line goes before the file");
    assert_eq!(options.user.as_deref(), Some("memcache"));
    assert_eq!(options.pid_file, Some(PathBuf::from("/var/run/memcached/memcached.pid")));
    assert!(!options.daemon, "the service manager keeps the process");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(":3: 'logfile' has no effect here"), "{warnings:?}");
    let (options, _) = run(Style::Holdall, &["-d", "--config", path]);
    assert!(options.daemon);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_bad_line_of_a_file_is_named() {
    let cases = [
        ("-m 64\n-Q\n", ":2: unknown flag -Q", EXIT_USAGE),
        ("-m x\n", ":1: -m (--memory-limit): 'x'", EXIT_USAGE),
        ("\n\n-o ext_path=/x:1g\n", ":3: -o ext_path: external storage", EXIT_USAGE),
        ("-m 64 extra\n--config x\n", ":2: unknown flag --config", EXIT_USAGE),
        ("-s \"x\n", ":1: a quote is not closed", EXIT_USAGE),
    ];
    for (text, want, status) in cases {
        let file = file_with(text);
        let refusal = refused(&["--config", file.to_str().unwrap()]);
        assert!(refusal.message.contains(want), "{text:?}: {refusal:?}");
        assert_eq!(refusal.status, status, "{text:?}");
        std::fs::remove_file(file).unwrap();
    }
    assert_eq!(refused(&["--config", "/nonexistent/x"]).status, EXIT_USAGE);
}

#[test]
fn a_login_selects_the_protocol_as_in_memcached() {
    assert_eq!(options(&["-Y", "/tmp/x"]).protocol, Protocol::Ascii);
    let sasl = options(&["-S"]);
    assert_eq!((sasl.protocol, sasl.auth.users), (Protocol::Binary, Some("/tmp/sasl".into())));
    let both = options(&["-S", "-Y", "/tmp/x"]);
    assert_eq!((both.protocol, both.auth.users), (Protocol::Auto, Some("/tmp/x".into())));
    for wrong in [
        &["-S", "-B", "ascii"][..],
        &["-Y", "/tmp/x", "-B", "binary"],
        &["-Y", "/tmp/x", "-U", "11211"],
        &["-o", "rights=/tmp/x"],
    ] {
        assert_eq!(refused(wrong).status, EXIT_USAGE, "{wrong:?}");
    }
}

#[test]
fn a_tls_listener_never_falls_back_to_plaintext() {
    for wrong in [&["-Z"][..], &["-l", "tls:127.0.0.1"], &["-l", "mtls:127.0.0.1"]] {
        assert_eq!(refused(wrong).status, EXIT_USAGE, "{wrong:?}");
    }
    let list = ["-l", "127.0.0.1:1,notls:127.0.0.1:2,mtls:127.0.0.1:3,btls:127.0.0.1:4"];
    let parsed = options(&[&TLS[..], &list].concat());
    let modes: Vec<_> = parsed.tcp.iter().map(|endpoint| endpoint.tls).collect();
    use net::TlsMode::{Mutual, Plain, ServerOnly, Standard};
    assert_eq!(modes, [Standard, Plain, Mutual, ServerOnly]);
    let wrong = ["-Z", "-o", "ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=2"];
    assert_eq!(refused(&wrong).status, EXIT_USAGE, "no issuers are named");
    // No client has to show a certificate, so every client can connect, as in memcached.
    let asks = ["-Z", "-o", "ssl_chain_cert=/c,ssl_key=/k,ssl_verify_mode=1"];
    let (asking, warnings) = run(Style::Memcached, &asks);
    assert!(asking.tls.is_some());
    assert!(warnings.iter().any(|line| line.starts_with("ssl_verify_mode: ")), "{warnings:?}");
    let (datagrams, warnings) = run(Style::Memcached, &[&TLS[..], &["-U", "1"]].concat());
    assert_eq!((datagrams.udp.len(), datagrams.tls.is_some()), (1, true));
    assert!(warnings.iter().any(|line| line.starts_with("-U: ")), "{warnings:?}");
    // A client that has to show a certificate could send requests by UDP without one.
    for mode in ["2", "3"] {
        let requires = format!("ssl_verify_mode={mode}");
        let required = [&TLS[..], &["-o", &requires, "-U", "1"]].concat();
        assert_eq!(refused(&required).status, EXIT_USAGE, "{mode}");
    }
    let mutual = ["-l", "127.0.0.1:1,mtls:127.0.0.1:2", "-U", "1"];
    assert_eq!(refused(&[&TLS[..], &mutual].concat()).status, EXIT_USAGE);
    assert_eq!(refused(&["-o", "ssl_ciphers=HIGH"]).status, EXIT_USAGE);
}

/// memcached 1.6.45's answer to `stats settings`, except settings that change while it runs.
#[test]
fn every_memcached_setting_name_is_shown_with_and_without_tls() {
    const NAMES: &str = "maxconns tcpport udpport inter oldest evictions domain_socket umask \
        shutdown_command growth_factor chunk_size num_threads num_threads_per_udp stat_key_prefix \
        reqs_per_event cas_enabled tcp_backlog binding_protocol auth_enabled_sasl \
        auth_enabled_ascii item_size_max maxconns_fast hashpower_init slab_reassign \
        slab_automove_window slab_chunk_max tail_repair_time flush_enabled dump_enabled \
        hash_algorithm lru_maintainer_thread lru_segmented hot_lru_pct warm_lru_pct hot_max_factor \
        warm_max_factor idle_timeout watcher_logbuf_size worker_logbuf_size read_buf_mem_limit \
        track_sizes inline_ascii_response ext_item_size ext_item_age ext_low_ttl ext_recache_rate \
        ext_wbuf_size ext_compact_under ext_drop_under ext_max_sleep ext_max_frag \
        slab_automove_freeratio ext_drop_unread ssl_enabled ssl_chain_cert ssl_key ssl_verify_mode \
        ssl_keyformat ssl_ciphers ssl_ca_cert ssl_wbuf_size ssl_session_cache ssl_kernel_tls \
        ssl_min_version proxy_enabled proxy_uring_enabled num_napi_ids memory_file \
        client_flags_size";
    for arguments in [&[][..], &TLS] {
        let shown = stats_settings::of(&options(arguments));
        for name in NAMES.split_whitespace() {
            let count = shown.iter().filter(|(own, _)| *own == name).count();
            assert_eq!(count, 1, "{name}");
        }
    }
}

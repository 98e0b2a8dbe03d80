//! Settings from files and the environment, and their priority when several places give one.

use std::ffi::OsString;
use std::fs;

use super::file::{Fault, resolve};
use super::settings::{Given, Kind, Origin, settings};
use super::*;
use files::place;
use tempfile::TempDir;

/// A folder with files, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn parse(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Run, Refusal> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let environment = Environment {
            cpus: 8,
            variables: variables.iter().map(owned).collect(),
            folder: self.0.path().to_owned(),
            ..Environment::default()
        };
        match parse(Style::Holdall, arguments.iter().map(OsString::from), &environment)? {
            Invocation::Run { options, warnings, given, .. } => Ok((*options, warnings, given)),
            Invocation::Print(page) => panic!("{page}"),
        }
    }
}

type Run = (Options, Vec<String>, Vec<Given>);

/// The faults of the text of a file.
fn check(text: &str) -> Vec<Fault> {
    resolve(text).err().unwrap_or_default()
}

fn origin<'a>(given: &'a [Given], key: &str) -> &'a Origin {
    &given.iter().find(|given| given.key == key).unwrap().origin
}

/// Of the start's folder, not of the one that the process is in when it reads them again.
#[test]
fn relative_names_are_those_of_the_folder_of_the_environment() {
    let tls = "ssl_chain_cert=c,ssl_key=k,ssl_ca_cert=ca,rights=r,namespaces=n";
    let flags = ["-s", "s", "-e", "e", "-Y", "u", "-P", "p", "-Z", "-o", tls, "-o", "keep_tcp"];
    let environment = Environment {
        cpus: 1,
        port_file: Some("ports".into()),
        folder: "/start".into(),
        ..Environment::default()
    };
    let parsed = parse(Style::Holdall, flags.map(OsString::from), &environment).unwrap();
    let Invocation::Run { options, .. } = parsed else { panic!("a page") };
    let tls = options.tls.unwrap();
    let paths = [
        options.unix.path,
        options.memory_file,
        options.auth.users,
        options.pid_file,
        Some(tls.chain_cert),
        Some(tls.key),
        tls.ca_cert,
        options.auth.rights,
        options.namespaces,
        options.port_file,
    ];
    let paths = paths.map(|path| path.unwrap().display().to_string());
    let names = ["s", "e", "u", "p", "c", "k", "ca", "r", "n", "ports"];
    assert_eq!(paths, names.map(|name| format!("/start/{name}")));
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let file = "memory_limit = \"1g\"\nconn_limit = 10\nthreads = 3\nlisten = [\"10.0.0.1\"]\n";
    let folder = Folder::new(&[("server.toml", file)]);
    let variables = [("CONN_LIMIT", "20"), ("THREADS", "4"), ("LISTEN", "10.0.0.2,10.0.0.3:9")];
    let (options, warnings, given) =
        folder.parse(&["--config", "server.toml", "-t", "5"], &variables).unwrap();
    assert_eq!(options.memory_bytes, 1 << 30);
    assert_eq!(options.connections_max, 20);
    assert_eq!(options.threads, 5);
    let hosts: Vec<_> = options.tcp.iter().map(|at| (at.host.as_deref(), at.port)).collect();
    assert_eq!(hosts, [(Some("10.0.0.2"), 11211), (Some("10.0.0.3"), 9)]);
    assert_eq!(warnings, [""; 0]);
    let in_file = Origin::File { file: "server.toml".to_owned(), line: 1 };
    assert_eq!(*origin(&given, "memory_limit"), in_file);
    let variable = Origin::Environment("HOLDALL_CONN_LIMIT".to_owned());
    assert_eq!(*origin(&given, "conn_limit"), variable);
    assert_eq!(*origin(&given, "threads"), Origin::Flag);
}

#[test]
fn false_overrides_true_of_a_lower_source() {
    let file = "disable_cas = true\nmaxconns_fast = false\nsampling = false\n";
    let folder = Folder::new(&[("server.toml", file), ("memcached.conf", "-C\n-v\n")]);
    let (options, ..) = folder.parse(&["--config", "server.toml"], &[]).unwrap();
    assert!(!options.cas && !options.maxconns_fast && !options.sampling);
    for file in ["server.toml", "memcached.conf"] {
        let variables = [("DISABLE_CAS", "false"), ("VERBOSE", "0")];
        let (options, ..) = folder.parse(&["--config", file], &variables).unwrap();
        assert!(options.cas && options.verbosity == 0, "{file}");
    }
    let arguments = ["--config", "server.toml", "-o", "maxconns_fast"];
    assert!(folder.parse(&arguments, &[]).unwrap().0.maxconns_fast);
}

#[test]
fn a_variable_may_name_the_file() {
    let folder = Folder::new(&[("server.toml", "port = 11300\n")]);
    let (options, ..) = folder.parse(&[], &[("CONFIG", "server.toml")]).unwrap();
    assert_eq!(options.tcp[0].port, 11300);
}

#[test]
fn lists_of_memcached_conf_and_flags_are_joined() {
    let folder = Folder::new(&[("memcached.conf", "-l 10.0.0.1\n-l 10.0.0.2\n-m 1g\n")]);
    let arguments = ["--config", "memcached.conf", "-l", "10.0.0.3"];
    let (options, _, given) = folder.parse(&arguments, &[]).unwrap();
    let hosts: Vec<_> = options.tcp.iter().filter_map(|at| at.host.as_deref()).collect();
    assert_eq!(hosts, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let listed = given.iter().find(|given| given.key == "listen").unwrap();
    assert_eq!(listed.values, ["10.0.0.1", "10.0.0.2", "10.0.0.3"]);
    let in_file = Origin::File { file: "memcached.conf".to_owned(), line: 3 };
    assert_eq!(*origin(&given, "memory_limit"), in_file);
}

#[test]
fn foreign_environment_variables_are_ignored() {
    let folder = Folder::new(&[("server.toml", "")]);
    let variables = [
        ("BIN", "/usr/bin/holdall"),
        ("PORT", "tcp://10.96.0.7:11211"),
        ("PORT_11211_TCP_ADDR", "10.96.0.7"),
        ("SERVICE_HOST", "10.96.0.7"),
        ("SERVICE_PORT_MEMCACHED", "11211"),
        ("CACHE_PORT", "tcp://10.96.0.8:11211"),
        ("CACHE_SERVICE_HOST", "10.96.0.8"),
        ("CONFIG", "server.toml"),
        ("MEMRY_LIMIT", "5"),
        ("MEMRY", "5"),
    ];
    let (options, warnings, _) = folder.parse(&[], &variables).unwrap();
    assert_eq!(options.tcp[0].port, PORT);
    let want = [
        "HOLDALL_PORT=tcp://10.96.0.7:11211 is Kubernetes's and has no effect",
        "HOLDALL_MEMRY_LIMIT is unknown and has no effect; did you mean HOLDALL_MEMORY_LIMIT?",
        "HOLDALL_MEMRY is unknown and has no effect; holdall config show lists the settings",
    ];
    assert_eq!(warnings, want);
    let refusal = folder.parse(&["-t", "1"], &[("THREADS", "many")]).unwrap_err();
    assert_eq!(refusal.message, "HOLDALL_THREADS: 'many' is not a number");
}

#[test]
fn the_first_fault_of_a_file_refuses_the_start() {
    let file = "port = 11300\n\nmemry_limit = 5\n";
    let folder = Folder::new(&[("server.toml", file), ("x.conf", "")]);
    let refusal = folder.parse(&["--config", "server.toml"], &[]).unwrap_err();
    let want = "server.toml:3:1: there is no setting 'memry_limit'; did you mean memory_limit?";
    assert_eq!((refusal.status, refusal.to_string().as_str()), (EXIT_USAGE, want));
    let two = ["--config", "server.toml", "--config", "x.conf"];
    assert_eq!(folder.parse(&two, &[]).unwrap_err().status, EXIT_USAGE);
    assert_eq!(folder.parse(&["--config", "none.toml"], &[]).unwrap_err().status, EXIT_USAGE);
}

#[test]
fn a_line_of_another_language_gets_advice() {
    let quotes = "a text needs quotes: listen = \"127.0.0.1\"";
    for (text, hint) in [
        ("port = 1\nlisten = 127.0.0.1 # here\n", quotes),
        ("memory_limit = 4g\n", "a text needs quotes: memory_limit = \"4g\""),
        ("port = 1\n-m 64\n", "flags go into a file whose name does not end in .toml"),
    ] {
        let folder = Folder::new(&[("server.toml", text)]);
        let refusal = folder.parse(&["--config", "server.toml"], &[]).unwrap_err();
        assert_eq!(refusal.hint.as_deref(), Some(hint), "{refusal}");
    }
    // Quotes would not mend these.
    for text in [
        "listen = [\"a\"\nport = 1\n",
        "port = 11211 tcp\n",
        "port = 1\nport = 0x10\n",
        "memory_limit = 64\nmemory_limit = 1_000\n",
    ] {
        let folder = Folder::new(&[("server.toml", text)]);
        let refusal = folder.parse(&["--config", "server.toml"], &[]).unwrap_err();
        assert_eq!(refusal.hint, None, "{refusal}");
    }
}

/// Regardless of the refusal's text.
#[test]
fn a_refusal_shows_whether_a_flag_or_setting_is_wrong() {
    let files = [
        ("wrong.toml", "memory_limit = \"x\"\n"),
        ("wrong.conf", "-m x\n"),
        ("large.toml", "port = 1\nmax_item_size = \"40m\"\n"),
        ("small.toml", "memory_limit = 2\n"),
    ];
    let folder = Folder::new(&files);
    let refusal =
        |arguments: &[&str], variables: &[_]| folder.parse(arguments, variables).unwrap_err();
    for arguments in [
        &["-m", "x"][..],
        &["--memry-limit"],
        &["word"],
        &["-o", "stripe=4"],
        &["-I", "40m"],
        &["--config", "wrong.toml", "--config", "wrong.conf"],
        // The command line's value does not fit the file's.
        &["--config", "small.toml", "-I", "2m"],
    ] {
        assert_eq!(refusal(arguments, &[]).cause, Cause::Flag, "{arguments:?}");
    }
    for file in ["wrong.toml", "wrong.conf", "none.toml", "large.toml"] {
        let refusal = refusal(&["--config", file], &[]);
        assert_eq!(refusal.cause, Cause::Setting, "{file}");
    }
    assert_eq!(refusal(&[], &[("MEMORY_LIMIT", "x")]).cause, Cause::Setting);
    let unfit = refusal(&["--config", "large.toml"], &[]).message;
    assert_eq!(unfit, "large.toml:2: -I: an item cannot be larger than half of -m");
    let unfit = refusal(&[], &[("MAX_ITEM_SIZE", "40m")]);
    let want = "HOLDALL_MAX_ITEM_SIZE: -I: an item cannot be larger than half of -m";
    assert_eq!((unfit.cause, unfit.message.as_str()), (Cause::Setting, want));
}

#[test]
fn check_reports_every_error_with_its_position() {
    let text = "port = 65536\nthreads = \"4\"\nhashpower = 20\nno_sampling = true\nlisten = [1]\n\
                daemon = true\ndisable-cas = true\neviction = \"fifo\"\nconn_limit = 0x10\n";
    let found: Vec<_> = check(text)
        .into_iter()
        .map(|fault| (place(text, fault.span.start), fault.message, fault.hint.unwrap_or_default()))
        .collect();
    let want = [
        ((1, 8), "port: 65536 is too large: the most is 65535", "TCP port"),
        ((2, 11), "threads: a string where a whole number is expected", "worker threads"),
        ((3, 1), "there is no setting 'hashpower'", "hashpower cannot stand in a file: the hash"),
        (
            (4, 1),
            "there is no setting 'no_sampling'",
            "no_sampling cannot stand in a file: say false",
        ),
        ((5, 10), "listen: an integer where a string is expected", "interfaces"),
        (
            (6, 1),
            "there is no setting 'daemon'",
            "daemon cannot stand in a file: it is for one start",
        ),
        ((7, 1), "there is no setting 'disable-cas'", "did you mean disable_cas?"),
        ((8, 12), "eviction: 'fifo' is not one of auto, bag and lru", "which item goes"),
    ];
    assert_eq!(found.len(), want.len(), "{found:#?}");
    for ((at, message, hint), (want_at, want_message, want_hint)) in found.iter().zip(want) {
        assert_eq!((*at, message.as_str()), (want_at, want_message));
        assert!(hint.starts_with(want_hint), "{hint}");
    }
}

#[test]
fn check_validates_settings_in_combination() {
    let text = "memory_limit = 64\nmax_item_size = \"40m\"\n";
    let faults = check(text);
    assert_eq!(faults.len(), 1);
    assert_eq!(place(text, faults[0].span.start), (2, 1));
    assert_eq!(faults[0].message, "-I: an item cannot be larger than half of -m");
    assert_eq!(check("memory_limit = 64\n"), []);
    assert_eq!(place("a\nb = [", check("a\nb = [")[0].span.start).0, 1);
}

#[test]
fn every_setting_can_be_given_in_a_file_and_by_a_variable() {
    for setting in settings() {
        let (in_file, plain) = match (setting.key.as_str(), setting.kind) {
            (_, Kind::Switch) => ("true", "true"),
            (_, Kind::Count) => ("2", "2"),
            ("slab_growth_factor", _) => ("1.5", "1.5"),
            (_, Kind::Fraction) => ("0.5", "0.5"),
            ("max_item_size", _) => ("\"2k\"", "2k"),
            (_, Kind::Size) => ("\"64m\"", "64m"),
            ("slab_automove" | "ssl_verify_mode" | "ssl_min_version", _) => ("0", "0"),
            ("stripes", _) => ("64", "64"),
            (_, Kind::Number) => ("100", "100"),
            (_, Kind::List) => ("[\"127.0.0.1\", \"::1\"]", "127.0.0.1,::1"),
            ("unix_mask", _) => ("\"0770\"", "0770"),
            ("protocol" | "affinity" | "eviction", _) => ("\"auto\"", "auto"),
            ("log_format", _) => ("\"json\"", "json"),
            ("log_filter", _) => ("\"warn\"", "warn"),
            ("prefix_delimiter", _) => ("\"/\"", "/"),
            ("metrics", _) => ("\"127.0.0.1:9150\"", "127.0.0.1:9150"),
            ("console", _) => ("\"127.0.0.1:8811\"", "127.0.0.1:8811"),
            ("otlp", _) => ("\"http://c:4318\"", "http://c:4318"),
            ("ssl_ciphers", _) => {
                ("\"ECDHE-RSA-AES128-GCM-SHA256\"", "ECDHE-RSA-AES128-GCM-SHA256")
            }
            (_, Kind::Text) => ("\"/tmp/x\"", "/tmp/x"),
        };
        let key = &setting.key;
        let (entries, faults) = file::read(&format!("{key} = {in_file}\n"));
        assert_eq!((entries.len(), &faults[..]), (1, &[][..]), "{key}");
        let mut draft = draft::Draft::new(Style::Holdall);
        assert!(setting.apply(&mut draft, &[plain.to_owned()]).is_ok(), "{key}");
    }
}

#[test]
fn setting_names_are_unique() {
    let mut keys: Vec<_> = settings().into_iter().map(|setting| setting.key).collect();
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all);
    assert!(all > 60, "{all}");
}

//! Files imported by a configuration: those of a refused one are watched, too.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;

use common::{ask, proxy, stat};
use testkit::{eventually, replace_file};

/// A configuration that answers with a name, and imports a pool's file.
fn config(name: &str, pool: &str) -> String {
    format!(r#"{{"pools": {{"A": "file:{pool}"}}, "route": "ErrorRoute|{name}"}}"#)
}

const POOL: &str = r#"{"servers": ["127.0.0.1:1"]}"#;

#[test]
fn a_broken_or_missing_new_import_is_loaded_once_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    replace_file(&path("first.json"), POOL);
    replace_file(&path("main.json"), &config("first", "first.json"));
    let main = path("main.json").display().to_string();
    let address = proxy(&["-f", &main]).unwrap();
    let answers = |name: &str| ask(address, "get k\r\n") == format!("SERVER_ERROR {name}\r\n");
    assert!(answers("first"));
    let (broken, missing) = (path("broken.json"), path("missing.json"));
    replace_file(&broken, r#"{"servers": ["#);
    for (name, file) in [("broken", &broken), ("missing", &missing)] {
        let failures = stat(address, "config_failures");
        replace_file(&path("main.json"), &config(name, &format!("{name}.json")));
        eventually("it is refused", || stat(address, "config_failures") > failures);
        assert!(!answers(name));
        replace_file(file, POOL);
        eventually("it is mended", || answers(name));
    }
    // The files of the configuration in use are watched in the meantime.
    let failures = stat(address, "config_failures");
    replace_file(&path("main.json"), &config("last", "nowhere.json"));
    eventually("it is refused", || stat(address, "config_failures") == failures + 1);
    replace_file(&path("main.json"), &config("first", "first.json"));
    eventually("the old one is back", || answers("first"));
}

/// The saved configuration, whose files are others, is in use until then.
#[test]
fn an_import_broken_at_startup_is_loaded_once_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (main, root) = (path("main.json").display().to_string(), path("dumps"));
    let arguments = ["-f", &*main, "--config-dump-root", root.to_str().unwrap()];
    replace_file(&path("main.json"), r#"{"route": "ErrorRoute|kept"}"#);
    proxy(&arguments).unwrap();
    eventually("it is kept", || root.join("holdall-0.json").exists());
    replace_file(&path("main.json"), &config("mended", "pool.json"));
    replace_file(&path("pool.json"), "{");
    let address = proxy(&arguments).unwrap();
    assert_eq!(ask(address, "get k\r\n"), "SERVER_ERROR kept\r\n");
    replace_file(&path("pool.json"), POOL);
    eventually("it is mended", || ask(address, "get k\r\n") == "SERVER_ERROR mended\r\n");
    // The first proxy still runs, and may be saving the same configuration now.
    eventually("the folder is gone", || fs::remove_dir_all(folder.path()).is_ok());
}

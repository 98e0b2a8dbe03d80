//! `--config-dump-root`: the last good configuration replaces an unusable one at the start.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;

use common::{ask, proxy, stat};
use testkit::eventually;

#[test]
fn the_last_good_configuration_replaces_an_unusable_one() {
    let folder = std::env::temp_dir().join(format!("router-dumps-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let (main, pool, root) = (path("main.json"), path("pool.json"), path("dumps/inner"));
    let good = r#"{"pools": {"A": "file:pool.json"}, "route": "ErrorRoute|first"}"#;
    fs::write(&main, good).unwrap();
    fs::write(&pool, r#"{"servers": ["127.0.0.1:1"]}"#).unwrap();
    let arguments = ["-f", &*main, "--config-dump-root", &*root];
    let first = proxy(&arguments).unwrap();
    assert_eq!(ask(first, "get k\r\n"), "SERVER_ERROR first\r\n");
    assert_eq!(stat(first, "configs_from_disk"), 0);
    // Later good configurations are saved, too; wrong ones are not.
    fs::write(&main, good.replace("first", "second")).unwrap();
    let dump = path("dumps/inner/holdall-0.json");
    eventually("it is kept", || fs::read_to_string(&dump).unwrap().contains("second"));
    fs::write(&main, r#"{"route": "NoRoute|third"}"#).unwrap();
    eventually("it is refused", || stat(first, "config_failures") > 0);
    assert!(!fs::read_to_string(&dump).unwrap().contains("third"));

    // Including its imports.
    fs::remove_file(&pool).unwrap();
    let second = proxy(&arguments).unwrap();
    assert_eq!(ask(second, "get k\r\n"), "SERVER_ERROR second\r\n");
    assert_eq!(stat(second, "configs_from_disk"), 1);
    assert!(ask(second, "get __mcrouter__.pools\r\n").contains("127.0.0.1:1"));
    fs::remove_file(&main).unwrap();
    assert!(proxy(&arguments).is_ok());
    // As soon as there is a good one again, it applies.
    fs::write(&main, r#"{"route": "ErrorRoute|fourth"}"#).unwrap();
    eventually("it is taken", || ask(second, "get k\r\n") == "SERVER_ERROR fourth\r\n");

    // Too old, not enabled, or only a check of the present one.
    fs::write(&main, "{").unwrap();
    let with = |more: &[&str]| proxy(&[&arguments[..], more].concat());
    let error = with(&["--max-dumped-config-age", "0"]).unwrap_err();
    assert!(error.contains("main.json:1:") && error.contains("s old"), "{error}");
    assert!(with(&["--validate-config=run"]).is_err());
    assert!(proxy(&["-f", &main]).is_err());
    fs::remove_dir_all(&folder).unwrap();
}

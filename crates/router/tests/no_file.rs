//! A FIFO instead of a file: reading it is refused, and nothing waits for its other end.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{ask, proxy, stat};
use tempfile::TempDir;
use testkit::{eventually, replace_file};

const NULL: &str = r#"{"route": "NullRoute"}"#;
const ERROR: &str = r#"{"route": "ErrorRoute"}"#;

/// The path of a file in this folder.
fn file(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn put_fifo(path: &str) {
    let part = format!("{path}.part");
    assert!(Command::new("mkfifo").arg(&part).status().unwrap().success());
    fs::rename(part, path).unwrap();
}

#[test]
fn a_configuration_that_is_not_a_regular_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(&folder, "c.json");
    replace_file(file.as_ref(), NULL);
    let address = proxy(&["-f", &file]).unwrap();
    assert_eq!(ask(address, "get a\r\n"), "END\r\n");
    put_fifo(&file);
    eventually("it is refused", || stat(address, "config_failures") == 1);
    replace_file(file.as_ref(), ERROR);
    eventually("the next is taken", || ask(address, "get a\r\n").contains("ERROR"));
}

#[test]
fn startup_refuses_files_that_are_not_regular() {
    let folder = tempfile::tempdir().unwrap();
    let (file, kept, fifo) =
        (file(&folder, "c.json"), file(&folder, "kept"), file(&folder, "fifo"));
    put_fifo(&fifo);
    for flag in ["-f", "--runtime-vars-file", "--server-auth-file"] {
        let words = ["--config-str", NULL, flag, &fifo];
        let words = if flag == "-f" { &words[2..] } else { &words[..] };
        let why = proxy(words).unwrap_err();
        assert!(why.contains("it is not a regular file"), "{flag}: {why}");
    }
    // The saved copy is also a FIFO.
    replace_file(file.as_ref(), NULL);
    let words = ["-f", &file, "--config-dump-root", &kept];
    proxy(&words).unwrap();
    let dump = Path::new(&kept).join("holdall-0.json");
    put_fifo(&dump.display().to_string());
    replace_file(file.as_ref(), "{");
    let why = proxy(&words).unwrap_err();
    assert!(why.contains("holdall-0.json: it is no dump"), "{why}");
}

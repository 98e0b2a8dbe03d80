//! `holdall passwd`: a line for the file of users, from a password on stdin.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use serde_json::json;
use usage::EXIT_USAGE;

use crate::{asks_version, commands, fail, print};

const HELP: &str = "\
Makes a line for the file of users (serve -Y): the name, and a verifier that gives the password away to nobody.

Usage: holdall passwd [--json] USER

The password is the first line of stdin.

  --json  an object of user and verifier

Examples:
  holdall passwd app <password.txt >>users
";

/// Reads a password from stdin, and prints the line of the users file with which `USER` can log in.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words: Vec<OsString> = arguments.collect();
    if asks_version(words.first()) {
        return print(&commands::version_of("passwd"));
    }
    if words.first().is_some_and(|word| word == "-h" || word == "--help") {
        return print(HELP);
    }
    let count = words.len();
    words.retain(|word| word != "--json");
    let is_json = words.len() < count;
    let [user] = words.as_slice() else {
        return refuse("name one user; the password is read from stdin");
    };
    let Some(user) = user.to_str() else {
        return refuse("the name of the user is no text");
    };
    if user.starts_with('-') {
        let hint = usage::hint(user, ["--json", "--help", "--version"]);
        let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        return refuse(&format!("there is no flag {user}{hint}"));
    }
    let mut password = String::new();
    if let Err(error) = io::stdin().read_line(&mut password) {
        return fail("holdall", &format!("passwd: {error}"), 1);
    }
    let password = password.trim_end_matches(['\r', '\n']);
    match access::users_line(user, password.as_bytes()) {
        Ok(line) if is_json => print(&object(&line)),
        Ok(line) => print(&format!("{line}\n")),
        Err(why) => refuse(&why.to_string()),
    }
}

/// A line of the file of users as JSON.
fn object(line: &str) -> String {
    let (user, verifier) = line.split_once(':').unwrap_or((line, ""));
    format!("{:#}\n", json!({ "user": user, "verifier": verifier }))
}

fn refuse(why: &str) -> ExitCode {
    fail("holdall", &format!("passwd: {why}"), EXIT_USAGE)
}

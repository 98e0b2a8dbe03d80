//! The `holdall` program: wiring only.
//!
//! `holdall COMMAND FLAGS`; a copy or link named `memcached` takes memcached's command line directly.
//! A fatal error is printed once, here, and becomes the exit status.
#![forbid(unsafe_code)]

use std::alloc::System;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use router::options::Parser;
use server::options::{self, EXIT_USAGE, Environment, Invocation, Style};

/// What clients cause to be allocated must not end the server when the system refuses it.
#[global_allocator]
static ALLOCATOR: reserve::Allocator<System> = reserve::Allocator::new(System);

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let program = arguments.next().unwrap_or_default();
    if is_named(&program, "memcached") {
        return serve(Style::Memcached, arguments);
    }
    for (name, command) in [("memtier_benchmark", "memtier"), ("mcblaster", "mcblaster")] {
        if is_named(&program, name) {
            return bench::cli::main(std::iter::once(OsString::from(command)).chain(arguments));
        }
    }
    match arguments.next().as_deref().map(|word| word.to_string_lossy()).as_deref() {
        Some("serve") => serve(Style::Holdall, arguments),
        Some("plan") => plan::cli::main(arguments),
        Some("bench") => bench::cli::main(arguments),
        Some("demo") => demo::cli::main(arguments),
        Some("watch") => watch::cli::main(arguments),
        Some("passwd") => passwd(arguments),
        Some("route") => route(arguments),
        Some("invalidate") => invalidator::cli::main(arguments),
        Some("check") => say(&routeconf::cli::check(text(arguments))),
        Some("spool") => {
            let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
            ExitCode::from(spool::cli::main(text(arguments), &mut out, &mut err))
        }
        Some("explain") => say(&routeconf::cli::explain(text(arguments))),
        Some("-h" | "--help" | "help") => print(HELP),
        Some("-V" | "--version") => print(concat!("holdall ", env!("CARGO_PKG_VERSION"), "\n")),
        Some(other) => {
            fail("holdall", &format!("there is no command '{other}'; see holdall --help"), 1)
        }
        None => fail("holdall", "a command is missing; see holdall --help", EXIT_USAGE),
    }
}

/// Reads a password from stdin, and prints the line of the users file that lets `USER` in by it.
fn passwd(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (user, rest) = (arguments.next(), arguments.next());
    let (Some(user), None) = (user.as_deref().and_then(|user| user.to_str()), rest) else {
        return fail(
            "holdall",
            "passwd: name one user; the password is read from stdin",
            EXIT_USAGE,
        );
    };
    if matches!(user, "-h" | "--help") {
        return print(PASSWD_HELP);
    }
    let mut password = String::new();
    if let Err(error) = io::stdin().read_line(&mut password) {
        return fail("holdall", &format!("passwd: {error}"), 1);
    }
    let password = password.trim_end_matches(['\r', '\n']);
    match server::auth::users_line(user, password.as_bytes()) {
        Ok(line) => print(&format!("{line}\n")),
        Err(why) => fail("holdall", &format!("passwd: {why}"), EXIT_USAGE),
    }
}

fn is_named(program: &OsString, wanted: &str) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == wanted)
}

fn serve(style: Style, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = match style {
        Style::Holdall => "holdall",
        Style::Memcached => "memcached",
    };
    let environment = Environment {
        cpus: thread::available_parallelism().map_or(1, usize::from),
        port_file: env::var_os("MEMCACHED_PORT_FILENAME").map(PathBuf::from),
        sasl_users: env::var_os("MEMCACHED_SASL_PWDB").map(PathBuf::from),
    };
    match options::parse(style, arguments, &environment) {
        Err(refusal) => fail(name, &refusal.message, refusal.status),
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Run { options, warnings }) => {
            for warning in warnings {
                complain(name, &format!("warning: {warning}"));
            }
            match server::run::run(*options) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => fail(name, &failure.message, failure.status),
            }
        }
    }
}

fn route(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = "holdall route";
    let line = std::iter::once(OsString::from(name)).chain(arguments);
    let (line, told) = router::unused::without(line);
    let options = match router::options::Options::try_parse_from(line) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return print(&error.to_string()),
        Err(error) => return fail(name, error.to_string().trim_end(), EXIT_USAGE),
    };
    let log = |line: &str| complain(name, line);
    told.iter().for_each(|line| log(line));
    let started = |control: &net::Control| {
        for address in control.tcp_addresses() {
            complain(name, &format!("listening on {address}"));
        }
    };
    match router::run::run(options, log, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(name, &failure.message, failure.status),
    }
}

/// Arguments as text; what is no text names no file of ours.
fn text(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = String> {
    arguments.map(|argument| argument.to_string_lossy().into_owned())
}

/// Prints what a command has to say and ends with its status.
fn say(said: &routeconf::cli::Said) -> ExitCode {
    // Nobody is left to tell when stderr is closed.
    let _ = io::stderr().write_all(said.err.as_bytes());
    let printed = print(&said.out);
    if said.status == 0 { printed } else { ExitCode::from(said.status) }
}

/// A reader that went away, as `head` does, is no failure.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn fail(name: &str, message: &str, status: u8) -> ExitCode {
    complain(name, message);
    ExitCode::from(status)
}

fn complain(name: &str, line: &str) {
    // Nobody is left to tell when stderr is closed.
    let _ = writeln!(io::stderr(), "{name}: {line}");
}

const PASSWD_HELP: &str = "\
Makes a line for the file of users (serve -Y): the name, and a verifier that gives the password away to nobody.

Usage: holdall passwd USER

The password is the first line of stdin.

Examples:
  holdall passwd app <password.txt >>users
";

const HELP: &str = concat!(
    "holdall ",
    env!("CARGO_PKG_VERSION"),
    "
A memory cache that speaks memcached's protocols.

Usage: holdall COMMAND [FLAG]..

Commands:
  serve    the cache server
  route    the proxy before many servers
  check    says what is wrong with a proxy's configuration
  explain  shows the way of a key through a proxy's configuration
  invalidate  deletes cached keys as the database's log tells
  watch    shows live what a server or a proxy is asked
  spool    shows the deletes that a proxy keeps for servers that are away
  bench    measures memcached, Redis and Valkey servers
  demo     runs two regions with databases and users here, to be seen and broken
  plan     makes units, manifests and configurations from one topology file
  passwd   makes a line for the file of users (serve -Y)

Each has --help. Under the name memcached, memtier_benchmark or mcblaster, holdall takes that program's command line.

Examples:
  holdall serve                                 64 MB on 127.0.0.1:11211
  holdall serve --config /etc/memcached.conf    a Debian memcached's flags
  holdall passwd app <password.txt >>users      the password is kept as a verifier
  holdall route -f mcrouter.json -p 5000        a proxy on 127.0.0.1:5000
"
);

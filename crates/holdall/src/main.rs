//! The `holdall` program: wiring only.
//!
//! `holdall COMMAND FLAGS`; a copy or link named `memcached` accepts memcached's command line
//! directly. A fatal error is printed once, here, and becomes the exit status.
#![forbid(unsafe_code)]

mod commands;
mod interface;
#[cfg(feature = "serve")]
mod passwd;
mod version;

#[cfg(not(target_env = "musl"))]
use std::alloc::System as Inner;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
#[cfg(feature = "serve")]
use std::sync::Arc;

#[cfg(target_env = "musl")]
use mimalloc::MiMalloc as Inner;
#[cfg(feature = "serve")]
use options::{Environment, Invocation, Refusal, Style};
use reserve::{Allocator, Mapped};
#[cfg(feature = "route")]
use router::options::Parser;
#[cfg(feature = "serve")]
use server::run::Settled;
use usage::EXIT_USAGE;

/// A refused allocation that a client causes must not end the server, and memory that clients used
/// must not stay after they have gone.
#[global_allocator]
static ALLOCATOR: Allocator<Mapped<Inner>> = Allocator::new(Mapped::new(Inner));

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let program = arguments.next().unwrap_or_default();
    match file_name(&program) {
        #[cfg(feature = "serve")]
        "memcached" => return serve(Style::Memcached, arguments),
        #[cfg(feature = "route")]
        "mcrouter" => return route(arguments),
        #[cfg(feature = "bench")]
        "memtier_benchmark" => return bench_as("memtier", arguments),
        #[cfg(feature = "bench")]
        "mcblaster" => return bench_as("mcblaster", arguments),
        other => {
            if let Some(command) = commands::behind(other) {
                return fail(other, &commands::unavailable(command), EXIT_USAGE);
            }
        }
    }
    run(arguments.collect())
}

/// Runs the command named by the first word.
fn run(words: Vec<OsString>) -> ExitCode {
    let mut arguments = words.into_iter();
    match arguments.next().as_deref().map(|word| word.to_string_lossy()).as_deref() {
        #[cfg(feature = "serve")]
        Some("serve") => serve(Style::Holdall, arguments),
        #[cfg(feature = "migrate")]
        Some("migrate") => migrate::cli::main(arguments),
        #[cfg(feature = "serve")]
        Some("config") => config::cli::main(arguments),
        #[cfg(feature = "plan")]
        Some("plan") => plan::cli::main(arguments),
        #[cfg(feature = "doctor")]
        Some("doctor") => doctor::cli::main(arguments),
        #[cfg(feature = "bench")]
        Some("bench") => bench::cli::main(arguments),
        #[cfg(feature = "demo")]
        Some("demo") => demo::cli::main(arguments),
        #[cfg(any(feature = "serve", feature = "route"))]
        Some("watch") => watch::cli::main(arguments),
        #[cfg(feature = "serve")]
        Some("passwd") => passwd::main(arguments),
        #[cfg(feature = "route")]
        Some("route") => route(arguments),
        #[cfg(feature = "invalidate")]
        Some("invalidate") => invalidator::cli::main(arguments),
        #[cfg(feature = "route")]
        Some("check") => say(&routeconf::cli::check(text(arguments))),
        #[cfg(any(feature = "route", feature = "invalidate"))]
        Some("spool") => {
            let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
            ExitCode::from(spool::cli::main(text(arguments), &mut out, &mut err))
        }
        #[cfg(feature = "route")]
        Some("explain") => say(&routeconf::cli::explain(text(arguments))),
        #[cfg(feature = "tools")]
        Some("top") => top::cli::main(arguments),
        #[cfg(feature = "console")]
        Some("console") => console::cli::main(arguments),
        #[cfg(feature = "tools")]
        Some(name @ ("ping" | "latency" | "keys" | "bigkeys" | "dump" | "restore" | "cp")) => {
            tools::cli::main(name, arguments)
        }
        Some("completions") => completions(&arguments.collect::<Vec<_>>()),
        Some("man") => man(&arguments.collect::<Vec<_>>()),
        Some("help") if arguments.len() > 0 => {
            run(arguments.chain([OsString::from("--help")]).collect())
        }
        Some("-h" | "--help" | "help") => print(&commands::help()),
        Some("version") => version(&text(arguments).collect::<Vec<_>>()),
        Some("-V" | "--version") => print(concat!("holdall ", env!("CARGO_PKG_VERSION"), "\n")),
        Some(other) => fail("holdall", &commands::unavailable(other), EXIT_USAGE),
        None => fail("holdall", "a command is missing; see holdall --help", EXIT_USAGE),
    }
}

/// Prints the version.
fn version(words: &[String]) -> ExitCode {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => print(&version::text()),
        ["--json"] => print(&version::object()),
        ["-h" | "--help"] => print(version::HELP),
        ["-V" | "--version"] => print(&commands::version_of("version")),
        ["--json", word, ..] | [word, ..] => {
            let hint = usage::hint(word, ["--json", "--help", "--version"]);
            let hint = hint.unwrap_or_else(|| "see holdall version --help".to_owned());
            fail("holdall version", &format!("there is no {word}; {hint}"), EXIT_USAGE)
        }
    }
}

/// Prints the completions for a shell.
fn completions(words: &[OsString]) -> ExitCode {
    if asks_version(words.first()) {
        return print(&commands::version_of("completions"));
    }
    if words.first().is_some_and(|word| word == "-h" || word == "--help") {
        return print(interface::COMPLETIONS_HELP);
    }
    match interface::completions(words) {
        Ok(script) => print(&script),
        Err(why) => fail("holdall", &why, EXIT_USAGE),
    }
}

/// Writes the manual into the named folder.
fn man(words: &[OsString]) -> ExitCode {
    if asks_version(words.first()) {
        return print(&commands::version_of("man"));
    }
    match words {
        [word] if word == "-h" || word == "--help" => print(interface::MAN_HELP),
        [folder] if !folder.to_string_lossy().starts_with('-') => {
            match interface::manual(Path::new(folder)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => fail("holdall", &format!("man: {}: {error}", folder.display()), 1),
            }
        }
        _ => fail("holdall", "man: name one folder; see holdall man --help", EXIT_USAGE),
    }
}

/// `true` for the flags that request a version.
fn asks_version(word: Option<&OsString>) -> bool {
    word.is_some_and(|word| word == "-V" || word == "--version")
}

/// The last part of the program's path; empty if it is not text.
fn file_name(program: &OsString) -> &str {
    Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Runs `holdall bench` as another program, by that program's command line.
#[cfg(feature = "bench")]
fn bench_as(command: &str, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    bench::cli::main(std::iter::once(OsString::from(command)).chain(arguments))
}

#[cfg(feature = "serve")]
fn serve(style: Style, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = match style {
        Style::Holdall => "holdall",
        Style::Memcached => "memcached",
    };
    let environment = Environment::of_process();
    let arguments: Vec<OsString> = arguments.collect();
    match options::parse(style, arguments.iter().cloned(), &environment) {
        Err(refusal) => {
            let format = options::log_format(&arguments, &environment);
            logging::fatal(name, format, &refusal.message, refusal.hint.as_deref());
            ExitCode::from(refusal.status)
        }
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Run { options, warnings, given, files }) => {
            server::run::tell(&options, &warnings);
            let again = move || match options::parse(style, arguments.clone(), &environment)? {
                Invocation::Run { options, given, files, .. } => {
                    Ok(Settled { options: *options, given, files })
                }
                // Its output would have been printed at the start.
                Invocation::Print(message) => Err(Refusal::of_flag(message)),
            };
            let format = options.log_format;
            let settled = Settled { options: *options, given, files };
            match server::run::run_by(settled, Some(Arc::new(again))) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    logging::fatal(name, format, &failure.message, failure.hint);
                    ExitCode::from(failure.status)
                }
            }
        }
    }
}

#[cfg(feature = "route")]
fn route(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = "holdall route";
    let line: Vec<_> = std::iter::once(OsString::from(name)).chain(arguments).collect();
    let as_asked = logging::Format::of_arguments(&line).unwrap_or_default();
    let (line, told) = router::ignored_flags::without(line.into_iter());
    if let Some(reason) = router::ignored_flags::refused(&line) {
        logging::fatal(name, as_asked, &reason, None);
        return ExitCode::from(EXIT_USAGE);
    }
    let options = match router::options::Options::try_parse_from(line) {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => return print(&error.to_string()),
        Err(error) if as_asked == logging::Format::Json => {
            let text = error.to_string();
            let message = text.lines().next().unwrap_or_default();
            let message = message.strip_prefix("error: ").unwrap_or(message);
            let hint = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
            logging::fatal(name, as_asked, message, hint);
            return ExitCode::from(EXIT_USAGE);
        }
        Err(error) => return fail(name, error.to_string().trim_end(), EXIT_USAGE),
    };
    let format = options.log_format;
    logging::start(name, format, &options.log_filter);
    let mut log_writer = None;
    let log = |line: &str| logging::told(logging::Part::Route, line);
    told.iter().for_each(|line| log(line));
    let started = |control: &net::Control| {
        for address in control.tcp_addresses() {
            log(&format!("listening on {address}"));
        }
        // The messages about the start have been written by then.
        match logging::Writer::start(name) {
            Ok(writer) => log_writer = Some(writer),
            Err(error) => {
                log(&format!("cannot start the log thread ({error}); log lines may delay clients"))
            }
        }
    };
    let end = router::run::run(options, log, started);
    drop(log_writer);
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logging::fatal(name, format, &failure.message, None);
            ExitCode::from(failure.status)
        }
    }
}

/// Arguments as text; other arguments name no file of ours.
fn text(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = String> {
    arguments.map(|argument| argument.to_string_lossy().into_owned())
}

/// Prints a command's output and ends with its status.
#[cfg(feature = "route")]
fn say(said: &routeconf::cli::Said) -> ExitCode {
    // When stderr is closed, there is no other place to report to.
    let _ = io::stderr().write_all(said.err.as_bytes());
    let printed = print(&said.out);
    if said.status == 0 { printed } else { ExitCode::from(said.status) }
}

/// A closed pipe, as with `head`, is no failure.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

fn fail(name: &str, message: &str, status: u8) -> ExitCode {
    eprint_error(name, message);
    ExitCode::from(status)
}

fn eprint_error(name: &str, line: &str) {
    // When stderr is closed, there is no other place to report to.
    let _ = writeln!(io::stderr(), "{name}: {line}");
}

//! The commands of the program and the features that they need: `--help`, and the error for a
//! command that is unknown or not in this build.

use std::fmt::Write as _;

/// A command, as listed in `--help`.
#[derive(Clone, Copy, Debug)]
struct Command {
    name: &'static str,
    about: &'static str,
    /// The feature that installs it.
    feature: &'static str,
    /// True if this build has it.
    is_built: bool,
}

const fn command(
    name: &'static str,
    about: &'static str,
    feature: &'static str,
    is_built: bool,
) -> Command {
    Command { name, about, feature, is_built }
}

const SERVE: bool = cfg!(feature = "serve");
const ROUTE: bool = cfg!(feature = "route");
const INVALIDATE: bool = cfg!(feature = "invalidate");
const BENCH: bool = cfg!(feature = "bench");
const DEMO: bool = cfg!(feature = "demo");
const DOCTOR: bool = cfg!(feature = "doctor");
const PLAN: bool = cfg!(feature = "plan");

const TOOLS: bool = cfg!(feature = "tools");

const CONSOLE: bool = cfg!(feature = "console");

const MIGRATE: bool = cfg!(feature = "migrate");

const COMMANDS: [Command; 23] = [
    command("serve", "the cache server", "serve", SERVE),
    command("config", "checks, shows and compares the server's settings", "serve", SERVE),
    command(
        "migrate",
        "takes over the settings of memcached, Redis or another proxy",
        "migrate",
        MIGRATE,
    ),
    command("route", "the proxy in front of many servers", "route", ROUTE),
    command("check", "says what is wrong with a proxy's configuration", "route", ROUTE),
    command("explain", "shows how a proxy's configuration routes a key", "route", ROUTE),
    command(
        "invalidate",
        "deletes the cached keys of rows that change in a database",
        "invalidate",
        INVALIDATE,
    ),
    command("watch", "shows the requests to a server or a proxy live", "serve", SERVE || ROUTE),
    command(
        "spool",
        "shows the deletes that a proxy keeps for servers that are away",
        "route",
        ROUTE || INVALIDATE,
    ),
    command("bench", "measures memcached, Redis and Valkey servers", "bench", BENCH),
    command(
        "demo",
        "runs a two-region deployment on this machine, in which you can cause failures",
        "demo",
        DEMO,
    ),
    command("plan", "sizes a tier; makes units and manifests from one topology file", "plan", PLAN),
    command(
        "doctor",
        "finds settings of this host that cost speed, memory or safety",
        "doctor",
        DOCTOR,
    ),
    command("top", "shows the state of all servers and proxies live", "tools", TOOLS),
    command("console", "shows live on a web page how a tier is", "console", CONSOLE),
    command("ping", "asks servers whether they answer", "tools", TOOLS),
    command("latency", "measures round trips to a server", "tools", TOOLS),
    command("keys", "lists the keys of a server", "tools", TOOLS),
    command("bigkeys", "shows a server's largest items and prefixes", "tools", TOOLS),
    command("dump", "writes the items of a server to a file", "tools", TOOLS),
    command("restore", "stores the items of a dump in a server, at a pace", "tools", TOOLS),
    command("cp", "copies the items of a server into another", "tools", TOOLS),
    command("passwd", "makes a line for the file of users (serve -Y)", "serve", SERVE),
];

/// Examples, each with the command that it needs.
const EXAMPLES: [(&str, &str); 4] = [
    ("serve", "holdall serve                                 64 MB on 127.0.0.1:11211"),
    ("serve", "holdall serve --config /etc/memcached.conf    a Debian memcached's flags"),
    ("passwd", "holdall passwd app <password.txt >>users      the password is kept as a verifier"),
    ("route", "holdall route -f mcrouter.json -p 5000        a proxy on 127.0.0.1:5000"),
];

/// Programs whose command line holdall accepts under their name, each with its command.
const NAMES: [(&str, &str); 4] = [
    ("memcached", "serve"),
    ("mcrouter", "route"),
    ("memtier_benchmark", "bench"),
    ("mcblaster", "bench"),
];

/// The commands in every build.
const ALWAYS: [(&str, &str); 3] = [
    ("version", "prints the version, the commit and the features"),
    ("completions", "prints the completions for bash, zsh or fish"),
    ("man", "writes the manual's pages into a folder"),
];

/// The commands of this build, each with its description.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let built = COMMANDS.iter().filter(|command| command.is_built);
    built.map(|command| (command.name, command.about)).chain(ALWAYS)
}

/// The text of `holdall --help`.
pub(crate) fn help() -> String {
    text(&COMMANDS)
}

/// The error for a command that this build cannot run.
pub(crate) fn unavailable(name: &str) -> String {
    refusal(&COMMANDS, name)
}

/// The features of this build, in their order.
pub(crate) fn features() -> Vec<&'static str> {
    let built = COMMANDS.iter().filter(|command| command.is_built);
    let mut features: Vec<&str> = built.map(|command| command.feature).collect();
    features.sort_unstable();
    features.dedup();
    features
}

/// The line for `--version` after a command that parses its own words.
pub(crate) fn version_of(command: &str) -> String {
    format!("holdall {command} {}\n", env!("CARGO_PKG_VERSION"))
}

/// The command for a program whose command line holdall accepts under its name.
pub(crate) fn behind(program: &str) -> Option<&'static str> {
    NAMES.iter().find(|(name, _)| *name == program).map(|(_, command)| *command)
}

fn text(commands: &[Command]) -> String {
    let has = |name: &str| commands.iter().any(|command| command.name == name && command.is_built);
    let mut text = concat!(
        "holdall ",
        env!("CARGO_PKG_VERSION"),
        "\nA memory cache that speaks memcached's protocols.\n\n",
        "Usage: holdall COMMAND [FLAG]..\n\nCommands:\n"
    )
    .to_owned();
    let built = commands.iter().filter(|command| command.is_built);
    for (name, about) in built.map(|command| (command.name, command.about)).chain(ALWAYS) {
        let _ = writeln!(text, "  {name:<11}  {about}");
    }
    text.push_str("\nEach has --help.");
    let names: Vec<&str> =
        NAMES.iter().filter(|(_, command)| has(command)).map(|(name, _)| *name).collect();
    if let Some((last, others)) = names.split_last() {
        let names = if others.is_empty() {
            (*last).to_owned()
        } else {
            format!("{} or {last}", others.join(", "))
        };
        let _ = write!(text, " Under the name {names}, holdall takes that program's command line.");
    }
    text.push('\n');
    let examples: Vec<&str> =
        EXAMPLES.iter().filter(|(command, _)| has(command)).map(|(_, line)| *line).collect();
    if !examples.is_empty() {
        text.push_str("\nExamples:\n");
        examples.iter().for_each(|line| text.extend(["  ", line, "\n"]));
    }
    text
}

fn refusal(commands: &[Command], name: &str) -> String {
    match commands.iter().find(|command| command.name == name) {
        Some(command) if !command.is_built => {
            format!("this build has no `{name}`: install with --features {}", command.feature)
        }
        _ => {
            let built = commands.iter().filter(|command| command.is_built);
            let built = built.map(|command| command.name).chain(ALWAYS.map(|(name, _)| name));
            let hint = usage::hint(name, built);
            let hint = hint.unwrap_or_else(|| "see holdall --help".to_owned());
            format!("there is no command '{name}'; {hint}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands of a build with only these features.
    fn built(features: &[&str]) -> Vec<Command> {
        let of = |mut command: Command| {
            command.is_built = features.contains(&command.feature);
            command
        };
        COMMANDS.map(of).to_vec()
    }

    #[test]
    fn help_lists_only_built_commands() {
        let serve = text(&built(&["serve"]));
        let listed = |text: &str, name: &str| {
            text.lines().any(|line| line.split_whitespace().next() == Some(name))
        };
        for name in ["serve", "passwd", "watch"] {
            assert!(listed(&serve, name), "{name}:\n{serve}");
        }
        for name in ["route", "check", "explain", "invalidate", "spool", "bench", "demo", "plan"] {
            assert!(!listed(&serve, name), "{name}:\n{serve}");
        }
        assert!(serve.contains("Under the name memcached, holdall"), "{serve}");
        assert!(!serve.contains("mcrouter.json"), "{serve}");
        let plan = text(&built(&["plan"]));
        assert!(!plan.contains("Under the name") && !plan.contains("Examples:"), "{plan}");
    }

    #[test]
    fn a_command_left_out_names_its_feature() {
        let serve = built(&["serve"]);
        assert_eq!(
            refusal(&serve, "bench"),
            "this build has no `bench`: install with --features bench"
        );
        assert_eq!(
            refusal(&serve, "check"),
            "this build has no `check`: install with --features route"
        );
        assert_eq!(refusal(&serve, "x"), "there is no command 'x'; see holdall --help");
        let suggested = "there is no command 'serv'; did you mean serve?";
        assert_eq!(refusal(&serve, "serv"), suggested);
        let bench = "there is no command 'bech'";
        assert_eq!(refusal(&built(&["bench"]), "bech"), format!("{bench}; did you mean bench?"));
        assert_eq!(refusal(&serve, "bech"), format!("{bench}; see holdall --help"));
    }
}

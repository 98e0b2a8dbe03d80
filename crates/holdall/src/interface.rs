//! The whole command line as one tree, from which `holdall completions` and `holdall man` are made.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use clap::{Arg, ArgAction, Command, ValueEnum as _, value_parser};
use clap_complete::Shell;

/// The help of `holdall completions`.
pub(crate) const COMPLETIONS_HELP: &str = "\
Prints the completions of this program for a shell.

Usage: holdall completions bash|zsh|fish

Examples:
  holdall completions bash >/usr/share/bash-completion/completions/holdall
  holdall completions zsh >/usr/share/zsh/vendor-completions/_holdall
  holdall completions fish >/usr/share/fish/vendor_completions.d/holdall.fish
";

/// The help of `holdall man`.
pub(crate) const MAN_HELP: &str = "\
Writes the manual into a folder: holdall.1, and a page for each command.

Usage: holdall man FOLDER

Examples:
  holdall man /usr/local/share/man/man1
";

/// The shells with completions.
const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// The completions for the shell named by the words.
///
/// # Errors
///
/// Returns the refusal if they name none.
pub(crate) fn completions(words: &[OsString]) -> Result<String, String> {
    let shell = match words {
        [shell] => shell.to_str().and_then(|name| Shell::from_str(name, false).ok()),
        _ => None,
    };
    let Some(shell @ (Shell::Bash | Shell::Zsh | Shell::Fish)) = shell else {
        let hint = words.first().and_then(|word| usage::hint(word.to_str()?, SHELLS));
        let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        return Err(format!("completions: name one shell: bash, zsh or fish{hint}"));
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree(), "holdall", &mut script);
    String::from_utf8(script).map_err(|error| format!("completions: {error}"))
}

/// Writes the pages of the manual into a folder, which is created if it is missing.
///
/// # Errors
///
/// Returns the file system's errors.
pub(crate) fn manual(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(tree(), folder)
}

/// Every command of this build with its flags.
pub(crate) fn tree() -> Command {
    let tree = Command::new("holdall")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A memory cache that speaks memcached's protocols")
        .disable_help_subcommand(true)
        .subcommand_required(true);
    crate::commands::names().fold(tree, |tree, (name, about)| {
        let command = of_crate(name).unwrap_or_else(|| by_hand(name));
        let about = command.get_about().map_or_else(|| about.to_owned(), ToString::to_string);
        tree.subcommand(command.name(name).about(about))
    })
}

/// The commands whose crates parse with clap.
fn of_crate(name: &str) -> Option<Command> {
    match name {
        #[cfg(feature = "serve")]
        "serve" => Some(options::interface()),
        #[cfg(feature = "migrate")]
        "migrate" => Some(migrate::cli::interface()),
        #[cfg(feature = "serve")]
        "config" => Some(config::cli::interface()),
        #[cfg(feature = "route")]
        "route" => Some(<router::options::Options as clap::CommandFactory>::command()),
        #[cfg(feature = "invalidate")]
        "invalidate" => Some(invalidator::cli::interface()),
        #[cfg(any(feature = "serve", feature = "route"))]
        "watch" => Some(watch::cli::interface()),
        #[cfg(feature = "bench")]
        "bench" => Some(bench::cli::interface()),
        #[cfg(feature = "demo")]
        "demo" => Some(demo::cli::interface()),
        #[cfg(feature = "doctor")]
        "doctor" => Some(doctor::cli::interface()),
        #[cfg(feature = "plan")]
        "plan" => Some(plan::cli::interface()),
        #[cfg(feature = "console")]
        "console" => Some(console::cli::interface()),
        #[cfg(feature = "tools")]
        "top" => Some(top::cli::interface()),
        #[cfg(feature = "tools")]
        name => tools::cli::interface(name),
        #[cfg(not(feature = "tools"))]
        _ => None,
    }
}

/// The commands that parse a few words themselves. A test compares this with their help.
fn by_hand(name: &'static str) -> Command {
    let flag = |long: &'static str, value: &'static str, help: &'static str| {
        Arg::new(long).long(long).value_name(value).help(help).action(ArgAction::Set)
    };
    let word = |name: &'static str| Arg::new(name).required(true);
    let files = |name: &'static str| {
        word(name).action(ArgAction::Append).value_parser(value_parser!(std::path::PathBuf))
    };
    let prefix = flag("route-prefix", "PREFIX", "The prefix of keys without one");
    let json = Arg::new("json").long("json").help("Prints JSON").action(ArgAction::SetTrue);
    let command = Command::new(name);
    match name {
        "check" => command.arg(prefix).arg(json).arg(files("FILE")),
        "explain" => command
            .arg(flag("config", "FILE", "mcrouter's language, or twemproxy's YAML").required(true))
            .arg(flag("op", "OP", "The command: get, set, delete, lease-get, .."))
            .arg(flag("diff", "FILE", "Another configuration: what would move"))
            .arg(prefix)
            .arg(flag("host-id", "N", "The host id of the proxy, by which some routes choose"))
            .arg(json)
            .arg(word("KEY")),
        "spool" => command
            .arg(
                flag("format", "FORMAT", "How records are shown")
                    .value_parser(["text", "as1", "as2"]),
            )
            .arg(json)
            .arg(files("PATH")),
        "version" => command.arg(json),
        "passwd" => command.arg(json).arg(word("USER")),
        "completions" => command.arg(word("SHELL").value_parser(["bash", "zsh", "fish"])),
        "man" => command.arg(files("FOLDER").action(ArgAction::Set)),
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn clap_accepts_the_command_tree() {
        tree().debug_assert();
    }

    /// Commands with other programs' command lines.
    const OF_OTHERS: [&str; 4] = ["serve", "route", "memtier", "mcblaster"];

    /// The short flags of holdall's own commands, each with its long names and the commands that
    /// have it.
    fn short_flags(tree: &Command, found: &mut BTreeMap<char, BTreeMap<String, Vec<String>>>) {
        for command in tree.get_subcommands().filter(|one| !OF_OTHERS.contains(&one.get_name())) {
            for flag in command.get_arguments() {
                if let (Some(short), Some(long)) = (flag.get_short(), flag.get_long()) {
                    let commands = found.entry(short).or_default().entry(long.to_owned());
                    commands.or_default().push(command.get_name().to_owned());
                }
            }
            short_flags(command, found);
        }
    }

    #[test]
    fn a_short_flag_has_one_meaning_in_all_commands() {
        let mut found = BTreeMap::new();
        short_flags(&tree(), &mut found);
        assert!(found.len() >= 10, "{found:?}");
        found.retain(|_, meanings| meanings.len() > 1);
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn every_command_of_the_help_is_in_the_tree() {
        let tree = tree();
        for (name, _) in crate::commands::names() {
            let command = tree.find_subcommand(name).unwrap_or_else(|| panic!("{name}"));
            let has_own = command.get_arguments().next().is_some() || command.has_subcommands();
            assert!(has_own, "{name} has neither flags nor words");
            assert!(command.get_about().is_some(), "{name} is not described");
        }
    }

    #[test]
    fn completions_exist_for_known_shells() {
        for shell in ["bash", "zsh", "fish"] {
            let script = completions(&[shell.into()]).unwrap_or_else(|why| panic!("{why}"));
            for word in ["serve", "memory-limit", "route-prefix", "as1", "hitrate"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
        for words in [&[][..], &["csh".into()], &["elvish".into()], &["bash".into(), "x".into()]] {
            assert!(completions(words).is_err(), "{words:?}");
        }
    }
}

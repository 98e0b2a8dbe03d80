//! `--help` and `docs/flags.md`, made from the tables.

use std::fmt::Write;

use super::Style;
use super::extended::{EXTENDED, Extended, Value};
use super::table::{Flag, Meaning, Page, SECTIONS, flags_of};

/// A page that a flag prints, with its final newline.
#[must_use]
pub(crate) fn page(page: Page, style: Style) -> String {
    match page {
        Page::Version => title(style),
        Page::Licence => title(style) + LICENCE,
        Page::Help => help(style),
    }
}

/// The text of `docs/flags.md` about `holdall serve`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(REFERENCE_HEAD);
    for section in SECTIONS {
        let _ = writeln!(text, "\n## {}\n", section.title);
        text += "| flag | argument | default | meaning |\n| --- | --- | --- | --- |\n";
        for flag in section.flags {
            let name = match flag.short {
                Some(short) => format!("`-{short}`, `--{}`", flag.long),
                None => format!("`--{}`", flag.long),
            };
            let argument =
                flag.argument.map(|argument| format!("`{argument}`")).unwrap_or_default();
            let meaning = meaning(flag.meaning, flag.help);
            let _ = writeln!(text, "| {name} | {argument} | {} | {meaning} |", flag.default);
        }
    }
    text += EXTENDED_HEAD;
    for option in EXTENDED {
        let ours = if option.is_our_own { " (holdall's own)" } else { "" };
        let meaning = meaning(option.meaning, option.help);
        let _ = writeln!(text, "| `{}` | {} | {meaning}{ours} |", spelled(option), option.default);
    }
    text
}

/// The command with the help of each flag; refused flags and those without effect are hidden.
pub(crate) fn described(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let Some(flag) = flags_of(Style::Holdall).find(|flag| flag.long == arg.get_id().as_str())
        else {
            return arg;
        };
        let is_hidden = matches!(flag.meaning, Meaning::Refused(_) | Meaning::NoEffect(_));
        let arg = arg.help(described_flag(flag)).hide(is_hidden);
        match flag.argument {
            Some(name) => arg.value_name(name),
            None => arg,
        }
    });
    let mut extended = String::from("Extended options (-o NAME,NAME=VALUE,..):\n");
    for option in EXTENDED.iter().filter(|option| matches!(option.meaning, Meaning::Used(_))) {
        let default = default_of(option.default);
        let _ = writeln!(extended, "\n{}\n    {}{default}", spelled(option), option.help);
    }
    command.after_help(extended + EXAMPLES)
}

/// First line of help, version and licence. Test suites of clients read a memcached's version from
/// it.
fn title(style: Style) -> String {
    match style {
        Style::Holdall => format!("holdall {}\n", env!("CARGO_PKG_VERSION")),
        Style::Memcached => format!("memcached {}\n", crate::COMPATIBLE_VERSION),
    }
}

fn help(style: Style) -> String {
    let mut text = title(style);
    text += match style {
        Style::Holdall => HOLDALL_HEAD,
        Style::Memcached => MEMCACHED_HEAD,
    };
    for section in SECTIONS {
        let _ = writeln!(text, "\n{}:", section.title);
        for flag in section.flags.iter().filter(|flag| is_offered(flag, style)) {
            item(&mut text, &heading(flag), &described_flag(flag));
        }
    }
    text += "\nExtended options (-o NAME,NAME=VALUE,..):\n";
    for option in EXTENDED.iter().filter(|option| matches!(option.meaning, Meaning::Used(_))) {
        let described = format!("{}{}", option.help, default_of(option.default));
        item(&mut text, &spelled(option), &described);
    }
    text += NO_EFFECT_HEAD;
    let names: Vec<_> = EXTENDED
        .iter()
        .filter(|option| matches!(option.meaning, Meaning::NoEffect(_)))
        .map(|option| option.name)
        .collect();
    for names in names.chunks(4) {
        let _ = writeln!(text, "    {}", names.join(" "));
    }
    if style == Style::Holdall {
        text += EXAMPLES;
    }
    text
}

/// Writes a heading and, in a column next to it, its description.
fn item(text: &mut String, heading: &str, description: &str) {
    let mut line = format!("  {heading:<INDENT$}");
    for word in description.split(' ') {
        if line.len() + word.len() > HELP_WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(INDENT + 2);
        }
        line += word;
        line.push(' ');
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Refused flags are not offered; the reference lists them.
fn is_offered(flag: &Flag, style: Style) -> bool {
    !matches!(flag.meaning, Meaning::Refused(_))
        && flags_of(style).any(|offered| offered.long == flag.long)
}

fn heading(flag: &Flag) -> String {
    let short = flag.short.map_or_else(|| "    ".to_owned(), |short| format!("-{short}, "));
    match flag.argument {
        Some(argument) => format!("{short}--{}=<{argument}>", flag.long),
        None => format!("{short}--{}", flag.long),
    }
}

fn described_flag(flag: &Flag) -> String {
    match flag.meaning {
        Meaning::NoEffect(reason) => format!("no effect: {reason}"),
        _ => format!("{}{}", flag.help, default_of(flag.default)),
    }
}

fn default_of(default: &str) -> String {
    if default.is_empty() { String::new() } else { format!(" (default: {default})") }
}

fn meaning(meaning: Meaning, help: &str) -> String {
    match meaning {
        Meaning::NoEffect(reason) => format!("accepted with a warning, no effect: {reason}"),
        Meaning::Refused(reason) => format!("refused: {reason}"),
        _ => help.to_owned(),
    }
}

fn spelled(option: &Extended) -> String {
    match option.value {
        Value::None => option.name.to_owned(),
        Value::Optional(value) => format!("{}[=<{value}>]", option.name),
        Value::Required(value) => format!("{}=<{value}>", option.name),
    }
}

/// Width of the column of names.
const INDENT: usize = 32;

/// Columns of the help.
const HELP_WIDTH: usize = 100;

const HOLDALL_HEAD: &str = "The cache server: memcached's protocols, port and flags.\n\n\
Usage: holdall serve [FLAG]..\n";

const MEMCACHED_HEAD: &str =
    concat!("served by holdall ", env!("CARGO_PKG_VERSION"), "\n\nUsage: memcached [FLAG]..\n");

const NO_EFFECT_HEAD: &str = "  Accepted with a warning, without effect:\n";

const EXAMPLES: &str = "
Examples:
  holdall serve                                 64 MB on 127.0.0.1:11211
  holdall serve -m 4g -t 8 -l 10.0.0.5          4 GB, 8 workers, one interface
  holdall serve -s /run/cache.sock -a 0770      a unix socket instead of TCP
  holdall serve -o affinity=0:2:4,idle_timeout=300
  holdall serve --config /etc/memcached.conf    a Debian memcached's flags
";

const LICENCE: &str = "Copyright the holdall authors.\n\
Licensed under the Apache License, Version 2.0: https://www.apache.org/licenses/LICENSE-2.0\n\
holdall contains no code of memcached, whose names and protocols it follows.\n";

const REFERENCE_HEAD: &str = "# Flags of `holdall serve`

Names and meanings are memcached's. Under the name `memcached`, holdall takes the same flags. The
proxy's are [below](#flags-of-holdall-route). This page is made from the tables that the parsers
use, and a test compares them. After a change of a flag, `UPDATE_DOCS=1 cargo test -p holdall --test
flags_page` rewrites the page.

Short flags may be joined (`-vv`, `-dp11211`). Long ones may be shortened as long as they stay
unique. An argument may follow at once, after a space, or, on a long flag, after `=`. White space
before a value is ignored, so manifests may give `-m 1024` as one argument. When a flag that takes
one value is repeated, the last one counts. A number is read whole or refused.

A flag that only tunes a part of memcached that does not exist here is accepted with a warning on
stderr. A flag that promises something that holdall does not have is refused, with
[exit status](exit-status.md) 64. Under the name `memcached` an unknown flag ends with 1, as there.
";

const EXTENDED_HEAD: &str = "
## Extended options

`-o NAME,NAME=VALUE,..`; the flag may be repeated.

| option | default | meaning |
| --- | --- | --- |
";

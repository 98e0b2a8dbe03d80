//! `holdall check` and `holdall explain`: arguments in, text and an exit status out.

mod check;
mod draw;
mod explain;
mod explain_json;
mod offline;
mod sample;

pub use check::check;
pub use explain::explain;
pub use offline::DISCOVERED;

/// The output and exit status of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// For standard output.
    pub out: String,
    /// For standard error.
    pub err: String,
    /// 0: good; 1: warnings; 2: an unusable configuration; 64: wrong arguments.
    pub status: u8,
}

/// The configuration is good.
pub const STATUS_GOOD: u8 = 0;
/// The configuration works, with warnings.
pub const STATUS_WARNINGS: u8 = 1;
/// The configuration cannot be used.
pub const STATUS_BROKEN: u8 = 2;

impl Said {
    fn usage(command: &str, message: &str) -> Self {
        let err = format!("holdall {command}: {message}; see holdall {command} --help\n");
        Self { out: String::new(), err, status: usage::EXIT_USAGE }
    }

    fn version(command: &str) -> Self {
        let out = format!("holdall {command} {}\n", env!("CARGO_PKG_VERSION"));
        Self { out, ..Self::default() }
    }

    fn help(text: &str) -> Self {
        Self { out: text.to_owned(), err: String::new(), status: STATUS_GOOD }
    }
}

/// The message for an unknown flag, with the one probably meant.
fn unknown(name: &str, known: &[&str]) -> String {
    match usage::hint(name, known.iter().copied()) {
        Some(hint) => format!("there is no flag {name}; {hint}"),
        None => format!("there is no flag {name}"),
    }
}

/// The arguments of one command: flags with values, and words.
struct Words {
    flags: Vec<(String, String)>,
    words: Vec<String>,
    help: bool,
    version: bool,
    /// `--json`, if the command has it.
    json: bool,
}

impl Words {
    fn new(
        command: &str,
        arguments: impl Iterator<Item = String>,
        known: &[&str],
    ) -> Result<Self, Said> {
        let mut read =
            Self { flags: Vec::new(), words: Vec::new(), help: false, version: false, json: false };
        let mut arguments = arguments.peekable();
        let mut flags_end = false;
        while let Some(argument) = arguments.next() {
            if flags_end || !argument.starts_with('-') || argument == "-" {
                read.words.push(argument);
                continue;
            }
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (argument.as_str(), None),
            };
            match name {
                "--" => flags_end = true,
                "-h" | "--help" => read.help = true,
                "-V" | "--version" => read.version = true,
                "--json" if known.contains(&name) => read.json = true,
                name if known.contains(&name) => {
                    let Some(value) = value.or_else(|| arguments.next()) else {
                        return Err(Said::usage(command, &format!("{name} needs a value")));
                    };
                    read.flags.push((name.to_owned(), value));
                }
                name => return Err(Said::usage(command, &unknown(name, known))),
            }
        }
        Ok(read)
    }

    fn flag(&self, name: &str) -> Option<&str> {
        self.flags.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

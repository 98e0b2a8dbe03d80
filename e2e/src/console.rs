//! Code blocks of a page, and the comparison of a command's output with the block that shows it.
//!
//! A page's fenced blocks are of these kinds:
//!
//! * `console`: commands after `$ `, continued after `> `, each with its output. In the output, a
//!   line `...` stands for any lines and `[..]` for any text within a line. A line `? 2` is the
//!   exit status; the default is 0. A last line `^C` ends the command after it has printed the
//!   lines above.
//! * `LANGUAGE file=PATH`: the content of that file, which is written before the next block.
//! * `sh not-run: REASON`: commands that no test can run, with the reason.
//! * any other language: text that is not executed.

use thiserror::Error;

/// A fenced block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first line in the page, counted from 1.
    pub line: usize,
    /// The number of headings above it.
    pub section: usize,
    /// Its kind and content.
    pub kind: Kind,
}

/// The kinds of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Commands with their output.
    Console(Vec<Command>),
    /// A file that later commands read.
    File {
        /// The path, relative to the working folder of the commands.
        path: String,
        /// The whole content.
        content: String,
    },
    /// Anything that is not executed.
    Text,
}

/// A command of a console block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Its line in the page, counted from 1.
    pub line: usize,
    /// The text for a shell, without a final `&`.
    pub text: String,
    /// It had a final `&`.
    pub is_background: bool,
    /// SIGINT ends it after it has printed `output`.
    pub is_interrupted: bool,
    /// The expected exit status, if it is not interrupted.
    pub status: i32,
    /// The expected lines, with `...` and `[..]`.
    pub output: Vec<String>,
}

/// A line of a page that breaks the rules of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {fault}")]
pub struct BadBlock {
    /// The line in the page, counted from 1.
    pub line: usize,
    /// The rule that it breaks.
    pub fault: Fault,
}

/// The rules of blocks that a page can break.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A block is indented, not fenced.
    #[error("an indented block; fence it")]
    Indented,
    /// A block has no end.
    #[error("the block has no end")]
    NoEnd,
    /// A block names no language.
    #[error("the block names no language")]
    NoLanguage,
    /// A block that is not executed contains commands.
    #[error("commands belong into a console block")]
    NotExecuted,
    /// There is output before the first command.
    #[error("output without a command")]
    NoCommand,
    /// The text after `?` is not an exit status.
    #[error("`{0}` is no exit status")]
    NoStatus(String),
}

/// The fenced blocks of a page.
///
/// # Errors
///
/// [`BadBlock`], for a block that does not follow the rules above and for an indented block.
pub fn blocks(page: &str) -> Result<Vec<Block>, BadBlock> {
    let lines: Vec<&str> = page.lines().collect();
    let mut blocks = Vec::new();
    let mut at = 0;
    let (mut section, mut follows_blank, mut is_list) = (0, true, false);
    while at < lines.len() {
        let line = lines[at];
        let Some(info) = line.trim_start().strip_prefix("```") else {
            // In a list, indented lines belong to an entry.
            is_list = is_list && (line.is_empty() || line.starts_with(' ')) || is_entry(line);
            if follows_blank && !is_list && line.starts_with("    ") {
                return Err(BadBlock { line: at + 1, fault: Fault::Indented });
            }
            section += usize::from(line.starts_with('#'));
            follows_blank = line.is_empty();
            at += 1;
            continue;
        };
        let end = (at + 1..lines.len())
            .find(|&end| lines[end].trim() == "```")
            .ok_or(BadBlock { line: at + 1, fault: Fault::NoEnd })?;
        let kind = kind(info, at + 2, &lines[at + 1..end])?;
        blocks.push(Block { line: at + 1, section, kind });
        at = end + 1;
    }
    Ok(blocks)
}

fn is_entry(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("* ") || line.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok())
}

fn kind(info: &str, first: usize, lines: &[&str]) -> Result<Kind, BadBlock> {
    let (language, attribute) = info.split_once(' ').unwrap_or((info, ""));
    if let Some(path) = attribute.strip_prefix("file=") {
        let content = lines.iter().flat_map(|line| [line, "\n"]).collect();
        return Ok(Kind::File { path: path.to_owned(), content });
    }
    match language {
        "" => Err(BadBlock { line: first - 1, fault: Fault::NoLanguage }),
        "console" => commands(first, lines).map(Kind::Console),
        "sh" | "bash" | "shell" if !attribute.starts_with("not-run: ") => {
            Err(BadBlock { line: first - 1, fault: Fault::NotExecuted })
        }
        _ => Ok(Kind::Text),
    }
}

fn commands(first: usize, lines: &[&str]) -> Result<Vec<Command>, BadBlock> {
    let mut commands: Vec<Command> = Vec::new();
    for (line, text) in (first..).zip(lines) {
        if let Some(text) = text.strip_prefix("$ ") {
            commands.push(Command { line, text: text.to_owned(), ..Command::default() });
            continue;
        }
        let Some(command) = commands.last_mut() else {
            return Err(BadBlock { line, fault: Fault::NoCommand });
        };
        match text.strip_prefix("> ") {
            Some(more) if command.output.is_empty() => {
                command.text.push('\n');
                command.text.push_str(more);
            }
            _ => command.output.push((*text).to_owned()),
        }
    }
    for command in &mut commands {
        if let Some(text) = command.text.strip_suffix(" &") {
            command.text = text.to_owned();
            command.is_background = true;
        }
        while command.output.last().is_some_and(String::is_empty) {
            command.output.pop();
        }
        let last = command.output.last().map_or("", String::as_str);
        if last == "^C" {
            command.is_interrupted = true;
            command.output.pop();
        } else if let Some(status) = last.strip_prefix("? ") {
            command.status = status.parse().map_err(|_| BadBlock {
                line: command.line,
                fault: Fault::NoStatus(last.to_owned()),
            })?;
            command.output.pop();
        }
    }
    Ok(commands)
}

/// True if these lines match the block.
#[must_use]
pub fn matches(expected: &[String], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=lines.len()).any(|skipped| matches(rest, &lines[skipped..]))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| matches_line(first, line) && matches(rest, others)),
    }
}

fn matches_line(expected: &str, line: &str) -> bool {
    let Some((start, rest)) = expected.split_once("[..]") else { return expected == line };
    let Some(line) = line.strip_prefix(start) else { return false };
    (0..=line.len())
        .filter(|&at| line.is_char_boundary(at))
        .any(|at| matches_line(rest, &line[at..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

    use super::*;

    fn shows(expected: &str, lines: &[&str]) -> bool {
        matches(&expected.lines().map(str::to_owned).collect::<Vec<_>>(), lines)
    }

    #[test]
    fn a_page_is_parsed_into_commands_files_and_text() {
        let page = "words\n\n```json file=a.json\n{}\n```\n\n```console\n$ one\n$ two \\\n> 2\nout\n? 1\n\
                    $ three &\n```\n```rust\nlet a;\n```\n```sh not-run: needs root\nreboot\n```\n";
        let found = blocks(page).unwrap();
        assert_eq!(found.len(), 4);
        let file = Kind::File { path: "a.json".into(), content: "{}\n".into() };
        assert_eq!(found[0], Block { line: 3, section: 0, kind: file });
        let Kind::Console(commands) = &found[1].kind else { panic!("{found:?}") };
        assert_eq!(commands[0], Command { line: 8, text: "one".into(), ..Command::default() });
        assert_eq!(commands[1].text, "two \\\n2");
        assert_eq!((commands[1].status, &commands[1].output), (1, &vec!["out".to_owned()]));
        assert!(commands[2].is_background && commands[2].text == "three");
        assert_eq!((&found[2].kind, &found[3].kind), (&Kind::Text, &Kind::Text));
    }

    #[test]
    fn blocks_that_no_test_would_run_are_refused() {
        for page in [
            "```\nls\n```\n",
            "```sh\nls\n```\n",
            "```bash because\nls\n```\n",
            "```console\noutput\n```\n",
            "```console\n$ ls\n",
            "text\n\n    ls\n",
            "    ls\n",
        ] {
            assert!(blocks(page).is_err(), "{page}");
        }
        assert_eq!(blocks("* an entry\n\n    that goes on\n"), Ok(vec![]));
    }

    #[test]
    fn output_is_compared_line_by_line() {
        assert!(shows("", &[]) && !shows("", &["a"]) && !shows("a", &[]));
        assert!(shows("a\nb", &["a", "b"]) && !shows("a\nb", &["a", "c"]));
        assert!(shows("a\n...", &["a"]) && shows("a\n...\nz", &["a", "b", "c", "z"]));
        assert!(!shows("...\nz", &["a"]));
        assert!(shows("a [..] c", &["a b c"]) && !shows("a [..] c", &["a b d"]));
        assert!(shows("[..]%", &["12 %"]) && shows("[..] of [..] ns", &["é of 3 ns"]));
    }
}

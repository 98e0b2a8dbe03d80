//! Steps: commands run in order, their times, and cargo's reported number of tests.

use crate::failure::Failure;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The steps done so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration, End)>,
    tests: TestCounts,
    /// The output of failed steps: the name, and the lines with the reason.
    reasons: Vec<(String, Vec<String>)>,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    NotRun,
}

/// A command that runs in parallel with others.
#[derive(Debug)]
pub(crate) struct ParallelCommand {
    name: String,
    command: Command,
    has_tests: bool,
    next: Option<Box<Self>>,
}

impl ParallelCommand {
    /// A `cargo test` command, whose results are added up. A run without tests is a failure.
    pub(crate) fn tests(name: &str, command: Command) -> Self {
        Self { name: name.to_owned(), command, has_tests: true, next: None }
    }

    /// Any other command.
    pub(crate) fn other(name: &str, command: Command) -> Self {
        Self { name: name.to_owned(), command, has_tests: false, next: None }
    }

    /// Starts `next` as soon as this one has succeeded.
    pub(crate) fn then(self, next: Self) -> Self {
        Self { next: Some(Box::new(next)), ..self }
    }

    /// Runs it and its successors, each output line prefixed with its command's name; returns the
    /// name, time and result of each.
    fn run(self) -> Vec<(String, Duration, Ended)> {
        let mut ends = Vec::new();
        let mut next = Some(Box::new(self));
        while let Some(beside) = next.take() {
            let Self { name, mut command, has_tests, next: after } = *beside;
            announce(&name, &command);
            let start = Instant::now();
            let ended = output_of(&name, &mut command, &format!("{name} | "), has_tests);
            next = after.filter(|_| ended.outcome.is_ok());
            ends.push((name, start.elapsed(), ended));
        }
        ends
    }
}

/// The sum of cargo's `test result:` lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct TestCounts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

impl Steps {
    /// Runs one command to its end; its output goes directly to the terminal.
    pub(crate) fn run(&mut self, name: &str, mut command: Command) -> Result<(), Failure> {
        announce(name, &command);
        self.check(name, || match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::Status { step: name.to_owned(), status }),
            Err(error) => Err(Failure::command(name, &command, error)),
        })
    }

    /// Runs a `cargo test` command, whose `test result:` lines are added up. A run without tests is
    /// a failure, because it shows nothing.
    pub(crate) fn run_tests(&mut self, name: &str, mut command: Command) -> Result<(), Failure> {
        announce(name, &command);
        let start = Instant::now();
        let ended = output_of(name, &mut command, "", true);
        self.note(name, start.elapsed(), ended)
    }

    /// Runs commands in parallel, each output line prefixed with its command's name. All of them
    /// end before the first failure counts.
    pub(crate) fn run_together(&mut self, commands: Vec<ParallelCommand>) -> Result<(), Failure> {
        let ends: Vec<_> = thread::scope(|scope| {
            let running: Vec<_> =
                commands.into_iter().map(|beside| scope.spawn(|| beside.run())).collect();
            let ended = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            running.into_iter().flat_map(ended).collect()
        });
        let outcomes: Vec<_> =
            ends.into_iter().map(|(name, time, ended)| self.note(&name, time, ended)).collect();
        outcomes.into_iter().collect()
    }

    fn note(&mut self, name: &str, time: Duration, ended: Ended) -> Result<(), Failure> {
        let Ended { counts, said, outcome } = ended;
        let end = if outcome.is_ok() { End::Passed } else { End::Failed };
        self.done.push((name.to_owned(), time, end));
        self.tests.passed += counts.passed;
        self.tests.failed += counts.failed;
        self.tests.ignored += counts.ignored;
        if outcome.is_err() {
            self.reasons.push((name.to_owned(), said.lines()));
        }
        outcome
    }

    /// Runs one step that is a function.
    pub(crate) fn check(
        &mut self,
        name: &str,
        step: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let start = Instant::now();
        let outcome = step();
        let end = if outcome.is_ok() { End::Passed } else { End::Failed };
        self.done.push((name.to_owned(), start.elapsed(), end));
        outcome
    }

    /// Records a step that this machine cannot run; the reason is a part of the name.
    pub(crate) fn not_run(&mut self, name: &str) {
        println!("\n==> NOT RUN: {name}");
        self.done.push((name.to_owned(), Duration::ZERO, End::NotRun));
    }

    /// One line per step with its time; the output of failed steps, which is far above for parallel
    /// ones; and the tests in one line.
    pub(crate) fn summary(&self, outcome: &Result<(), Failure>) {
        println!();
        for (name, time, end) in &self.done {
            let word = match end {
                End::Passed => "ok",
                End::Failed => "FAILED",
                End::NotRun => "NOT RUN",
            };
            println!("{word:>7} {:>7.1} s  {name}", time.as_secs_f64());
        }
        for (name, lines) in &self.reasons {
            println!("\n==> why {name} failed:");
            lines.iter().for_each(|line| println!("{line}"));
        }
        if let Err(error) = outcome {
            println!("\nfailed: {error}");
        }
        if self.tests != TestCounts::default() {
            let TestCounts { passed, failed, ignored } = self.tests;
            println!("\n{passed} passed, {failed} failed, {ignored} skipped");
        }
    }
}

impl TestCounts {
    /// Adds a line such as `test result: ok. 22 passed; 0 failed; 0 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let counts = rest.split_once(". ").map_or(rest, |(_, counts)| counts);
        for part in counts.split("; ") {
            match part.split_once(' ').map(|(number, word)| (number.parse::<usize>(), word)) {
                Some((Ok(number), "passed")) => self.passed += number,
                Some((Ok(number), "failed")) => self.failed += number,
                Some((Ok(number), "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// The folder that cargo builds into.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command for the cargo that runs this program.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args);
    command
}

/// A command of any program.
pub(crate) fn program<S: AsRef<OsStr>>(
    name: impl AsRef<OsStr>,
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(name);
    command.args(args);
    command
}

/// True when `command` succeeds; its output is hidden.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The result of an ended command.
struct Ended {
    counts: TestCounts,
    said: Said,
    outcome: Result<(), Failure>,
}

/// Runs a command, prints its lines after `prefix`, and adds up the results of tests, of which a
/// `cargo test` must have some.
fn output_of(name: &str, command: &mut Command, prefix: &str, has_tests: bool) -> Ended {
    let mut counts = TestCounts::default();
    let mut said = Said::default();
    // Tests report everything on stdout. A server left by one of them may hold stderr open.
    let ran = run_with(command, !has_tests, |line| {
        println!("{prefix}{line}");
        counts.add(line);
        said.add(line);
    });
    let outcome = match ran {
        Ok(status) if !status.success() => Err(Failure::Status { step: name.to_owned(), status }),
        Ok(_) if has_tests && counts.passed == 0 => Err(Failure::NoTest { step: name.to_owned() }),
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::command(name, command, error)),
    };
    Ended { counts, said, outcome }
}

/// Runs a command and passes on each line of its stdout, and of its stderr if requested, in order.
fn run_with(
    command: &mut Command,
    with_errors: bool,
    mut each: impl FnMut(&str),
) -> io::Result<ExitStatus> {
    let (output, end) = io::pipe()?;
    if with_errors {
        command.stderr(end.try_clone()?);
    }
    let mut child = command.stdout(end).spawn()?;
    // The command holds its ends of the pipes open, and the output would not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for line in BufReader::new(output).split(b'\n') {
        each(&String::from_utf8_lossy(&line?));
    }
    child.wait()
}

/// Output that may explain a failure: the last lines, and those that look like a fault.
#[derive(Default)]
struct Said {
    faults: Vec<String>,
    /// The number of next lines that belong to the last fault.
    more: usize,
    last: VecDeque<String>,
}

impl Said {
    /// Maximum number of lines of either kind.
    const KEPT: usize = 30;
    /// Maximum number of lines after a panic's that may be its message.
    const MESSAGE: usize = 8;

    fn add(&mut self, line: &str) {
        let is_panic = line.contains("panicked at");
        let is_fault = is_panic || line.starts_with("error") || line.ends_with("FAILED");
        if (is_fault || self.more > 0) && self.faults.len() < Self::KEPT {
            self.faults.push(line.to_owned());
        }
        self.more = if is_panic { Self::MESSAGE } else { self.more.saturating_sub(1) };
        self.last.push_back(line.to_owned());
        if self.last.len() > Self::KEPT {
            self.last.pop_front();
        }
    }

    /// The last lines without faults, then the faults.
    fn lines(self) -> Vec<String> {
        let Self { faults, last, .. } = self;
        let mut lines: Vec<_> = last.into_iter().filter(|line| !faults.contains(line)).collect();
        lines.extend(faults);
        lines
    }
}

fn announce(name: &str, command: &Command) {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let vars: Vec<_> = command
        .get_envs()
        .filter_map(|(key, value)| Some((key.to_string_lossy(), value?.to_string_lossy())))
        .map(|(key, value)| format!("{key}={value:?} "))
        .collect();
    println!("\n==> {name}: {}{}", vars.concat(), words.join(" "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_binaries_are_summed() {
        let mut counts = TestCounts::default();
        counts.add("running 3 tests");
        counts.add("test result: ok. 22 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        counts
            .add("test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; finished in 1s");
        assert_eq!(counts, TestCounts { passed: 27, failed: 2, ignored: 1 });
    }

    #[test]
    fn a_following_command_runs_only_after_success() {
        let command = |name: &str| ParallelCommand::other(name, program(name, [""; 0]));
        let mut steps = Steps::default();
        let good = command("true").then(command("pwd"));
        let bad = command("false").then(command("ls"));
        assert!(steps.run_together(vec![good, bad]).is_err());
        let ends: Vec<_> = steps.done.iter().map(|(name, _, end)| (name.as_str(), *end)).collect();
        assert_eq!(ends, [("true", End::Passed), ("pwd", End::Passed), ("false", End::Failed)]);
    }

    #[test]
    fn a_skipped_step_is_not_counted_as_passed() {
        let mut steps = Steps::default();
        assert!(steps.check("done", || Ok(())).is_ok());
        steps.not_run("left out");
        let ends: Vec<_> = steps.done.iter().map(|(name, _, end)| (name.as_str(), *end)).collect();
        assert_eq!(ends, [("done", End::Passed), ("left out", End::NotRun)]);
    }

    #[test]
    fn parallel_runs_are_summed_and_any_failure_fails() {
        let say = |passed: u32, status: u32| {
            let line = format!("echo 'test result: ok. {passed} passed; 0 failed'; exit {status}");
            program("sh", ["-c", &line])
        };
        let mut steps = Steps::default();
        let mut both = |one, other| {
            let outcome = steps.run_together(vec![one, other]);
            (outcome.is_ok(), steps.tests.passed, steps.done.len())
        };
        let tests = ParallelCommand::tests;
        assert_eq!(both(tests("one", say(2, 0)), tests("two", say(3, 0))), (true, 5, 2));
        assert_eq!(both(tests("bad", say(1, 1)), tests("good", say(4, 0))), (false, 10, 4));
        assert_eq!(both(tests("good", say(1, 0)), tests("none", say(0, 0))), (false, 11, 6));
        let other = |status: &str| ParallelCommand::other("other", program("sh", ["-c", status]));
        assert_eq!(both(tests("good", say(1, 0)), other("exit 0")), (true, 12, 8));
        assert_eq!(both(tests("good", say(1, 0)), other("exit 1")), (false, 13, 10));
    }

    #[test]
    fn a_failed_step_keeps_its_faults_and_last_lines() {
        let mut steps = Steps::default();
        let long = "echo ok; echo 'error: no room' >&2; seq 100; \
            echo \"thread 'x' panicked at a.rs:1:\"; echo 'a is not b'; seq 40; echo end >&2; exit 1";
        let beside = ParallelCommand::other("long", program("sh", ["-c", long]));
        assert!(steps.run_together(vec![beside]).is_err());
        let good = program("sh", ["-c", "echo 'test result: ok. 1 passed; 0 failed'"]);
        assert!(steps.run_tests("good", good).is_ok());
        let [(name, lines)] = &*steps.reasons else { panic!("{:?}", steps.reasons) };
        assert_eq!(name, "long");
        let (last, faults) = lines.split_at(Said::KEPT);
        assert_eq!((last[0].as_str(), last[Said::KEPT - 1].as_str()), ("12", "end"));
        let panic = ["error: no room", "thread 'x' panicked at a.rs:1:", "a is not b", "1"];
        assert_eq!(faults[..panic.len()], panic);
        assert_eq!(faults.len(), 2 + Said::MESSAGE);
    }

    #[test]
    fn a_run_without_tests_fails() {
        let mut steps = Steps::default();
        let silent = program("sh", ["-c", "echo 'test result: ok. 0 passed; 0 failed'"]);
        assert!(steps.run_tests("nothing", silent).is_err());
        let one = program("sh", ["-c", "echo 'test result: ok. 1 passed; 0 failed'"]);
        assert!(steps.run_tests("something", one).is_ok());
        let bad = program("sh", ["-c", "echo 'test result: ok. 1 passed; 0 failed'; exit 3"]);
        assert!(steps.run_tests("failing", bad).is_err());
    }
}

//! `holdall bench study`: a whole experiment, from starting the servers to the report.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use files::Stamp;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::interrupt::{self, EXIT_INTERRUPTED};
use super::{EXIT_PARTIAL, output};
use crate::figures::{self, Drawable, papers};
use crate::hitrate::servers::{self, Contender};
use crate::shell::shell;
use crate::sla::Sla;
use crate::study::{Size, Step, Study};
use crate::terminal;

/// Runs the experiment of a paper on this machine, against the servers that are installed, and
/// writes its report.
///
/// The steps are commands of `holdall bench`, which are printed and kept: any of them can be
/// repeated alone. The report names a step that fails, and the others are done.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StudyArgs {
    /// Which experiment.
    #[arg(value_enum)]
    study: Study,
    /// Servers by name, with commas: holdall, holdall-bag, holdall-lru (strict), memcached, redis,
    /// redis-lfu, valkey, valkey-lfu.
    /// Without it, all that are installed.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = PossibleValuesParser::new(servers::KNOWN), hide_possible_values = true)]
    servers: Option<Vec<String>>,
    /// Runs each step once and briefly. This tests the setup; it does not measure the servers.
    #[arg(long)]
    quick: bool,
    /// Seconds of each measurement, where they are not to be the study's (10).
    #[arg(long, value_name = "SECONDS", value_parser = super::run::seconds)]
    time: Option<f64>,
    /// Repeats of each point, where they are not to be the study's (3).
    #[arg(long, value_name = "COUNT", value_parser = super::run::count)]
    repeats: Option<usize>,
    /// The bound on latency of intel-guide (p99.5<=1ms) or baglru (mean<=1ms), where it is not to
    /// be the study's: a machine that stands still for a hundredth of the time, as virtual ones do,
    /// keeps p99.5<=1ms at no rate.
    #[arg(long, value_name = "BOUND")]
    sla: Option<Sla>,
    /// Where the watts of intel-guide come from, as for score --power.
    #[arg(long, value_name = "SOURCE")]
    power: Option<String>,
    /// Results and report.html come into this folder.
    #[arg(short, long, default_value = "study", value_name = "FOLDER")]
    out: PathBuf,
    /// Keep what came of each step in this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench study pavlik --out pavlik             connections, threads, processes, pinning, -R: takes half an hour
  holdall bench study pavlik --time 2 --servers holdall,memcached,redis      the same shape in minutes
  holdall bench study intel-guide --power 60          the guide's score of each server, by a machine of 60 watts
  holdall bench study baglru --quick                  a minute: does it work here?";

/// Memory of the servers, in MB: the study's 6 GB would hold its 9,901 keys equally well.
const MEMORY_MB: u32 = 1024;

/// The result of a study.
#[derive(Debug, Serialize)]
struct StudyResult {
    schema: &'static str,
    version: u32,
    command: Vec<String>,
    study: String,
    /// The page.
    report: PathBuf,
    steps: Vec<StepResult>,
}

/// The result of a step.
#[derive(Debug, Serialize)]
struct StepResult {
    name: String,
    /// The result, in the step's own schema; none for a failed step.
    file: Option<PathBuf>,
    error: Option<String>,
}

pub(super) fn run(args: &StudyArgs) -> Result<ExitCode> {
    let kept = output::begun(args.json.as_deref(), &[])?;
    let own = servers::own_program()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut size = if args.quick { Size::quick(cpus) } else { Size::whole(cpus) };
    size.seconds = args.time.unwrap_or(size.seconds);
    size.repeats = args.repeats.unwrap_or(size.repeats);
    if let Some(sla) = &args.sla {
        size.bounds = (sla.to_string(), sla.to_string());
    }
    let templates = servers::templates(args.servers.as_deref(), &own)?;
    ensure!(!templates.is_empty(), "no server is installed");
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    let steps = args.study.steps(&templates, &size);
    let (mut results, mut failures, mut told) = (Vec::new(), Vec::new(), Vec::new());
    // Servers end with this function, so a signal must not end the program before. The partner of
    // the SeqCst loads is the store in the signal handler, by signal_hook.
    let stop = interrupt::flag();
    for (number, step) in steps.iter().enumerate() {
        if stop.load(Ordering::SeqCst) {
            failures.push(format!("{} and what follows it: interrupted", step.name));
            let error = Some("interrupted".to_owned());
            let rest = steps[number..].iter().map(|step| step.name.clone());
            told.extend(rest.map(|name| StepResult { name, file: None, error: error.clone() }));
            break;
        }
        terminal::print(&format!("\n[{}/{}] {}\n", number + 1, steps.len(), step.name));
        let file = args.out.join(format!("{}.json", step.name));
        let done = args.step(step, &file, &own, &templates, &stop);
        let name = step.name.clone();
        match done.and_then(|()| read(&file)) {
            Ok(result) => {
                results.push((name.clone(), result));
                told.push(StepResult { name, file: Some(file), error: None });
            }
            Err(error) => {
                let why = format!("{name}: {error:#}");
                terminal::eprint_error(&why);
                failures.push(why);
                told.push(StepResult { name, file: None, error: Some(format!("{error:#}")) });
            }
        }
    }
    ensure!(!results.is_empty(), "no step brought a result");
    let words = format!("The experiment of: {}.", args.study.source());
    let kind = if args.quick { " A quick run, which shows nothing of the servers." } else { "" };
    let title = format!("holdall bench study {}", args.study);
    let originals = papers::originals(args.study, &results)?;
    let html =
        figures::page_of(&title, &format!("{words}{kind}"), &failures, &originals, &results)?;
    let report = args.out.join("report.html");
    output::file(&report, &[])?.put(html.as_bytes())?;
    terminal::print(&format!("\n{}\n", report.display()));
    let result = StudyResult {
        schema: "holdall-bench-study",
        version: 1,
        command: std::env::args().collect(),
        study: args.study.to_string(),
        report,
        steps: told,
    };
    output::keep(kept, &result)?;
    let is_whole = failures.is_empty();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PARTIAL) })
}

impl StudyArgs {
    /// Runs one step as a separate command.
    fn step(
        &self,
        step: &Step,
        file: &Path,
        own: &Path,
        servers: &[Contender],
        stop: &AtomicBool,
    ) -> Result<()> {
        let running = match step.server {
            Some((index, threads)) => {
                let server = servers::with_threads(&servers[index].server, threads, servers::GROUP);
                Some(server.start(MEMORY_MB, None)?)
            }
            None => None,
        };
        let address = running.as_ref().map(|running| running.address.to_string());
        let mut words: Vec<String> = step
            .words
            .iter()
            .map(|word| word.replace("{server}", address.as_deref().unwrap_or_default()))
            .collect();
        if let (Some(power), Some("score")) = (&self.power, words.first().map(String::as_str)) {
            words.extend(["--power".to_owned(), power.clone()]);
        }
        words.extend(["--json".to_owned(), file.display().to_string()]);
        terminal::print(&format!("holdall bench {}\n", shell(&words)));
        let mut command = Command::new(own);
        command.arg("bench").args(&words);
        if self.json.as_deref() == Some(Path::new("-")) {
            command.stdout(io::stderr());
        }
        let before = Stamp::of(file);
        let status = wait(command.spawn()?, stop)?;
        // A partial result is drawn, with its mark.
        let partial = [EXIT_PARTIAL, EXIT_INTERRUPTED].map(|status| Some(i32::from(status)));
        let is_kept = status.success() || partial.contains(&status.code());
        // An older study's file may exist.
        let is_new = Stamp::of(file) != before;
        ensure!(is_kept && is_new, "the command ended with {status}");
        Ok(())
    }
}

/// Waits for a step. A signal to this program is passed on once, so that the step prints its
/// results.
fn wait(mut step: Child, stop: &AtomicBool) -> Result<ExitStatus> {
    let mut is_signalled = false;
    loop {
        if let Some(status) = step.try_wait()? {
            return Ok(status);
        }
        // Partner: the store of the signal handler, by signal_hook.
        if stop.load(Ordering::SeqCst) && !is_signalled {
            let pid = Pid::from_raw(i32::try_from(step.id())?).context("a process id")?;
            // A process that has just ended needs no signal.
            let _ = kill_process(pid, Signal::TERM);
            is_signalled = true;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "nothing tells of a child and a signal at once"
        )]
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read(file: &Path) -> Result<Drawable> {
    let json = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Drawable::read(&json).with_context(|| file.display().to_string())
}

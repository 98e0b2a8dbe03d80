//! An agent: waits for coordinators, one after the other, and sends their loads.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is for
//! display.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::{AgentMessage, CoordinatorMessage, Line, VERSION};
use crate::host::Host;
use generator::spec::Spec;
use generator::{self, Progress};

/// A coordinator that is silent for this time counts as gone.
const PATIENCE: Duration = Duration::from_secs(600);

/// A client without a load request within this time is no coordinator, and keeps others waiting.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// Serves coordinators indefinitely, whose loads may use these `files` of this host; reports each
/// request to `log`.
///
/// # Errors
///
/// When no more connections can be accepted.
pub fn serve(listener: &TcpListener, files: &[PathBuf], log: impl Fn(&str)) -> Result<()> {
    loop {
        let (stream, peer) = listener.accept().context("accepting")?;
        stream.set_read_timeout(Some(FIRST_PATIENCE))?;
        log(&format!("{peer}: a coordinator"));
        match Line::new(stream).and_then(|mut line| one(&mut line, files)) {
            Ok(requests) => log(&format!("{peer}: {requests} requests")),
            Err(error) => log(&format!("{peer}: {error:#}")),
        }
    }
}

/// One coordinator's run; returns the number of answered requests.
fn one(line: &mut Line, files: &[PathBuf]) -> Result<u64> {
    let spec = match line.hear() {
        Ok(Some(CoordinatorMessage::Prepare { version: VERSION, spec })) => spec,
        Ok(Some(CoordinatorMessage::Prepare { version, .. })) => {
            let why = format!("the coordinator speaks version {version}, this agent {VERSION}");
            return refused(line, why);
        }
        Ok(_) => bail!("the coordinator did not say what to send"),
        Err(error) if is_silence(&error) => {
            bail!("no load was asked for within {} seconds", FIRST_PATIENCE.as_secs())
        }
        Err(error) => return Err(error),
    };
    if let Err(error) = may_run(&spec, files) {
        return refused(line, format!("{error:#}"));
    }
    line.reader.get_ref().set_read_timeout(Some(PATIENCE))?;
    line.say(&AgentMessage::Ready { host: Host::here() })?;
    let progress = Progress::default();
    let mut ready = None;
    loop {
        let outcome = match line.hear()? {
            Some(CoordinatorMessage::Fill) => watched(line, &progress, || filled(&spec, &progress)),
            Some(CoordinatorMessage::Connect) => generator::connect(&spec).map(|connected| {
                ready = Some(connected);
                AgentMessage::Connected
            }),
            Some(CoordinatorMessage::Go) => match ready.take() {
                Some(ready) => watched(line, &progress, || ready.run(&progress))
                    .map(|outcome| AgentMessage::Done { outcome: Box::new(outcome) }),
                None => bail!("the coordinator began before it connected"),
            },
            Some(CoordinatorMessage::Prepare { .. } | CoordinatorMessage::Stop) => {
                bail!("the coordinator is out of order")
            }
            None => bail!("the coordinator went away"),
        };
        match outcome {
            Ok(say) => {
                line.say(&say)?;
                if let AgentMessage::Done { outcome } = say {
                    return Ok(outcome.record.answered);
                }
            }
            Err(error) => return refused(line, format!("{error:#}")),
        }
    }
}

fn refused(line: &Line, why: String) -> Result<u64> {
    line.say(&AgentMessage::Failed { why: why.clone() })?;
    bail!(why)
}

/// Refuses numbers that no command line accepts, and files that this agent's command line did not
/// name: their contents are sent to servers chosen by the coordinator.
fn may_run(spec: &Spec, files: &[PathBuf]) -> Result<()> {
    spec.check()?;
    for file in spec.files() {
        ensure!(
            files.iter().any(|allowed| Path::new(allowed) == file),
            "the agent may not read {0}: start it with --allow-file {0}",
            file.display()
        );
    }
    Ok(())
}

fn filled(spec: &Spec, progress: &Progress) -> Result<AgentMessage> {
    generator::fill(spec, progress)?;
    ensure!(!progress.stop.load(Ordering::Relaxed), "interrupted while storing the keys");
    Ok(AgentMessage::Filled)
}

/// Works while listening to the coordinator: it may stop the work, and a disconnect also stops it.
fn watched<T: Send>(
    line: &mut Line,
    progress: &Progress,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    line.reader.get_ref().set_read_timeout(Some(Duration::from_millis(20)))?;
    let outcome = thread::scope(|scope| {
        let work = scope.spawn(work);
        while !work.is_finished() {
            match line.hear::<CoordinatorMessage>() {
                Err(error) if is_silence(&error) => {}
                // Any other message, or a disconnect, ends the work.
                _ => {
                    progress.stop.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        work.join().unwrap_or_else(|_| bail!("a generator thread panicked"))
    });
    line.reader.get_ref().set_read_timeout(Some(PATIENCE))?;
    outcome
}

fn is_silence(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind;
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

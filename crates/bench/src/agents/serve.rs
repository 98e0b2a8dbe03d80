//! An agent: waits for coordinators, one after the other, and sends what they say.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is
//! for display.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Ask, Line, Say, VERSION};
use crate::host::Host;
use generator::{self, Outcome, Progress};

/// A coordinator that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(600);

/// Serves coordinators for ever; reports each one's wish to `log`.
///
/// # Errors
///
/// When no connection can be accepted any more.
pub fn serve(listener: &TcpListener, log: impl Fn(&str)) -> Result<()> {
    loop {
        let (stream, peer) = listener.accept().context("accepting")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        log(&format!("{peer}: a coordinator"));
        match Line::new(stream).and_then(|mut line| one(&mut line)) {
            Ok(requests) => log(&format!("{peer}: {requests} requests")),
            Err(error) => log(&format!("{peer}: {error:#}")),
        }
    }
}

/// One coordinator's run; returns how many requests were answered.
fn one(line: &mut Line) -> Result<u64> {
    let spec = match line.hear()? {
        Some(Ask::Prepare { version: VERSION, spec }) => spec,
        Some(Ask::Prepare { version, .. }) => {
            let why = format!("the coordinator speaks version {version}, this agent {VERSION}");
            line.say(&Say::Failed { why: why.clone() })?;
            bail!(why);
        }
        Some(_) | None => bail!("the coordinator did not say what to send"),
    };
    line.say(&Say::Ready { host: Host::here() })?;
    let progress = Progress::default();
    let mut ready = None;
    loop {
        let outcome = match line.hear()? {
            Some(Ask::Fill) => generator::fill(&spec, &progress).map(|_| Say::Filled),
            Some(Ask::Connect) => generator::connect(&spec).map(|connected| {
                ready = Some(connected);
                Say::Connected
            }),
            Some(Ask::Go) => match ready.take() {
                Some(ready) => watched(line, &progress, || ready.run(&progress))
                    .map(|outcome| Say::Done { outcome: Box::new(outcome) }),
                None => bail!("the coordinator began before it connected"),
            },
            Some(Ask::Prepare { .. } | Ask::Stop) => bail!("the coordinator is out of order"),
            None => bail!("the coordinator went away"),
        };
        match outcome {
            Ok(say) => {
                line.say(&say)?;
                if let Say::Done { outcome } = say {
                    return Ok(outcome.record.answered);
                }
            }
            Err(error) => {
                let why = format!("{error:#}");
                line.say(&Say::Failed { why: why.clone() })?;
                bail!(why);
            }
        }
    }
}

/// Runs while the coordinator is listened to: it may stop the run, and one that goes away has
/// stopped it.
fn watched(
    line: &mut Line,
    progress: &Progress,
    work: impl FnOnce() -> Result<Outcome> + Send,
) -> Result<Outcome> {
    line.reader.get_ref().set_read_timeout(Some(Duration::from_millis(20)))?;
    let outcome = thread::scope(|scope| {
        let work = scope.spawn(work);
        while !work.is_finished() {
            match line.hear::<Ask>() {
                Err(error) if is_silence(&error) => {}
                // Whatever else is heard, or that nobody is there, ends the run.
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

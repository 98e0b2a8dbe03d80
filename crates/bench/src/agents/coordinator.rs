//! The coordinator: instructs several agents, starts them together and adds up their results.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is for
//! display.

use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::{AgentMessage, AgentResult, CoordinatorMessage, Line, VERSION};
use crate::host::Host;
use generator::spec::{Pace, Spec};
use generator::{Outcome, Progress};

/// The merged record of all agents.
#[derive(Debug)]
pub struct Gathered {
    /// The sum.
    pub outcome: Outcome,
    /// Each agent's part, in the order in which they were named.
    pub parts: Vec<(AgentResult, Outcome)>,
}

/// An agent that takes this much longer than the run counts as lost.
const GRACE: Duration = Duration::from_secs(30);

/// The time limit for storing the keys and connecting.
const ASK_PATIENCE: Duration = Duration::from_secs(3600);

struct Agent {
    name: String,
    line: Line,
    host: Host,
}

/// Runs the load of `spec` on `agents` (HOST:PORT each): its rate is divided among them; its
/// threads and connections apply to each agent. Preloads first if `spec` requires it; calls `begun`
/// when all agents were started.
///
/// # Errors
///
/// When an agent is unreachable, or cannot reach the servers. The later loss of an agent is a
/// failure in the outcome, together with the others' results.
pub fn run(
    spec: &Spec,
    agents: &[String],
    progress: &Progress,
    begun: impl FnOnce(),
) -> Result<Gathered> {
    ensure!(!agents.is_empty(), "no agents were named");
    let mut all = Vec::new();
    for (index, name) in agents.iter().enumerate() {
        let share = share(spec, index, agents.len());
        all.push(prepared(name, share).with_context(|| format!("agent {name}"))?);
    }
    if let (true, Some(first)) = (spec.preload, all.first_mut()) {
        first
            .ask(&CoordinatorMessage::Fill, progress)
            .with_context(|| format!("agent {}", first.name))?;
    }
    for agent in &mut all {
        agent
            .ask(&CoordinatorMessage::Connect, progress)
            .with_context(|| format!("agent {}", agent.name))?;
    }
    for agent in &all {
        agent.line.say(&CoordinatorMessage::Go).with_context(|| format!("agent {}", agent.name))?;
    }
    begun();
    let patience = Duration::from_secs_f64(spec.warm_up + spec.seconds) + GRACE;
    let mut heard = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let waiting: Vec<_> = all
            .iter_mut()
            .map(|agent| scope.spawn(move || agent.outcome(patience, progress)))
            .collect();
        for agent in waiting {
            heard.push(agent.join().map_err(|_| anyhow!("a thread panicked"))?);
        }
        Ok(())
    })?;
    Ok(gathered(all, heard))
}

/// One agent's share of the load among `count` agents.
fn share(spec: &Spec, index: usize, count: usize) -> Spec {
    let mut share = spec.clone();
    if let Pace::Open { rate, .. } = &mut share.pace {
        #[allow(clippy::cast_precision_loss, reason = "few agents")]
        let agents = count as f64;
        *rate /= agents;
    }
    share.seed = spec.seed.wrapping_add((index as u64).wrapping_mul(0x5851_f42d_4c95_7f2d));
    share
}

fn prepared(name: &str, spec: Spec) -> Result<Agent> {
    let mut line = Line::new(TcpStream::connect(name).context("no connection")?)?;
    line.reader.get_ref().set_read_timeout(Some(GRACE))?;
    line.say(&CoordinatorMessage::Prepare { version: VERSION, spec: Box::new(spec) })?;
    let answer = line.hear().map_err(|error| match error.downcast_ref::<std::io::Error>() {
        Some(silence) if is_silence(silence) => anyhow!(
            "it said nothing for {} seconds: it serves another coordinator, or is no agent",
            GRACE.as_secs()
        ),
        _ => error,
    });
    match answer? {
        Some(AgentMessage::Ready { host }) => Ok(Agent { name: name.to_owned(), line, host }),
        Some(AgentMessage::Failed { why }) => bail!(why),
        Some(_) => bail!("it answered out of order"),
        None => bail!("it closed the connection"),
    }
}

impl Agent {
    /// Sends a request, and waits until it is done or an interrupt ends the wait.
    fn ask(&mut self, ask: &CoordinatorMessage, progress: &Progress) -> Result<()> {
        self.line.say(ask)?;
        let begun = Instant::now();
        while !self.has_answered()? {
            if progress.stop.load(Ordering::Relaxed) {
                self.line.say(&CoordinatorMessage::Stop)?;
                bail!("interrupted before the measurement");
            }
            ensure!(begun.elapsed() < ASK_PATIENCE, "it says nothing");
        }
        match self.line.hear()? {
            Some(AgentMessage::Filled | AgentMessage::Connected) => Ok(()),
            Some(AgentMessage::Failed { why }) => bail!(why),
            Some(_) => bail!("it answered out of order"),
            None => bail!("it closed the connection"),
        }
    }

    /// Waits for the agent's results; passes an interrupt on, and still waits for the answer.
    fn outcome(&mut self, patience: Duration, progress: &Progress) -> Result<Outcome> {
        let begun = Instant::now();
        let mut has_sent_stop = false;
        while !self.has_answered()? {
            if progress.stop.load(Ordering::Relaxed) && !std::mem::replace(&mut has_sent_stop, true)
            {
                self.line.say(&CoordinatorMessage::Stop)?;
            }
            ensure!(begun.elapsed() < patience, "it says nothing");
        }
        match self.line.hear()? {
            Some(AgentMessage::Done { outcome }) => Ok(*outcome),
            Some(AgentMessage::Failed { why }) => bail!(why),
            Some(_) => bail!("it answered out of order"),
            None => bail!("it closed the connection"),
        }
    }

    /// Waits briefly; true if a message, which is then read whole, or the end has arrived.
    fn has_answered(&mut self) -> Result<bool> {
        self.line.reader.get_ref().set_read_timeout(Some(Duration::from_millis(100)))?;
        let has_answered = match std::io::BufRead::fill_buf(&mut self.line.reader) {
            Ok(_) => true,
            Err(error) if is_silence(&error) => false,
            Err(error) => return Err(error).context("receiving"),
        };
        self.line.reader.get_ref().set_read_timeout(Some(GRACE))?;
        Ok(has_answered)
    }
}

fn is_silence(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

fn gathered(agents: Vec<Agent>, heard: Vec<Result<Outcome>>) -> Gathered {
    let (mut sum, mut parts) = (Outcome::default(), Vec::new());
    for (agent, outcome) in agents.into_iter().zip(heard) {
        let outcome = outcome.unwrap_or_else(|error| Outcome {
            failure: Some(format!("{error:#}")),
            ..Outcome::default()
        });
        sum.merge(&outcome, &format!("agent {}: ", agent.name));
        let part = AgentResult {
            address: agent.name,
            host: agent.host,
            requests: outcome.record.gets.requests + outcome.record.sets.requests,
            busiest_thread: outcome.busiest,
        };
        parts.push((part, outcome));
    }
    Gathered { outcome: sum, parts }
}

//! A run from its start to its figures, controlled by keys or a script.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::{MissedTickBehavior, interval};

use crate::database::Kind;
use crate::folder::Folder;
use crate::lines;
use crate::link::Distance;
use crate::load::Shape;
use crate::result::{ClusterTotal, Outcome, SCHEMA};
use crate::script::{Action, Script};
use crate::stage::Stage;
use crate::view::{Key, View};

/// The plan of a run.
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) script: Script,
    pub(crate) distance: Distance,
    /// True if a terminal shows the run and accepts keys.
    pub(crate) is_live: bool,
    pub(crate) ends_after: Option<Duration>,
    pub(crate) command: Vec<String>,
}

/// The interval at which keys and times are checked.
const TICK: Duration = Duration::from_millis(50);

/// Runs it.
pub(crate) async fn run(folder: &Folder, plan: Plan) -> Result<Outcome> {
    let mut stage =
        Stage::start(folder, plan.kind, plan.shape, plan.distance, lines::print_line).await?;
    let mut view = if plan.is_live { Some(View::open()?) } else { None };
    let mut steps: VecDeque<(Duration, Action)> = plan.script.0.into();
    let (begin, mut second) = (Instant::now(), Instant::now());
    let mut printed = 0;
    // A slow step delays everything after it, so that the times between steps are at least the
    // requested ones.
    let mut late = Duration::ZERO;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        while let Some((time, action)) =
            steps.pop_front_if(|(time, _)| begin.elapsed() >= *time + late)
        {
            stage.act(action).await?;
            late = begin.elapsed() - time;
        }
        if plan.ends_after.is_some_and(|end| begin.elapsed() >= end + late) {
            break;
        }
        match view.as_mut().map_or(Ok(None), View::key)? {
            Some(Key::End) => break,
            Some(Key::Action(action)) => stage.act(action).await?,
            Some(Key::ToggleCut) => stage.act(Action::Cut(!stage.is_cut)).await?,
            Some(Key::ToggleLag) => stage.act(Action::Lag(!stage.is_lagging)).await?,
            None => {}
        }
        stage.recover().await?;
        if second.elapsed() >= Duration::from_secs(1) {
            second = Instant::now();
            stage.tick().await;
            match &mut view {
                Some(view) => view.draw(&stage)?,
                None => lines::second(&stage, &mut printed),
            }
        }
    }
    drop(view);
    lines::print_line("the load ends; waiting until everything is delivered");
    let (looked_up, stale_left) = stage.end().await?;
    lines::events(&stage, &mut printed);
    Ok(outcome(stage, plan.command, plan.kind, looked_up, stale_left))
}

fn outcome(
    mut stage: Stage,
    command: Vec<String>,
    database: Kind,
    looked_up: u64,
    stale_left: u64,
) -> Outcome {
    let mut clusters: Vec<ClusterTotal> = stage
        .frontends
        .iter()
        .zip(&stage.tallies)
        .map(|(frontend, tally)| ClusterTotal::of(&frontend.name, tally))
        .collect();
    // The first four existed from the start; the first of them fills the others.
    for (total, tally) in clusters.iter_mut().zip(&stage.tallies).skip(4) {
        total.note_warm_up(tally, &stage.tallies[0]);
    }
    Outcome {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command,
        database,
        clusters,
        events: std::mem::take(&mut stage.events),
        seconds: std::mem::take(&mut stage.seconds).into(),
        looked_up,
        stale_left,
    }
}

//! The means by which one worker serves requests.

use std::sync::Arc;
use std::time::Instant;

use access::Refusals;
use net::Control;

use super::large_values::LargeValues;
use super::lookahead::Lookahead;
use super::reporter::Reporter;
use crate::admin;
use crate::shared::Shared;

/// The state that requests of all protocols need. The loop's own state is in [`super::Worker`].
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(super) control: Control,
    pub(crate) engine: engine::Worker,
    pub(super) reporter: Reporter,
    pub(super) lookahead: Lookahead,
    pub(super) large_values: LargeValues,
    pub(super) refusals: Refusals,
    /// The start of the turn.
    pub(super) now: Instant,
}

impl Context {
    pub(super) fn new(shared: &Arc<Shared>, engine: engine::Worker, control: &Control) -> Self {
        Self {
            shared: Arc::clone(shared),
            control: control.clone(),
            engine,
            reporter: Reporter::new(&shared.watchers, shared.clock),
            lookahead: Lookahead::default(),
            large_values: LargeValues::new(shared.large_values_bytes_max),
            refusals: Refusals::default(),
            now: Instant::now(),
        }
    }

    /// The state that administrators' commands may read and change.
    pub(crate) fn admin(&self) -> admin::Context<'_> {
        let now_secs = self.engine.now_secs();
        admin::Context { shared: &self.shared, control: &self.control, now_secs }
    }
}

//! Traced requests: one in N, and those whose client announces a trace before them.
//!
//! A traced request has a span here, from its arrival to its reply, and causes one for each server
//! that it reaches (`upstream`). A client announces a trace by `mn traceparent <context>`; it
//! applies to the next command, with all its keys. The announced trace decides: if it is not
//! sampled, it has no spans, whatever the rate here.

use std::collections::HashMap;
use std::sync::Arc;

use net::Input;
use proto::meta;
use proto::text::Words;
use spans::{Context, Kind, OpenSpan, Sampler, Spans, key_hash};
use upstream::{Command, Outcome, Request, Ticket};

use super::{Front, Session, Step};

/// Decides which requests of a worker are traced.
#[derive(Debug)]
pub(super) struct Tracer {
    spans: Option<Arc<Spans>>,
    sampler: Sampler,
    /// The client's announcement for the request that is being read.
    parent: Option<Context>,
}

/// Spans of requests that wait for their replies.
#[derive(Debug, Default)]
pub(super) struct Open(HashMap<Ticket, (Command, OpenSpan)>);

impl Open {
    /// Ends the span of an answered request.
    #[inline]
    pub(super) fn answered(&mut self, ticket: Ticket, outcome: Outcome) {
        if !self.0.is_empty() {
            self.end(ticket, outcome);
        }
    }

    #[cold]
    fn end(&mut self, ticket: Ticket, outcome: Outcome) {
        if let Some((op, mut span)) = self.0.remove(&ticket) {
            outcome.describe(op, &mut span);
            span.end();
        }
    }
}

impl Tracer {
    /// Traces one request in `one_in`, or only announced ones if that is 0. Without `spans`, it
    /// traces none.
    pub(super) fn new(spans: Option<Arc<Spans>>, one_in: u32) -> Self {
        let one_in = if spans.is_some() { one_in } else { 0 };
        Self { spans, sampler: Sampler::new(one_in), parent: None }
    }

    /// Returns true if clients' contexts are accepted.
    pub(super) const fn takes_contexts(&self) -> bool {
        self.spans.is_some()
    }

    /// Counts a request. Returns true if it is traced.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        self.sampler.is_due()
    }

    /// Assigns the next requests to this trace. Returns the previous sampler.
    fn follow(&mut self, context: Context) -> Sampler {
        self.parent = Some(context);
        std::mem::replace(&mut self.sampler, Sampler::new(u32::from(context.is_sampled)))
    }
}

impl Front {
    /// Accepts a context that `mn` announces with these words.
    pub(super) fn announce(&self, session: &mut Session, words: Words<'_>) {
        let announced = meta::announced_context(words).filter(|_| self.tracer.takes_contexts());
        if let Some(context) = announced.and_then(Context::parse) {
            session.trace = Some(Box::new(context));
        }
    }

    /// Takes a step in the client's announced trace, which ends with its command.
    #[cold]
    pub(super) fn step_in_trace(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        let Some(context) = session.trace.take() else { return self.step_once(session, input) };
        let waiting = input.bytes().len();
        let usual = self.tracer.follow(*context);
        let step = self.step_once(session, input);
        (self.tracer.sampler, self.tracer.parent) = (usual, None);
        let is_incomplete = input.bytes().len() == waiting;
        let goes_on = session.is_sending() || session.line.is_some() || is_incomplete;
        if goes_on && session.trace.is_none() {
            session.trace = Some(context);
        }
        step
    }

    /// Submits a traced request.
    #[cold]
    pub(super) fn submit_traced(&mut self, request: &Request<'_>, ticket: Ticket) {
        let Some(spans) = &self.tracer.spans else { return self.ask_core(request, ticket) };
        let parent = self.tracer.parent.as_ref();
        let mut span = OpenSpan::begin(spans, parent, Kind::Server, request.op.name());
        span.set("holdall.key.hash", key_hash(request.key));
        let context = *span.context();
        self.queues.open.0.insert(ticket, (request.op, span));
        self.ask_core(&Request { trace: Some(&context), ..*request }, ticket);
    }
}

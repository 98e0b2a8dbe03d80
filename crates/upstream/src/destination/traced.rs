//! Traced requests: the span of each.
//!
//! A server that accepts trace contexts says so when it is probed (`dialect`). The first traced
//! request of a connection causes the probe. A server that once closed after the probe, as
//! twemproxy does, is not probed for a trace again.

use spans::{Kind, OpenSpan, Value, key_hash};

use super::Destination;
use crate::address::Address;
use crate::request::Request;
use crate::settings::Protocol;
use crate::sink::Ticket;

impl Destination {
    /// Sends a request on, with a span if it is traced.
    #[inline]
    pub(super) fn send_on(&mut self, request: &Request<'_>, ticket: Ticket, pool: u16, at_us: u64) {
        match request.trace {
            None => self.pipeline.ask(request, ticket, pool, at_us),
            Some(_) => self.send_traced(request, ticket, pool, at_us),
        }
    }

    #[cold]
    fn send_traced(&mut self, request: &Request<'_>, ticket: Ticket, pool: u16, at_us: u64) {
        let Some((spans, parent)) = self.worker.spans.as_ref().zip(request.trace) else {
            return self.pipeline.ask(request, ticket, pool, at_us);
        };
        let mut span = OpenSpan::begin(spans, Some(parent), Kind::Client, request.op.name());
        match &self.address {
            Address::Tcp(address) => {
                span.set("server.address", Value::Text(address.ip().to_string()));
                span.set("server.port", Value::Number(i64::from(address.port())));
            }
            Address::Unix(path) => {
                span.set("server.address", Value::Text(path.display().to_string()));
            }
            Address::NotFound(name) => span.set("server.address", Value::Text(name.clone())),
        }
        let pool_name = self.counters.latencies().name(pool).to_owned();
        if !pool_name.is_empty() {
            span.set("holdall.pool", Value::Text(pool_name));
        }
        span.set("holdall.key.hash", key_hash(request.key));
        self.pipeline.ask_traced(span, request, ticket, pool, at_us);
    }

    /// Returns true if a traced request causes a probe, because the dialect is unknown.
    #[cold]
    pub(super) fn probes_for_trace(&self) -> bool {
        self.worker.spans.is_some()
            && self.settings.protocol == Protocol::Text
            && self.asking.may_ask()
    }
}

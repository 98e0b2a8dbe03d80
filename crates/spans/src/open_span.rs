//! A span in progress.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::context::Context;
use crate::queue::Spans;
use crate::span::{Kind, Span, Value};

/// A span in progress. Dropped without [`Self::end`], it is forgotten.
#[derive(Debug)]
pub struct OpenSpan {
    span: Span,
    spans: Arc<Spans>,
}

impl OpenSpan {
    /// Starts a span now, caused by `parent`; without one it starts a trace.
    #[must_use]
    pub fn begin(
        spans: &Arc<Spans>,
        parent: Option<&Context>,
        kind: Kind,
        name: &'static str,
    ) -> Self {
        let context = parent.map_or_else(Context::begin, Context::child);
        let (parent, began_ns) = (parent.map(|parent| parent.span), now_ns());
        let attributes = vec![
            ("db.system.name", Value::Text("memcached".to_owned())),
            ("db.operation.name", Value::Text(name.to_owned())),
        ];
        let (ended_ns, error) = (began_ns, None);
        let span = Span { context, parent, kind, name, began_ns, ended_ns, attributes, error };
        Self { span, spans: Arc::clone(spans) }
    }

    /// The context for requests that this span causes.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.span.context
    }

    /// The operation.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.span.name
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: Value) {
        self.span.attributes.push((name, value));
    }

    /// Marks it as failed, for this reason.
    pub const fn fail(&mut self, why: &'static str) {
        self.span.error = Some(why);
    }

    /// Ends it now, and hands it to the exporter unless the queue is full.
    pub fn end(self) {
        let Self { mut span, spans } = self;
        // The clock may have been set back.
        span.ended_ns = now_ns().max(span.began_ns);
        spans.push(span);
    }
}

/// Nanoseconds since 1970, which fit until 2554.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

//! Spans in OTLP's form.

use spans::{Kind, Span, Value};

use crate::message::{self, Any, KIND_CLIENT, KIND_SERVER, KeyValue, STATUS_ERROR, Status};

/// The bit of a span's flags that marks it as sampled, as in W3C's context.
const SAMPLED: u32 = 1;

/// One span.
pub(crate) fn convert(span: Span) -> message::Span {
    let attributes = span.attributes.into_iter().map(|(name, value)| {
        KeyValue::new(
            name,
            match value {
                Value::Text(text) => Any::String(text),
                Value::Number(number) => Any::Int(number),
                Value::Flag(flag) => Any::Bool(flag),
            },
        )
    });
    message::Span {
        trace_id: span.context.trace.to_vec(),
        span_id: span.context.span.to_vec(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.to_vec()),
        name: span.name.to_owned(),
        kind: match span.kind {
            Kind::Server => KIND_SERVER,
            Kind::Client => KIND_CLIENT,
        },
        start_time_unix_nano: span.began_ns,
        end_time_unix_nano: span.ended_ns,
        attributes: attributes.collect(),
        status: span.error.map(|why| Status { message: why.to_owned(), code: STATUS_ERROR }),
        flags: if span.context.is_sampled { SAMPLED } else { 0 },
    }
}

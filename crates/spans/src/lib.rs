//! Spans of sampled requests: the W3C context that travels with a request, and the queue of ended
//! spans for an exporter.
//!
//! ```text
//!     Context (from a client, or new) -> OpenSpan -> end -> Spans (bounded) -> exporter
//! ```
//!
//! Only sampled requests come here. Others cost their program one branch.
#![forbid(unsafe_code)]

mod context;
mod open_span;
mod queue;
mod sampler;
mod span;

pub use context::{Context, TRACEPARENT_BYTES};
pub use open_span::OpenSpan;
pub use queue::Spans;
pub use sampler::Sampler;
pub use span::{Kind, Span, Value, key_hash};

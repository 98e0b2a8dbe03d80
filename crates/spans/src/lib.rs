//! Spans of sampled requests: the W3C context that travels with a request, and the queue in which
//! ended spans wait for an exporter.
//!
//! ```text
//!     Context (from a client, or new) -> OpenSpan -> end -> Spans (bounded) -> exporter
//! ```
//!
//! Only what is sampled comes here. A request that is not costs its program one branch.
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

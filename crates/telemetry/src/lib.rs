//! OpenTelemetry: the metrics of the Prometheus page and the spans of sampled requests, pushed to
//! a collector by OTLP over HTTP, as binary protobuf.
//!
//! ```text
//!     metrics::Page -> numbers -> message --.
//!     spans::Spans  -> traces  -> message ---+-> Exporter (one thread) -> POST -> collector
//! ```
//!
//! No thread that serves clients waits for a collector: the exporter's thread makes a page, and a
//! span that finds the queue full is dropped and counted.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/> and the environment variables of
//! <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>.
#![forbid(unsafe_code)]

mod client;
mod export_counts;
mod exporter;
mod message;
mod numbers;
mod pace;
mod resource;
mod settings;
mod traces;

pub use export_counts::ExportCounts;
pub use exporter::{Exporter, Telemetry};
pub use settings::{Fault, Settings};

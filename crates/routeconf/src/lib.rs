//! Router configurations: text to a typed tree of routes.
//!
//! It reads two languages: mcrouter's (JSON with comments, macros, imports, named handles,
//! prefixes), and twemproxy's YAML. Both become one [`ast::Config`]. Every error and every part of
//! the tree carries file, line and column.
//!
//! Reading is total: every text yields a configuration or findings, within limits on size, depth,
//! and the work of macros.
#![forbid(unsafe_code)]

pub mod ast;
pub mod cli;
mod count;
mod fanout;
mod host;
mod interval;
mod json;
pub mod lint;
mod load;
mod macros;
mod params;
mod parse;
pub mod select;
mod source;
mod twemproxy;
mod variables;
pub mod walk;
mod yaml;

pub use fanout::{DEPTH_MAX, REQUESTS_MAX};
pub use host::host_id;
pub use load::{Language, Loaded, Rejected, load, load_file, yaml_values};
pub use params::{ParamValue, Params};
pub use parse::ROUTE_TYPES;
pub use source::{
    At, Diagnostic, FILE_BYTES_MAX, FileSources, Files, MemorySources, Severity, Sources,
};
pub use variables::Variables;

//! `holdall migrate`: converts another program's settings into a file for holdall, and lists those
//! that it could not convert.
//!
//! ```text
//!     memcached, `stats settings` --\
//!     Redis, `CONFIG GET`, `INFO` ---> Settings -> TOML for holdall serve
//!
//!     Lua of memcached's proxy -----\
//!     Envoy's YAML or JSON ----------> Routing -> JSON for holdall route
//!
//!     mcrouter's JSON, twemproxy's YAML: read by holdall route as they are
//! ```
#![forbid(unsafe_code)]

pub mod cli;
mod envoy;
mod memcached;
mod memcached_proxy;
mod redis;
mod routing;
mod settings;

pub use envoy::from_envoy;
pub use memcached::from_memcached;
pub use memcached_proxy::from_memcached_proxy;
pub use redis::{COUNTERPARTS, Redis, from_redis};
pub use routing::{Routing, Untranslatable};
pub use settings::Settings;

//! The client library as a Python module: bytes and numbers in, bytes and numbers out.
//!
//! What Python's programs see is made of this in `holdall/client.py`. The interpreter's lock is
//! released while a call waits.
#![forbid(unsafe_code)]

mod answer;
mod bridge;
mod call;
mod dropped;
mod errors;
mod exit;
mod position;
mod stepped;
mod steps;
mod ticks;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use client::{Builder, Client, Compression, LookAside, TlsOptions, Window};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use bridge::Bridge;
use dropped::{Kept, await_dropped};
use errors::{CacheError, CacheTimeout, IllegalInputError};
use exit::begin_exit;
use stepped::Stepped;
use steps::Later;

/// A client, and the threads that work for it. For any Python thread.
#[pyclass(frozen)]
struct Native {
    client: Arc<Client>,
    /// It knows how long loads take.
    look_aside: LookAside,
    kept: Kept,
}

/// Seconds as Python has them; what is negative or no number is 0.
fn secs(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs.clamp(0.0, 1e6)).unwrap_or_default()
}

fn builder(settings: &Bound<'_, PyDict>) -> PyResult<Builder> {
    let mut builder = Client::builder();
    let mut compression = (Compression::Off, 1024);
    for (name, value) in settings {
        let name: String = name.extract()?;
        let secs = || PyResult::Ok(secs(value.extract::<f64>()?));
        let path = || value.extract::<std::path::PathBuf>();
        builder = match name.as_str() {
            "servers" => builder.servers(value.extract::<Vec<String>>()?),
            "config" => builder.config_text(&value.extract::<String>()?),
            "config_file" => builder.config_file(path()?),
            "hash" => builder.hash(&value.extract::<String>()?),
            "default_route" => builder.default_route(&value.extract::<String>()?),
            "timeout" => builder.timeout(secs()?),
            "connect_timeout" => builder.connect_timeout(secs()?),
            "deadline" => builder.deadline(secs()?),
            "timeouts_until_tko" => builder.timeouts_until_tko(value.extract()?),
            "pending_max" => builder.pending_max(value.extract()?),
            "tls" => builder.tls(tls(&value)?),
            "server_name" => builder.server_name(&value.extract::<String>()?),
            "login" => {
                let (user, password): (String, String) = value.extract()?;
                builder.login(&user, &password)
            }
            "udp_gets" => builder.udp_gets(secs()?),
            "window" => builder.window(window(&value)?),
            "keep_deletes" => builder.keep_deletes(path()?),
            "discovery_period" => builder.discovery_period(secs()?),
            "discovery_dir" => builder.discovery_dir(path()?),
            "max_value_bytes" => builder.value_bytes_max(value.extract()?),
            "compress" => {
                compression.0 = match value.extract::<String>()?.as_str() {
                    "zstd" => Compression::Zstd,
                    "lz4" => Compression::Lz4,
                    _ => return Err(IllegalInputError::new_err("compress is \"zstd\" or \"lz4\"")),
                };
                builder
            }
            "compress_threshold" => {
                compression.1 = value.extract()?;
                builder
            }
            _ => return Err(IllegalInputError::new_err(format!("no setting {name:?}"))),
        };
    }
    Ok(builder.compression(compression.0, compression.1))
}

/// Files of authorities, of an own certificate and of its key, each `None` where there is none.
fn tls(value: &Bound<'_, PyAny>) -> PyResult<TlsOptions> {
    let (ca_cert, chain_cert, key) = value.extract()?;
    Ok(TlsOptions { ca_cert, chain_cert, key })
}

/// `"adaptive"`, or how many requests.
fn window(value: &Bound<'_, PyAny>) -> PyResult<Window> {
    if let Ok(count) = value.extract::<u32>() {
        return Ok(Window::Fixed(count));
    }
    match value.extract::<&str>() {
        Ok("adaptive") => Ok(Window::Adaptive),
        _ => Err(IllegalInputError::new_err("window is \"adaptive\" or a number of requests")),
    }
}

/// A fork has copied the thread that calls this, and no other.
#[pyfunction]
fn after_fork() {
    dropped::after_fork();
    exit::after_fork();
    ticks::after_fork();
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Native>()?;
    module.add_class::<Bridge>()?;
    module.add_class::<Later>()?;
    module.add_class::<Stepped>()?;
    module.add_function(wrap_pyfunction!(begin_exit, module)?)?;
    module.add_function(wrap_pyfunction!(await_dropped, module)?)?;
    module.add_function(wrap_pyfunction!(after_fork, module)?)?;
    module.add_class::<position::PyPosition>()?;
    module.add("CacheError", py.get_type::<CacheError>())?;
    module.add("CacheTimeout", py.get_type::<CacheTimeout>())?;
    module.add("IllegalInputError", py.get_type::<IllegalInputError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}

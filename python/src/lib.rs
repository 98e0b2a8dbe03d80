//! The client library as a Python module: bytes and numbers in, bytes and numbers out.
//!
//! What Python's programs see is made of this in `holdall/client.py`. The interpreter's lock is released while a call waits.
#![forbid(unsafe_code)]

mod call;
mod errors;

use std::time::Duration;

use client::{BlockingClient, Builder, Client, Compression};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use errors::{CacheError, CacheTimeout, IllegalInputError};

/// A client, and the threads that work for it. For any Python thread.
#[pyclass(frozen)]
struct Native {
    client: BlockingClient,
}

fn builder(settings: &Bound<'_, PyDict>) -> PyResult<Builder> {
    let mut builder = Client::builder();
    let mut compression = (Compression::Off, 1024);
    for (name, value) in settings {
        let name: String = name.extract()?;
        let secs =
            || PyResult::Ok(Duration::from_secs_f64(value.extract::<f64>()?.clamp(0.0, 1e6)));
        builder = match name.as_str() {
            "servers" => builder.servers(value.extract::<Vec<String>>()?),
            "config" => builder.config_text(&value.extract::<String>()?),
            "config_file" => builder.config_file(value.extract::<String>()?),
            "hash" => builder.hash(&value.extract::<String>()?),
            "default_route" => builder.default_route(&value.extract::<String>()?),
            "timeout" => builder.timeout(secs()?),
            "connect_timeout" => builder.connect_timeout(secs()?),
            "deadline" => builder.deadline(secs()?),
            "threads" => builder.threads(value.extract()?),
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

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Native>()?;
    module.add("CacheError", py.get_type::<CacheError>())?;
    module.add("CacheTimeout", py.get_type::<CacheTimeout>())?;
    module.add("IllegalInputError", py.get_type::<IllegalInputError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}

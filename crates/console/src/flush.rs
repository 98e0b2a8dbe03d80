//! The flush of a prefix on every server.

use serde_json::{Value, json};
use tools::{Connection, Error, Options};

use crate::key::each;
use plan::Target;

/// Makes everything stored before under keys that start with `prefix` a miss, on every server.
pub(crate) fn flush(prefix: &str, servers: &[Target], options: &Options) -> Value {
    let answers = each(servers, |address| of_server(prefix, address, options));
    let list = servers.iter().zip(answers).map(|(target, answer)| {
        let error = answer.err().map(|error| error.to_string());
        json!({"address": target.address, "error": error})
    });
    Value::Array(list.collect())
}

fn of_server(prefix: &str, address: &str, options: &Options) -> Result<(), Error> {
    let mut connection = Connection::open(address, options)?;
    connection.send(format!("flush_prefix {prefix}\r\n").as_bytes())?;
    match connection.line()?.as_str() {
        "OK" => Ok(()),
        reply => Err(connection.unexpected("flush_prefix", reply)),
    }
}

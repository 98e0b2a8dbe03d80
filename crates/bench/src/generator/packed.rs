//! Histograms as text: HdrHistogram's V2 format, deflated, base64. Counts come back exactly, so
//! results add up exactly.

use std::io::Cursor;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, de, ser};

/// Writes a histogram.
///
/// # Errors
///
/// When its counts do not fit into the format's signed numbers.
pub fn encode<C: Counter>(histogram: &Histogram<C>) -> Result<String, String> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(BASE64_STANDARD.encode(bytes))
}

/// Reads a histogram.
///
/// # Errors
///
/// When the text was damaged.
pub fn decode<C: Counter>(text: &str) -> Result<Histogram<C>, String> {
    let bytes = BASE64_STANDARD.decode(text).map_err(|error| error.to_string())?;
    Deserializer::new().deserialize(&mut Cursor::new(bytes)).map_err(|error| error.to_string())
}

/// For serde's `with`.
pub(super) fn serialize<C: Counter, S: ser::Serializer>(
    histogram: &Histogram<C>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&encode(histogram).map_err(ser::Error::custom)?)
}

/// For serde's `with`.
pub(super) fn deserialize<'de, C: Counter, D: de::Deserializer<'de>>(
    deserializer: D,
) -> Result<Histogram<C>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let found: Histogram<C> = decode(&text).map_err(de::Error::custom)?;
    Ok(found)
}

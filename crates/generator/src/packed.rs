//! Histograms as text: HdrHistogram's V2 format, deflated, base64. Counts are preserved exactly, so
//! results add up exactly.

use std::io::Cursor;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer, Serializer, V2DeflateSerializeError, V2DeflateSerializer,
};
use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, de, ser};

/// Text that is not a histogram.
#[derive(Debug, thiserror::Error)]
pub enum Damaged {
    /// It is not base64.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// Its bytes are damaged, or of another version.
    #[error("the histogram is damaged: {0:?}")]
    Histogram(DeserializeError),
}

impl From<DeserializeError> for Damaged {
    fn from(error: DeserializeError) -> Self {
        Self::Histogram(error)
    }
}

/// Writes a histogram.
///
/// # Errors
///
/// When its counts do not fit into the format's signed numbers.
pub fn encode<C: Counter>(histogram: &Histogram<C>) -> Result<String, V2DeflateSerializeError> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes)?;
    Ok(BASE64_STANDARD.encode(bytes))
}

/// Reads a histogram.
///
/// # Errors
///
/// When the text is damaged.
pub fn decode<C: Counter>(text: &str) -> Result<Histogram<C>, Damaged> {
    let bytes = BASE64_STANDARD.decode(text)?;
    Ok(Deserializer::new().deserialize(&mut Cursor::new(bytes))?)
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

//! Conversion of applications' values to bytes and client flags, and back; the traits for more
//! types.
//!
//! The flags of the types here are pymemcache's, so that its programs, the Python client and this
//! library read each other's values.

use std::borrow::Cow;

use crate::error::Error;

/// Client flag: a decimal integer.
pub const FLAG_INTEGER: u32 = 1 << 1;

/// Client flag: UTF-8 text.
pub const FLAG_TEXT: u32 = 1 << 4;

/// A value that can be stored.
pub trait Encode {
    /// The bytes, and the client flags for [`Decode`]. The bits of [`crate::FLAG_LZ4`] and
    /// [`crate::FLAG_ZSTD`] are reserved.
    fn encode(&self) -> (Cow<'_, [u8]>, u32);
}

/// A value that can be made from stored bytes.
pub trait Decode: Sized {
    /// Reads a value.
    ///
    /// # Errors
    ///
    /// If bytes or flags are those of another type.
    fn decode(bytes: Vec<u8>, flags: u32) -> Result<Self, Error>;
}

/// A stored value, decompressed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Value {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The client flags, without those of the compression.
    pub flags: u32,
    /// The cas unique of gets and gats; otherwise 0.
    pub cas: u64,
}

impl Value {
    /// Converts it to a type.
    ///
    /// # Errors
    ///
    /// If it is not a value of that type.
    pub fn decode<T: Decode>(self) -> Result<T, Error> {
        T::decode(self.bytes, self.flags)
    }
}

impl Encode for Value {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        (Cow::Borrowed(&self.bytes), self.flags)
    }
}

impl Decode for Value {
    fn decode(bytes: Vec<u8>, flags: u32) -> Result<Self, Error> {
        Ok(Self { bytes, flags, cas: 0 })
    }
}

impl Encode for [u8] {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        (Cow::Borrowed(self), 0)
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        (Cow::Borrowed(self), 0)
    }
}

impl Encode for Vec<u8> {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        (Cow::Borrowed(self), 0)
    }
}

/// Any bytes, with any flags.
impl Decode for Vec<u8> {
    fn decode(bytes: Vec<u8>, _flags: u32) -> Result<Self, Error> {
        Ok(bytes)
    }
}

impl Encode for str {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        (Cow::Borrowed(self.as_bytes()), FLAG_TEXT)
    }
}

impl Encode for String {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        self.as_str().encode()
    }
}

/// Text, or bytes without flags that are text.
impl Decode for String {
    fn decode(bytes: Vec<u8>, flags: u32) -> Result<Self, Error> {
        if flags != 0 && flags != FLAG_TEXT {
            return Err(Error::Undecodable("its flags are not those of text"));
        }
        Self::from_utf8(bytes).map_err(|_| Error::Undecodable("it is not UTF-8"))
    }
}

impl Encode for i64 {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        (Cow::Owned(self.to_string().into_bytes()), FLAG_INTEGER)
    }
}

/// An integer, or a counter of incr and decr.
impl Decode for i64 {
    fn decode(bytes: Vec<u8>, flags: u32) -> Result<Self, Error> {
        if flags != 0 && flags != FLAG_INTEGER {
            return Err(Error::Undecodable("its flags are not those of an integer"));
        }
        // Blanks follow if decr has shortened a number.
        let text = std::str::from_utf8(&bytes).unwrap_or_default().trim_end_matches(' ');
        text.parse().map_err(|_| Error::Undecodable("it is no integer"))
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self) -> (Cow<'_, [u8]>, u32) {
        (**self).encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_with_their_type() {
        let (bytes, flags) = "ä".encode();
        assert_eq!(String::decode(bytes.to_vec(), flags), Ok("ä".to_owned()));
        let (bytes, flags) = (-17i64).encode();
        assert_eq!(i64::decode(bytes.to_vec(), flags), Ok(-17));
        assert_eq!(i64::decode(b"9 ".to_vec(), 0), Ok(9));
    }

    #[test]
    fn another_type_is_refused() {
        assert!(String::decode(b"1".to_vec(), FLAG_INTEGER).is_err());
        assert!(String::decode(vec![0xff], FLAG_TEXT).is_err());
        assert!(i64::decode(b"x".to_vec(), FLAG_INTEGER).is_err());
        // Only Python can read its pickles.
        assert!(i64::decode(b"1".to_vec(), 1).is_err());
    }
}

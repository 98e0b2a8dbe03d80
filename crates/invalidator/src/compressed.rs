//! Batches in blocks of zstd, for routers of another region.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use zstd::bulk::Compressor;

use crate::batch::{self, BatchError, Wire};

/// The longest batch that routers take in a block, in bytes.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// zstd's level. Batches are short, so a higher one gains little.
const LEVEL: i32 = 1;

/// Makes blocks of batches.
pub(crate) struct Packer(Compressor<'static>);

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Packer")
    }
}

impl Packer {
    /// A packer for the router at the other end; `None` if the router does not accept blocks.
    ///
    /// # Errors
    ///
    /// When the connection fails.
    pub(crate) async fn ask<S>(wire: &mut Wire<S>) -> Result<Option<Self>, BatchError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        wire.write_all(b"mn zstd\r\n").await?;
        wire.flush().await?;
        match batch::line(wire).await?.as_str() {
            "MN zstd" => Ok(Some(Self(Compressor::new(LEVEL)?))),
            "MN" => Ok(None),
            other => Err(BatchError::Unexpected(other.to_owned())),
        }
    }

    /// The batch as a block, or unchanged if that is not longer.
    ///
    /// # Errors
    ///
    /// When there is no memory for it.
    pub(crate) fn pack(&mut self, text: Vec<u8>) -> io::Result<Vec<u8>> {
        if text.len() > BLOCK_BYTES_MAX {
            return Ok(text);
        }
        let block = self.0.compress(&text)?;
        let mut packed = format!("zstd {}\r\n", block.len()).into_bytes();
        packed.extend_from_slice(&block);
        packed.extend_from_slice(b"\r\n");
        Ok(if packed.len() < text.len() { packed } else { text })
    }
}

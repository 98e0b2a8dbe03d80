//! Makes connections: over the network, or in a test's simulation of one.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};

/// Makes connections.
pub trait Network: Send + Sync + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send;

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// When the connection cannot be made.
    fn dial(&self, address: &str) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// TCP.
#[derive(Debug, Clone, Copy)]
pub struct Tcp;

impl Network for Tcp {
    type Stream = tokio::net::TcpStream;

    async fn dial(&self, address: &str) -> io::Result<Self::Stream> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

//! Makes connections: over the network, or in a test's simulation of one.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

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

/// A connection's bytes, encrypted or not.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

/// TCP to routers and cache servers, with TLS and a login where these require them.
#[derive(Clone, Default)]
pub struct Routers {
    tls: Option<TlsConnector>,
    /// The command for memcached's `-Y`, whose data are name and password.
    login: Option<Vec<u8>>,
}

impl fmt::Debug for Routers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routers")
            .field("has_tls", &self.tls.is_some())
            .field("has_login", &self.login.is_some())
            .finish()
    }
}

impl Routers {
    /// TLS by this configuration, if there is one, and a login by user and password.
    #[must_use]
    pub fn new(tls: Option<Arc<ClientConfig>>, login: Option<(&str, &str)>) -> Self {
        let login = login.map(|(user, password)| {
            let data = format!("{user} {password}");
            format!("set login 0 0 {}\r\n{data}\r\n", data.len()).into_bytes()
        });
        Self { tls: tls.map(TlsConnector::from), login }
    }

    async fn secured(&self, address: &str) -> io::Result<Box<dyn Duplex>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let (host, _) = hostport::split(address);
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(tls.connect(name, stream).await?))
    }
}

impl Network for Routers {
    type Stream = Box<dyn Duplex>;

    async fn dial(&self, address: &str) -> io::Result<Self::Stream> {
        let mut stream = self.secured(address).await?;
        if let Some(login) = &self.login {
            log_in(&mut stream, login).await?;
        }
        Ok(stream)
    }
}

/// The longest answer to a login, in bytes.
const ANSWER_BYTES_MAX: usize = 512;

/// Logs in; nothing follows the answer before the next request.
async fn log_in(stream: &mut (impl Duplex + ?Sized), login: &[u8]) -> io::Result<()> {
    stream.write_all(login).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") && answer.len() < ANSWER_BYTES_MAX {
        let mut part = [0; ANSWER_BYTES_MAX];
        match stream.read(&mut part).await? {
            0 => break,
            len => answer.extend_from_slice(&part[..len]),
        }
    }
    if answer == b"STORED\r\n" {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer);
    let why = format!("the login was refused: {}", said.trim_end().escape_debug());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    async fn answered(said: &[u8]) -> (io::Result<()>, Vec<u8>) {
        let (mut near, mut far) = duplex(1024);
        far.write_all(said).await.unwrap();
        far.shutdown().await.unwrap();
        let routers = Routers::new(None, Some(("app", "se:cret")));
        let done = log_in(&mut near, &routers.login.unwrap()).await;
        drop(near);
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        (done, sent)
    }

    #[tokio::test]
    async fn a_login_is_a_set_command_with_name_and_password() {
        let (done, sent) = answered(b"STORED\r\n").await;
        done.unwrap();
        assert_eq!(sent, b"set login 0 0 11\r\napp se:cret\r\n");
        for said in ["CLIENT_ERROR authentication failure\r\n", "", "STORED\r\nSTORED\r\n", "x"] {
            let why = answered(said.as_bytes()).await.0.unwrap_err();
            assert_eq!(why.kind(), io::ErrorKind::PermissionDenied, "{said}");
            assert!(why.to_string().contains(said.trim_end().lines().next().unwrap_or("")));
        }
        // An endless answer is rejected.
        assert!(answered(&[b'x'; 1000]).await.0.is_err());
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", Routers::new(None, Some(("app", "secret"))));
        assert!(!shown.contains("secret"), "{shown}");
    }
}

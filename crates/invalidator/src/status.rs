//! The status port: `stats` as memcached has it, and Prometheus's text over HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::stats::Stats;

/// The longest request line, in bytes.
const LINE_BYTES_MAX: u64 = 1024;

/// Answers until the task is dropped.
pub async fn serve(listener: TcpListener, stats: Arc<Stats>, now_us: fn() -> u64) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let stats = Arc::clone(&stats);
                tokio::spawn(async move {
                    // Whoever asks slowly or goes away gets nothing.
                    let _ = timeout(Duration::from_secs(10), answer(stream, &stats, now_us)).await;
                });
            }
            // Out of files: others may close some.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(stream: TcpStream, stats: &Stats, now_us: fn() -> u64) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if (&mut stream).take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let reply = match line.trim_end() {
            "stats" => stats.text(now_us()),
            "quit" => return Ok(()),
            request if request.starts_with("GET ") => {
                let response = metrics::respond(request, || stats.prometheus(now_us()));
                stream.get_mut().write_all(response.as_bytes()).await?;
                return stream.get_mut().shutdown().await;
            }
            _ => "ERROR\r\n".to_owned(),
        };
        stream.get_mut().write_all(reply.as_bytes()).await?;
    }
}

/// Asks a running invalidator for its stats.
///
/// # Errors
///
/// When nobody answers at the address.
pub async fn ask(address: &str) -> io::Result<String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"stats\r\nquit\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    timeout(Duration::from_secs(5), asked)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

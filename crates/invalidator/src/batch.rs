//! A batch of deletes as bytes, and its answer: `md KEY q` for each key, then `mn`.
//!
//! A hint asks routers to return an error when they keep a delete for later because a server did
//! not execute it. Servers ignore it, as do routers that do not support it.
//!
//! Deletes are quiet, so the answer to a batch of any size is `MN`, preceded by `NF` for missing
//! keys; any other line before it is an error. The batch does not show which key an error belongs
//! to, so it is sent again with one answer per key. Sampled keys are read before their delete, in
//! the same packet: `mg KEY c` returns the cas unique of the value that must be gone afterwards.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use changes::keys::is_plain;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream,
};

use crate::delivery::Flush;

/// The longest line in a server's answer, in bytes.
const LINE_BYTES_MAX: u64 = 2048;

/// The treatment that a router should give to deletes that a server does not execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Keep them for later, and report it.
    Executed,
    /// Do not keep them.
    Now,
}

impl Hint {
    const fn flag(self) -> &'static [u8] {
        match self {
            Self::Executed => b" Pexecuted",
            Self::Now => b" Pnow",
        }
    }
}

/// The answer to a delete that was kept but not executed.
const KEPT: &str = "SERVER_ERROR kept for later";

/// Starts the answer to a delete that was executed, but without its hold-off or its empty item.
const ONLY_DELETED: &str = "SERVER_ERROR deleted, but ";

/// True for the answer to a delete that a router keeps for later.
#[must_use]
pub fn is_kept(answer: &str) -> bool {
    answer == KEPT
}

/// True for the answer to a command that is refused whatever the state of the server.
#[must_use]
pub fn is_client_error(answer: &str) -> bool {
    answer.starts_with("CLIENT_ERROR")
}

/// A connection to a router or server, with its read buffer.
pub type Wire<S> = BufStream<S>;

/// The reason why a batch may not have been delivered.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The peer sent an answer that does not fit the batch.
    #[error("unexpected answer '{0}'")]
    Unexpected(String),
    /// Some keys were refused; a batch with one answer per key shows which.
    #[error("{0}")]
    Refused(String),
}

/// The cas unique cached under each sampled key before the delete, or none.
pub type Before = Vec<Option<u64>>;

/// The answer to a batch of quiet deletes.
#[derive(Debug)]
pub struct Quiet {
    /// Values cached under the sampled keys; empty if the answers do not show them.
    pub before: Before,
    /// The first refusal. Its key is unknown; any other key may have been deleted.
    pub refused: Option<String>,
    /// True if deletes of unknown keys were kept for later.
    pub has_kept: bool,
}

/// Deletes keys quietly, after reading the keys of `sampled`.
///
/// # Errors
///
/// When the connection fails.
pub async fn quiet<S>(
    wire: &mut Wire<S>,
    keys: &[&Bytes],
    sampled: &[&Bytes],
) -> Result<Quiet, BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    wire.write_all(&quiet_text(keys, sampled)).await?;
    wire.flush().await?;
    quiet_answer(wire, sampled.len()).await
}

/// The bytes of a batch of quiet deletes, which reads the keys of `sampled` first.
#[must_use]
pub fn quiet_text(keys: &[&Bytes], sampled: &[&Bytes]) -> Vec<u8> {
    let mut text = Vec::with_capacity(keys.iter().map(|key| key.len() + 20).sum());
    for key in sampled {
        command(&mut text, b"mg ", key, b" c");
    }
    for key in keys {
        command(&mut text, b"md ", key, b" q Pexecuted");
    }
    text.extend_from_slice(b"mn\r\n");
    text
}

/// Reads the answer to a batch of quiet deletes that read this number of keys first.
///
/// # Errors
///
/// When the connection fails.
pub async fn quiet_answer<R>(reader: &mut R, sampled: usize) -> Result<Quiet, BatchError>
where
    R: AsyncBufRead + Unpin,
{
    let mut before = Before::with_capacity(sampled);
    let (mut refused, mut has_kept) = (None, false);
    loop {
        let line = line(reader).await?;
        match line.as_str() {
            "MN" => break,
            "NF" => continue,
            deleted if deleted.starts_with(ONLY_DELETED) => continue,
            KEPT => {
                has_kept = true;
                continue;
            }
            _ => {}
        }
        match peeked(&line) {
            Some(cas) if before.len() < sampled => before.push(cas),
            _ => refused = refused.or(Some(line)),
        }
    }
    if refused.is_some() && before.len() < sampled {
        before.clear();
    } else if before.len() < sampled {
        return Err(BatchError::Unexpected("MN".to_owned()));
    }
    Ok(Quiet { before, refused, has_kept })
}

/// Deletes keys, each with an answer; returns each refused key with the server's error.
///
/// # Errors
///
/// When the connection fails or answers do not fit.
pub async fn with_replies<S>(
    wire: &mut Wire<S>,
    keys: &[&Bytes],
    hint: Hint,
) -> Result<Vec<Option<String>>, BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut text = Vec::with_capacity(keys.iter().map(|key| key.len() + 10).sum());
    for key in keys {
        command(&mut text, b"md ", key, hint.flag());
    }
    text.extend_from_slice(b"mn\r\n");
    wire.write_all(&text).await?;
    wire.flush().await?;
    let mut answers = Vec::with_capacity(keys.len());
    for _ in keys {
        let line = line(wire).await?;
        if line == "MN" {
            return Err(BatchError::Unexpected(line));
        }
        let is_gone = line == "HD" || line == "NF" || line.starts_with(ONLY_DELETED);
        answers.push((!is_gone).then_some(line));
    }
    match line(wire).await? {
        end if end == "MN" => Ok(answers),
        other => Err(BatchError::Unexpected(other)),
    }
}

/// Reads the cas unique of each key, or none where nothing is cached.
///
/// # Errors
///
/// When the connection fails or answers do not fit.
pub async fn peek<S>(wire: &mut Wire<S>, keys: &[&Bytes]) -> Result<Before, BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answer = quiet(wire, &[], keys).await?;
    answer.refused.map_or(Ok(answer.before), |why| Err(BatchError::Refused(why)))
}

/// Flushes this scope on every server of the cluster. A refused prefix does not delay the others.
///
/// # Errors
///
/// When any part is refused. The reachable servers have executed it even then.
pub async fn flush<S>(wire: &mut Wire<S>, flush: &Flush) -> Result<(), BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let commands: Vec<Vec<u8>> = match flush {
        Flush::All => vec![b"flush_all".to_vec()],
        Flush::Prefixes(prefixes) => {
            prefixes.iter().map(|prefix| [b"flush_prefix ", &prefix[..]].concat()).collect()
        }
    };
    let mut refused = None;
    for command in commands {
        wire.write_all(&[&command[..], b"\r\n"].concat()).await?;
        wire.flush().await?;
        let answer = line(wire).await?;
        if answer != "OK" {
            let command = String::from_utf8_lossy(&command).into_owned();
            refused = refused.or_else(|| Some(format!("{command}: {answer}")));
        }
    }
    refused.map_or(Ok(()), |why| Err(BatchError::Refused(why)))
}

/// A prefix with which no key starts.
const NO_KEYS: &[u8] = b"holdall:no-key-begins-so:";

/// True unless a server of the cluster is known to be unreachable: a flush of no keys reaches all
/// of them. Servers that do not know the command show nothing.
///
/// # Errors
///
/// When the connection fails.
pub async fn reaches_all<S>(wire: &mut Wire<S>) -> Result<bool, BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match flush(wire, &Flush::Prefixes(vec![Bytes::from_static(NO_KEYS)])).await {
        Ok(()) => Ok(true),
        Err(BatchError::Refused(why)) => Ok(!why.contains("SERVER_ERROR")),
        Err(error) => Err(error),
    }
}

/// The answer to `mg KEY c`; none for any other line.
fn peeked(line: &str) -> Option<Option<u64>> {
    if line == "EN" {
        return Some(None);
    }
    let cas = line.strip_prefix("HD c")?;
    cas.parse().ok().map(Some)
}

/// One command. A key with bytes that text cannot carry is sent as base64.
fn command(text: &mut Vec<u8>, name: &[u8], key: &Bytes, flags: &[u8]) {
    text.extend_from_slice(name);
    if is_plain(key) {
        text.extend_from_slice(key);
        text.extend_from_slice(flags);
    } else {
        text.extend_from_slice(STANDARD.encode(key).as_bytes());
        text.extend_from_slice(flags);
        text.extend_from_slice(b" b");
    }
    text.extend_from_slice(b"\r\n");
}

/// One line of an answer, without its end.
pub(crate) async fn line<R>(wire: &mut R) -> Result<String, BatchError>
where
    R: AsyncBufRead + Unpin,
{
    let mut line = Vec::new();
    let _ = (&mut *wire).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    let Some(text) = line.strip_suffix(b"\r\n") else {
        if line.len() as u64 >= LINE_BYTES_MAX {
            return Err(BatchError::Unexpected("a line without an end".to_owned()));
        }
        return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
    };
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    /// Sends a batch to a peer that answers `answer`; returns the bytes sent, and the result.
    async fn batch(
        keys: &[&str],
        sampled: &[&str],
        answer: &str,
    ) -> (String, Result<Before, BatchError>) {
        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(answer.as_bytes()).await.unwrap();
        theirs.shutdown().await.unwrap();
        let bytes = |keys: &[&str]| -> Vec<Bytes> {
            keys.iter().map(|key| Bytes::copy_from_slice(key.as_bytes())).collect()
        };
        let (keys, sampled) = (bytes(keys), bytes(sampled));
        let mut wire = BufStream::new(ours);
        let (keys, sampled): (Vec<_>, Vec<_>) = (keys.iter().collect(), sampled.iter().collect());
        let result = match quiet(&mut wire, &keys, &sampled).await {
            Ok(Quiet { refused: Some(why), .. }) => Err(BatchError::Refused(why)),
            Ok(quiet) => Ok(quiet.before),
            Err(error) => Err(error),
        };
        drop(wire);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.unwrap();
        (sent, result)
    }

    #[tokio::test]
    async fn a_batch_has_one_line_per_key_and_one_reply() {
        let (sent, result) = batch(&["a", "b c"], &["a"], "HD c7\r\nMN\r\n").await;
        assert_eq!(sent, "mg a c\r\nmd a q Pexecuted\r\nmd YiBj q Pexecuted b\r\nmn\r\n");
        assert_eq!(result.unwrap(), [Some(7)]);
        let (_, result) = batch(&["a"], &["a"], "EN\r\nNF\r\nMN\r\n").await;
        assert_eq!(result.unwrap(), [None]);
    }

    #[tokio::test]
    async fn a_refused_batch_still_reports_cached_values() {
        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(b"HD c7\r\nSERVER_ERROR away\r\nMN\r\n").await.unwrap();
        let key = Bytes::from_static(b"a");
        let quiet = quiet(&mut BufStream::new(ours), &[&key], &[&key]).await.unwrap();
        assert_eq!(quiet.before, [Some(7)]);
        assert_eq!(quiet.refused.as_deref(), Some("SERVER_ERROR away"));
    }

    #[tokio::test]
    async fn kept_and_refused_deletes_are_distinguished() {
        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(b"SERVER_ERROR kept for later\r\nMN\r\n").await.unwrap();
        let key = Bytes::from_static(b"a");
        let quiet = quiet(&mut BufStream::new(ours), &[&key], &[]).await.unwrap();
        assert_eq!((quiet.refused, quiet.has_kept), (None, true));
        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(b"HD\r\nSERVER_ERROR tko\r\nMN\r\n").await.unwrap();
        let mut wire = BufStream::new(ours);
        let answers = with_replies(&mut wire, &[&key, &key], Hint::Now).await.unwrap();
        assert_eq!(answers, [None, Some("SERVER_ERROR tko".to_owned())]);
        drop(wire);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.unwrap();
        assert_eq!(sent, "md a Pnow\r\nmd a Pnow\r\nmn\r\n");
    }

    /// As behind a `WarmUpRoute`, which adds hold-offs.
    #[tokio::test]
    async fn a_delete_without_its_hold_off_is_delivered() {
        let (ours, mut theirs) = duplex(1 << 16);
        let answer = "SERVER_ERROR deleted, but there is no room for the hold-off\r\nMN\r\n";
        theirs.write_all(answer.repeat(2).as_bytes()).await.unwrap();
        let key = Bytes::from_static(b"a");
        let mut wire = BufStream::new(ours);
        let quiet = quiet(&mut wire, &[&key], &[]).await.unwrap();
        assert_eq!((quiet.refused, quiet.has_kept), (None, false));
        assert_eq!(with_replies(&mut wire, &[&key], Hint::Now).await.unwrap(), [None]);
    }

    #[tokio::test]
    async fn a_refused_prefix_delays_no_other() {
        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(b"SERVER_ERROR away\r\nOK\r\n").await.unwrap();
        let prefixes = Flush::Prefixes(vec![Bytes::from_static(b"a:"), Bytes::from_static(b"b:")]);
        let mut wire = BufStream::new(ours);
        let why = flush(&mut wire, &prefixes).await.unwrap_err().to_string();
        assert_eq!(why, "flush_prefix a:: SERVER_ERROR away");
        drop(wire);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.unwrap();
        assert_eq!(sent, "flush_prefix a:\r\nflush_prefix b:\r\n");
    }

    #[tokio::test]
    async fn only_a_server_error_counts_as_unreachable() {
        for (answer, expected) in
            [("OK", true), ("ERROR", true), ("SERVER_ERROR no answer (tko)", false)]
        {
            let (ours, mut theirs) = duplex(1 << 16);
            theirs.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
            assert_eq!(reaches_all(&mut BufStream::new(ours)).await.unwrap(), expected, "{answer}");
        }
    }

    #[tokio::test]
    async fn only_the_expected_reply_is_a_delivery() {
        for answer in [
            "",
            "MN",
            "SERVER_ERROR x\r\nMN\r\n",
            "EN\r\nMN\r\n",
            "ERROR\r\n",
            &"x".repeat(5000),
            "OK\r\n",
        ] {
            let (_, result) = batch(&["a"], &[], answer).await;
            assert!(result.is_err(), "{answer}");
        }
        assert!(batch(&["a"], &["a"], "MN\r\n").await.1.is_err(), "a peek without an answer");
    }
}

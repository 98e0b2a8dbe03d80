//! The canary's requests to routers: keys are planted and read back, and later queried with a store
//! that no server executes.
//!
//! A router may answer a get with a miss when its server fails, so a miss proves nothing. The
//! server itself answers a store with a cas unique that no item has: `NF` without an item, `EX`
//! with one. It changes neither.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::batch::{BatchError, Wire, line};

/// Seconds after which a planted key expires.
pub(super) const PLANTED_S: u64 = 3600;

/// A cas unique that no server reaches.
const NO_CAS: u64 = u64::MAX;

/// Stores a value under each key, and reads it back through the same router. The reads are sent
/// after the stores are answered, because a router may reorder them.
///
/// # Errors
///
/// When the connection fails, a store is refused, or another value comes back.
pub(super) async fn plant<S>(
    wire: &mut Wire<S>,
    keys: &[Bytes],
    value: &[u8],
) -> Result<(), BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let head = format!(" {} T{PLANTED_S}\r\n", value.len());
    let store = |key: &Bytes| [b"ms ".as_slice(), key, head.as_bytes(), value, b"\r\n"].concat();
    ask(wire, keys.iter().flat_map(store).collect()).await?;
    let mut refused = None;
    for _ in keys {
        let stored = line(wire).await?;
        if stored != "HD" {
            refused = refused.or(Some(stored));
        }
    }
    end(wire).await?;
    if let Some(why) = refused {
        return Err(BatchError::Refused(why));
    }
    let read = |key: &Bytes| [b"mg ".as_slice(), key, b" v\r\n"].concat();
    ask(wire, keys.iter().flat_map(read).collect()).await?;
    for _ in keys {
        let read = read_back(wire, value).await?;
        refused = refused.or(read);
    }
    end(wire).await?;
    refused.map_or(Ok(()), |why| Err(BatchError::Refused(why)))
}

/// The reason why a read did not return the value.
async fn read_back<S>(wire: &mut Wire<S>, value: &[u8]) -> Result<Option<String>, BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let found = line(wire).await?;
    let Some(length) = found.strip_prefix("VA ") else {
        return Ok(Some(format!("'{found}' to a get of what was stored before it")));
    };
    if length.trim().parse() != Ok(value.len()) {
        return Err(BatchError::Unexpected(found));
    }
    let mut data = vec![0; value.len() + 2];
    wire.read_exact(&mut data).await?;
    let is_same = data.strip_suffix(b"\r\n") == Some(value);
    Ok((!is_same).then(|| "a get gives another value than was stored before it".to_owned()))
}

/// The first of these keys under which something is still there.
///
/// # Errors
///
/// When the connection fails, or a key cannot be queried.
pub(super) async fn first_there<'k, S>(
    wire: &mut Wire<S>,
    keys: &'k [Bytes],
) -> Result<Option<&'k Bytes>, BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut text = Vec::new();
    for key in keys {
        text.extend([b"ms ".as_slice(), key, format!(" 0 C{NO_CAS}\r\n\r\n").as_bytes()].concat());
    }
    ask(wire, text).await?;
    let (mut there, mut refused) = (None, None);
    for key in keys {
        match line(wire).await? {
            answer if answer == "NF" => {}
            answer if answer == "EX" => there = there.or(Some(key)),
            answer => refused = refused.or(Some(answer)),
        }
    }
    end(wire).await?;
    match refused {
        Some(why) if there.is_none() => Err(BatchError::Refused(why)),
        _ => Ok(there),
    }
}

async fn ask<S>(wire: &mut Wire<S>, mut text: Vec<u8>) -> Result<(), BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    text.extend_from_slice(b"mn\r\n");
    wire.write_all(&text).await?;
    Ok(wire.flush().await?)
}

async fn end<S>(wire: &mut Wire<S>) -> Result<(), BatchError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match line(wire).await? {
        end if end == "MN" => Ok(()),
        other => Err(BatchError::Unexpected(other)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{BufStream, duplex};

    use super::*;

    const KEYS: [Bytes; 2] = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];

    /// A connection to a peer that answers this.
    async fn peer(answer: &str) -> (Wire<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(answer.as_bytes()).await.unwrap();
        theirs.shutdown().await.unwrap();
        (BufStream::new(ours), theirs)
    }

    #[tokio::test]
    async fn planting_stores_and_reads_back() {
        let good = "HD\r\nHD\r\nMN\r\nVA 1\r\n7\r\nVA 1\r\n7\r\nMN\r\n";
        let (mut wire, mut theirs) = peer(good).await;
        plant(&mut wire, &KEYS, b"7").await.unwrap();
        drop(wire);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.unwrap();
        let store = |key: &str| format!("ms {key} 1 T3600\r\n7\r\n");
        let stores = format!("{}{}mn\r\n", store("a"), store("b"));
        assert_eq!(sent, format!("{stores}mg a v\r\nmg b v\r\nmn\r\n"));
        for answer in [
            "HD\r\nSERVER_ERROR away\r\nMN\r\n",
            "HD\r\nHD\r\nMN\r\nVA 1\r\n7\r\nEN\r\nMN\r\n",
            "HD\r\nHD\r\nMN\r\nVA 1\r\n6\r\nVA 1\r\n7\r\nMN\r\n",
            "HD\r\nHD\r\nMN\r\nVA 1\r\n7\r\nMN\r\n",
            "HD\r\nHD\r\nMN\r\nVA 1000000000\r\n",
            "",
        ] {
            let (mut wire, _theirs) = peer(answer).await;
            assert!(plant(&mut wire, &KEYS, b"7").await.is_err(), "{answer}");
        }
    }

    #[tokio::test]
    async fn only_a_servers_own_reply_proves_a_key_absent() {
        let (mut wire, mut theirs) = peer("NF\r\nNF\r\nMN\r\n").await;
        assert_eq!(first_there(&mut wire, &KEYS).await.unwrap(), None);
        drop(wire);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.unwrap();
        assert!(sent.starts_with("ms a 0 C18446744073709551615\r\n\r\nms b"), "{sent}");
        let (mut wire, _theirs) = peer("SERVER_ERROR away\r\nEX\r\nMN\r\n").await;
        assert_eq!(first_there(&mut wire, &KEYS).await.unwrap(), Some(&KEYS[1]));
        for answer in
            ["NF\r\nSERVER_ERROR away\r\nMN\r\n", "NF\r\nHD\r\nMN\r\n", "NF\r\nMN\r\n", ""]
        {
            let (mut wire, _theirs) = peer(answer).await;
            assert!(first_there(&mut wire, &KEYS).await.is_err(), "{answer}");
        }
    }
}

//! Deliveries of one cluster on disk, while the cluster is away: a folder of crate `spool`, with records that can be read.
//!
//! ```text
//!     md user:7            a delete
//!     md dXNlciA3 b        a delete of a key that text cannot carry
//!     flush_all
//!     flush_prefix user:
//!     lost                 here something was that cannot be read; it stays until that is made good
//! ```
//!
//! A record is one transaction, or a part of a large one; its time is that of the commit. `holdall spool FOLDER` prints them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use spool::{BODY_BYTES_MAX, Damage, Fsync, Settings, Spool};

use crate::batch::is_plain;
use crate::delivery::{Delivery, Flush, Work};
use crate::stats::lock;

/// Why deliveries are not kept.
#[derive(Debug)]
pub enum Refused {
    /// There is as much as there may be.
    Full,
    /// The disk says so.
    Io(String),
}

/// What [`Shelf::read`] gives.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The oldest that are there, in order: number, work, and when it was committed, in microseconds since 1970.
    pub records: Vec<(u64, Work, u64)>,
    /// Those of them that stand for others, which were kept and cannot be read.
    pub lost: u64,
}

/// How much is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Records that are not acknowledged.
    pub records: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// Where a cluster's deliveries are kept: a disk, or a test's idea of one.
pub trait Shelf: Send + Sync + 'static {
    /// How much is there.
    fn held(&self) -> Held;

    /// Keeps deliveries behind those that are there. When this returns well, they outlive a crash of the machine.
    ///
    /// # Errors
    ///
    /// Why they are not kept; a part of them may be there all the same.
    fn append(
        &self,
        deliveries: Vec<Arc<Delivery>>,
    ) -> impl Future<Output = Result<(), Refused>> + Send;

    /// Keeps a flush, which stands for everything that is there and takes its place, however full it is.
    ///
    /// # Errors
    ///
    /// Why it is not kept; everything else is still there then.
    fn replace(&self, flush: Flush) -> impl Future<Output = Result<(), Refused>> + Send;

    /// The oldest that are there, until they are acknowledged.
    ///
    /// # Errors
    ///
    /// What the disk says.
    fn read(&self) -> impl Future<Output = io::Result<Chunk>> + Send;

    /// Everything of the last chunk up to this number is delivered.
    fn acknowledge(&self, number: u64) -> impl Future<Output = ()> + Send;
}

/// A folder.
#[derive(Debug, Clone)]
pub struct Folder {
    inner: Arc<Mutex<Inner>>,
    name: Arc<str>,
    bytes_max: u64,
}

#[derive(Debug)]
struct Inner {
    spool: Spool,
    /// Records were found to be lost, and that is not written down yet.
    owes_loss: bool,
}

/// Records and bytes of one chunk.
const CHUNK_RECORDS: usize = 65_536;
const CHUNK_BYTES: usize = 1 << 22;

/// Room that is left for the flush that takes the place of everything.
const RESERVE_BYTES: u64 = 1 << 20;

impl Folder {
    /// The cluster's own folder below `folder`, of at most `bytes_max` bytes; and what is amiss there.
    ///
    /// # Errors
    ///
    /// When it cannot be made, read or written, or another program has it.
    pub fn open(folder: &Path, name: &str, bytes_max: u64) -> io::Result<(Self, Vec<String>)> {
        let settings = Settings {
            bytes_max: bytes_max.saturating_add(RESERVE_BYTES),
            age_max: Duration::MAX,
            // Room is freed a segment at a time.
            segment_bytes: (bytes_max / 16).clamp(4096, 1 << 20),
            fsync: Fsync::Always,
        };
        let mut spool = Spool::open(&folder.join(name), settings)?;
        let damage = spool.take_damage().iter().map(ToString::to_string).collect();
        let inner = Arc::new(Mutex::new(Inner { spool, owes_loss: false }));
        Ok((Self { inner, name: name.into(), bytes_max }, damage))
    }

    /// Does something with the folder where it may wait for the disk.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Inner, &str) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (inner, name) = (Arc::clone(&self.inner), Arc::clone(&self.name));
        let done = tokio::task::spawn_blocking(move || work(&mut lock(&inner), &name)).await;
        done.map_err(io::Error::other)
    }
}

impl Shelf for Folder {
    fn held(&self) -> Held {
        let counts = lock(&self.inner).spool.counts();
        Held { records: counts.pending, bytes: counts.bytes }
    }

    async fn append(&self, deliveries: Vec<Arc<Delivery>>) -> Result<(), Refused> {
        let bytes_max = self.bytes_max;
        let kept = self.with(move |inner, name| {
            let all = deliveries.iter().map(|delivery| (delivery.committed_us, &delivery.work));
            keep(&mut inner.spool, name, all, bytes_max)
        });
        kept.await.unwrap_or_else(|error| Err(Refused::Io(error.to_string())))
    }

    async fn replace(&self, flush: Flush) -> Result<(), Refused> {
        let kept = self.with(move |inner, name| {
            let spool = &mut inner.spool;
            let before = spool.counts().pending;
            keep(spool, name, [(0, &Work::Flush(flush))], u64::MAX)?;
            skip(spool, name, before).map_err(|error| Refused::Io(error.to_string()))
        });
        kept.await.unwrap_or_else(|error| Err(Refused::Io(error.to_string())))
    }

    async fn read(&self) -> io::Result<Chunk> {
        self.with(read).await?
    }

    async fn acknowledge(&self, number: u64) {
        let done = self.with(move |inner, name| {
            let spool = &mut inner.spool;
            spool.acknowledge(name, number);
            // Writes down how far, too; what fails is repeated after a restart.
            spool.commit(Instant::now());
        });
        // A task that is aborted at the end acknowledges nothing: it is repeated.
        let _ = done.await;
    }
}

fn keep<'w>(
    spool: &mut Spool,
    name: &str,
    work: impl IntoIterator<Item = (u64, &'w Work)>,
    bytes_max: u64,
) -> Result<(), Refused> {
    let mut is_full = false;
    for (committed_us, work) in work {
        for body in bodies(work) {
            is_full |= spool.counts().bytes.saturating_add(body.len() as u64) > bytes_max;
            let staged = !is_full && spool.append(name, &body, committed_us / 1_000_000).is_ok();
            is_full |= !staged;
        }
    }
    // What was staged before it was full stays: a delete too many does no harm.
    match spool.commit(Instant::now()).pop() {
        Some(failed) => Err(Refused::Io(failed.error.to_string())),
        None if is_full => Err(Refused::Full),
        None => Ok(()),
    }
}

/// Acknowledges the oldest records, `count` of them.
fn skip(spool: &mut Spool, name: &str, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let records = spool.read(name, CHUNK_RECORDS, CHUNK_BYTES, 0)?;
        let taken = count.min(records.len() as u64);
        let last = usize::try_from(taken).ok().and_then(|taken| records.get(taken.checked_sub(1)?));
        let Some(last) = last else { break };
        spool.acknowledge(name, last.number);
        count -= taken;
    }
    // Those that cannot be read are covered as well.
    spool.take_damage();
    spool.commit(Instant::now());
    Ok(())
}

fn read(inner: &mut Inner, name: &str) -> io::Result<Chunk> {
    let spool = &mut inner.spool;
    let records = loop {
        let records = spool.read(name, CHUNK_RECORDS, CHUNK_BYTES, 0)?;
        // A torn end was never said to be kept.
        let is_loss = |damage: &Damage| !matches!(damage, Damage::Torn { .. });
        inner.owes_loss |= spool.take_damage().iter().any(is_loss);
        if !inner.owes_loss {
            break records;
        }
        let is_staged = spool.append(name, LOST, 0).is_ok();
        if let Some(failed) = spool.commit(Instant::now()).pop() {
            return Err(failed.error);
        }
        if !is_staged {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inner.owes_loss = false;
    };
    let mut chunk = Chunk::default();
    for record in records {
        let work = parse(&record.body);
        chunk.lost += u64::from(work.is_none());
        let work = work.unwrap_or_else(|| Work::Delete(Vec::new()));
        chunk.records.push((record.number, work, record.secs.saturating_mul(1_000_000)));
    }
    Ok(chunk)
}

/// Stands for records that cannot be read; no work is written like this.
const LOST: &[u8] = b"lost\n";

/// Work as records, none longer than a record may be.
fn bodies(work: &Work) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    let mut body = Vec::new();
    let mut line = |words: &[&[u8]]| {
        let len: usize = words.iter().map(|word| word.len()).sum();
        if body.len() + len > BODY_BYTES_MAX {
            bodies.push(std::mem::take(&mut body));
        }
        words.iter().for_each(|word| body.extend_from_slice(word));
    };
    match work {
        Work::Delete(keys) => {
            for key in keys {
                if is_plain(key) {
                    line(&[b"md ", key, b"\n"]);
                } else {
                    line(&[b"md ", STANDARD.encode(key).as_bytes(), b" b\n"]);
                }
            }
        }
        Work::Flush(Flush::All) => line(&[b"flush_all\n"]),
        Work::Flush(Flush::Prefixes(prefixes)) => {
            prefixes.iter().for_each(|prefix| line(&[b"flush_prefix ", prefix, b"\n"]));
        }
    }
    if !body.is_empty() {
        bodies.push(body);
    }
    bodies
}

/// The reverse of [`bodies`] for one of them; none when it is something else.
fn parse(body: &[u8]) -> Option<Work> {
    let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
    for line in body.strip_suffix(b"\n")?.split(|byte| *byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        match words[..] {
            [b"md", key] => keys.push(Bytes::copy_from_slice(key)),
            [b"md", key, b"b"] => keys.push(STANDARD.decode(key).ok()?.into()),
            [b"flush_all"] => return Some(Work::Flush(Flush::All)),
            [b"flush_prefix", prefix] => prefixes.push(Bytes::copy_from_slice(prefix)),
            _ => return None,
        }
    }
    Some(if prefixes.is_empty() {
        Work::Delete(keys)
    } else {
        Work::Flush(Flush::Prefixes(prefixes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(work: Work) -> Arc<Delivery> {
        let read_at = tokio::time::Instant::now();
        Arc::new(Delivery { seq: 1, work, committed_us: 7_000_000, read_at, is_seen: false })
    }

    fn deletes(keys: &[&[u8]]) -> Work {
        Work::Delete(keys.iter().map(|key| Bytes::copy_from_slice(key)).collect())
    }

    fn works(chunk: &Chunk) -> Vec<Work> {
        chunk.records.iter().map(|(_, work, _)| work.clone()).collect()
    }

    #[test]
    fn work_is_read_as_it_was_written() {
        let prefixes = Flush::Prefixes(vec!["user:".into(), "mail:".into()]);
        for work in [
            deletes(&[b"a", b"with space", b"\0\n\xff"]),
            Work::Flush(Flush::All),
            Work::Flush(prefixes),
        ] {
            let bodies = bodies(&work);
            assert_eq!(bodies.len(), 1);
            assert_eq!(parse(&bodies[0]), Some(work));
        }
        let key = Bytes::from(vec![b'k'; 250]);
        let many = bodies(&Work::Delete(vec![key; 10_000]));
        assert!(many.len() > 2 && many.iter().all(|body| body.len() <= BODY_BYTES_MAX));
        for other in ["", "\n", "md\n", "md a b c\n", "set a\n", "md a"] {
            assert_eq!(parse(other.as_bytes()), None, "{other:?}");
        }
    }

    #[tokio::test]
    async fn what_is_kept_is_given_in_order_until_it_is_acknowledged_and_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (shelf, damage) = Folder::open(folder.path(), "east", 1 << 20).unwrap();
        assert_eq!(damage, [""; 0]);
        let (first, second) = (deletes(&[b"a"]), deletes(&[b"b", b"c"]));
        shelf
            .append(vec![delivery(first.clone()), delivery(second.clone())])
            .await
            .expect("there is room");
        let chunk = shelf.read().await.unwrap();
        assert_eq!(works(&chunk), [first, second.clone()]);
        assert!(chunk.lost == 0 && chunk.records[0].2 == 7_000_000);
        shelf.acknowledge(chunk.records[0].0).await;
        drop(shelf);
        let (shelf, _) = Folder::open(folder.path(), "east", 1 << 20).unwrap();
        assert_eq!(works(&shelf.read().await.unwrap()), [second]);
        assert_eq!(shelf.held().records, 1);
    }

    #[tokio::test]
    async fn a_flush_takes_the_place_of_everything_when_it_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let (shelf, _) = Folder::open(folder.path(), "east", 10_000).unwrap();
        let key = [b'k'; 200];
        let mut kept = 0;
        while shelf.append(vec![delivery(deletes(&[&key]))]).await.is_ok() {
            kept += 1;
        }
        assert_eq!(kept, shelf.held().records);
        assert!((20..60).contains(&kept), "{kept}");
        shelf.replace(Flush::All).await.expect("room is left for it");
        let chunk = shelf.read().await.unwrap();
        assert_eq!(works(&chunk), [Work::Flush(Flush::All)]);
        assert_eq!(chunk.lost, 0);
        shelf.append(vec![delivery(deletes(&[b"a"]))]).await.expect("there is room again");
    }

    #[tokio::test]
    async fn damage_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (mut shelf, _) = Folder::open(folder.path(), "east", 1 << 20).unwrap();
        for key in [b"a", b"b", b"c"] {
            shelf.append(vec![delivery(deletes(&[key]))]).await.expect("there is room");
        }
        let files = std::fs::read_dir(folder.path().join("east/east")).unwrap();
        let segment = files
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|kind| kind == "seg"))
            .unwrap();
        let mut bytes = std::fs::read(&segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&segment, bytes).unwrap();
        let first = shelf.read().await.unwrap();
        assert_eq!(works(&first), [deletes(&[b"a"])]);
        shelf.acknowledge(first.records[0].0).await;
        // The loss is told, and told again after a restart, until it is acknowledged.
        for _ in 0..2 {
            let second = shelf.read().await.unwrap();
            assert_eq!((works(&second), second.lost), (vec![deletes(&[b"c"]), deletes(&[])], 1));
            drop(shelf);
            (shelf, _) = Folder::open(folder.path(), "east", 1 << 20).unwrap();
        }
        let last = shelf.read().await.unwrap().records[1].0;
        shelf.acknowledge(last).await;
        assert_eq!(shelf.held().records, 0);
    }
}

//! The deliveries of one cluster on disk while the cluster is unavailable: a folder of crate
//! `spool` whose records are text.
//!
//! ```text
//!     md user:7            a delete
//!     md dXNlciA3 b        a delete of a key that text cannot carry
//!     flush_all
//!     flush_prefix user:
//!     lost                 stands for an unreadable record, until a flush makes good for it
//! ```
//!
//! A record holds one transaction, or a part of a large one, and the commit time.
//! `holdall spool FOLDER` prints the records.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use changes::keys::is_plain;
use parking_lot::Mutex;
use spool::{BODY_BYTES_MAX, Damage, Fsync, Settings, Spool};

use crate::delivery::{Delivery, Flush, Work};

/// Deliveries that were not all stored.
#[derive(Debug)]
pub struct Refused {
    /// The number of first deliveries that were stored whole.
    pub stored: usize,
    /// The reason why the next delivery was not stored.
    pub why: Why,
}

/// The reason why a delivery was not stored.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The queue has reached its size limit.
    #[error("the spool is full")]
    Full,
    /// The disk failed.
    #[error("the spool: {0}")]
    Io(String),
}

/// A run of records from [`DiskQueue::read`].
#[derive(Debug, Default)]
pub struct Chunk {
    /// The oldest records, in order: number, work, and commit time in microseconds since 1970.
    pub records: Vec<(u64, Work, u64)>,
    /// The number of `records` that stand for stored ones that cannot be read.
    pub lost: u64,
}

/// The size of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Records that are not acknowledged.
    pub records: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// A durable queue of one cluster's deliveries: on a disk, or in a test's memory.
pub trait DiskQueue: Send + Sync + 'static {
    /// The queue's present size.
    fn held(&self) -> Held;

    /// Appends deliveries. After `Ok` they survive a crash of the machine.
    ///
    /// # Errors
    ///
    /// When the queue is full or the disk fails. The first deliveries may be stored even then.
    fn append(
        &self,
        deliveries: Vec<Arc<Delivery>>,
    ) -> impl Future<Output = Result<(), Refused>> + Send;

    /// Replaces all records with a flush that covers them, however full the queue is.
    ///
    /// # Errors
    ///
    /// When the disk fails; all records are then still there.
    fn replace(&self, flush: Flush) -> impl Future<Output = Result<(), Refused>> + Send;

    /// Reads the oldest records, which stay until they are acknowledged.
    ///
    /// # Errors
    ///
    /// Returns the disk's error.
    fn read(&self) -> impl Future<Output = io::Result<Chunk>> + Send;

    /// Removes the records of the last chunk up to this number, which are delivered except for
    /// `left`. `left` is queued last. It replaces the chunk, so it is stored however full the queue
    /// is.
    ///
    /// # Errors
    ///
    /// When the disk fails; all records are then still there.
    fn acknowledge(
        &self,
        number: u64,
        left: Vec<Arc<Delivery>>,
    ) -> impl Future<Output = Result<(), Refused>> + Send;
}

/// A [`DiskQueue`] in a spool's folder.
#[derive(Debug, Clone)]
pub struct SpoolFolder {
    spool: Arc<Mutex<Spool>>,
    name: Arc<str>,
    bytes_max: u64,
}

/// Records and bytes of one chunk.
const CHUNK_RECORDS: usize = 65_536;
const CHUNK_BYTES: usize = 1 << 22;

/// Bytes per write, so that segments stay small enough to free space soon.
const WRITE_BYTES: usize = 1 << 20;

impl SpoolFolder {
    /// Opens the cluster's own folder in `folder`. It accepts deliveries while it has less than
    /// `bytes_max` bytes. Also returns a description of each damage found there.
    ///
    /// # Errors
    ///
    /// When it cannot be created, read or written, or another program has locked it.
    pub fn open(folder: &Path, name: &str, bytes_max: u64) -> io::Result<(Self, Vec<String>)> {
        let (queue, damage) = Self::open_unprepared(folder, name, bytes_max)?;
        queue.prepare();
        Ok((queue, damage))
    }

    /// Leaves a position, without which [`Self::is_removed`] is true.
    pub(crate) fn prepare(&self) {
        // A full disk must not stop the start.
        let _ = self.spool.lock().prepare(&self.name);
    }

    /// Like [`Self::open`], but [`Self::is_removed`] is as before.
    pub(crate) fn open_unprepared(
        folder: &Path,
        name: &str,
        bytes_max: u64,
    ) -> io::Result<(Self, Vec<String>)> {
        let settings = Settings {
            // The limit is checked here, because replacement records have no limit.
            bytes_max: u64::MAX,
            age_max: Duration::MAX,
            // Space is freed by whole segments.
            segment_bytes: (bytes_max / 16).clamp(4096, 1 << 20),
            fsync: Fsync::Always,
        };
        let mut spool = Spool::open(&folder.join(name), settings)?;
        spool.leave_behind(LOST.to_vec());
        let damage = spool.take_damage().iter().map(ToString::to_string).collect();
        Ok((Self { spool: Arc::new(Mutex::new(spool)), name: name.into(), bytes_max }, damage))
    }

    /// True if another program has removed files of this cluster from `folder`, or the folder:
    /// [`Self::open`] and later writes leave a position there.
    #[must_use]
    pub fn is_removed(folder: &Path, name: &str) -> bool {
        spool::is_unprepared(&folder.join(name), name)
    }

    /// Notes that the records of an earlier run are gone with its folder.
    ///
    /// # Errors
    ///
    /// When the disk fails.
    pub fn note_loss(&self) -> io::Result<()> {
        let mut spool = self.spool.lock();
        spool
            .append(&self.name, LOST, 0)
            .map_err(|error| io::Error::other(format!("{error:?}")))?;
        spool.commit(Instant::now()).pop().map_or(Ok(()), |failed| Err(failed.error))
    }

    /// The number of records that wait in the folder `name` in `folder`; none if it is no queue, or
    /// another program's.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn waiting(folder: &Path, name: &str) -> io::Result<u64> {
        if !folder.join(name).join(name).is_dir() {
            return Ok(0);
        }
        match Self::open_unprepared(folder, name, 0) {
            Ok((queue, _)) => Ok(queue.held().records),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Runs `work` on a thread that may block on the disk.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Spool, &str) -> T + Send + 'static,
    ) -> io::Result<T> {
        let (spool, name) = (Arc::clone(&self.spool), Arc::clone(&self.name));
        let done = tokio::task::spawn_blocking(move || work(&mut spool.lock(), &name)).await;
        done.map_err(io::Error::other)
    }
}

impl DiskQueue for SpoolFolder {
    fn held(&self) -> Held {
        let counts = self.spool.lock().counts();
        Held { records: counts.pending, bytes: counts.bytes }
    }

    async fn append(&self, deliveries: Vec<Arc<Delivery>>) -> Result<(), Refused> {
        let bytes_max = self.bytes_max;
        let kept = self.with(move |spool, name| keep(spool, name, each(&deliveries), bytes_max));
        kept.await.unwrap_or_else(|error| Err(failed(&error)))
    }

    async fn replace(&self, flush: Flush) -> Result<(), Refused> {
        let kept = self.with(move |spool, name| {
            let number = spool.next_number(name);
            keep(spool, name, [(0, &Work::Flush(flush))], u64::MAX)?;
            // The flush also covers unreadable records.
            spool.drop_before(name, number);
            // This also saves the position; after a failure, a restart repeats deliveries.
            spool.commit(Instant::now());
            Ok(())
        });
        kept.await.unwrap_or_else(|error| Err(failed(&error)))
    }

    async fn read(&self) -> io::Result<Chunk> {
        self.with(read).await?
    }

    async fn acknowledge(&self, number: u64, left: Vec<Arc<Delivery>>) -> Result<(), Refused> {
        let done = self.with(move |spool, name| {
            // It is on the disk before the chunk is dropped.
            keep(spool, name, each(&left), u64::MAX)?;
            spool.acknowledge(name, number);
            // This also saves the position; after a failure, a restart repeats deliveries.
            spool.commit(Instant::now());
            Ok(())
        });
        done.await.unwrap_or_else(|error| Err(failed(&error)))
    }
}

fn each(deliveries: &[Arc<Delivery>]) -> impl Iterator<Item = (u64, &Work)> {
    deliveries.iter().map(|delivery| (delivery.committed_us, &delivery.work))
}

/// The disk failed before anything was stored.
fn failed(error: &io::Error) -> Refused {
    Refused { stored: 0, why: Why::Io(error.to_string()) }
}

/// Appends work while the queue has less than `bytes_max` bytes. The last item may pass the limit:
/// work that needs more space than can ever be free would block everything after it.
fn keep<'w>(
    spool: &mut Spool,
    name: &str,
    work: impl IntoIterator<Item = (u64, &'w Work)>,
    bytes_max: u64,
) -> Result<(), Refused> {
    let (mut stored, mut staged, mut bytes) = (0, 0, 0);
    let mut why = None;
    for (committed_us, work) in work {
        if spool.counts().bytes >= bytes_max {
            why = Some(Why::Full);
            break;
        }
        for body in bodies(work) {
            let secs = committed_us / 1_000_000;
            if spool.append(name, &body, secs).is_err() {
                why = Some(Why::Io("its folder cannot be opened".to_owned()));
                break;
            }
            bytes += body.len();
            if bytes >= WRITE_BYTES {
                bytes = 0;
                write(spool).map_err(|why| Refused { stored, why })?;
                stored = staged;
            }
        }
        if why.is_some() {
            break;
        }
        staged += 1;
    }
    write(spool).map_err(|why| Refused { stored, why })?;
    match why {
        Some(why) => Err(Refused { stored: staged, why }),
        None => Ok(()),
    }
}

/// Writes the appended records to the disk.
fn write(spool: &mut Spool) -> Result<(), Why> {
    match spool.commit(Instant::now()).pop() {
        Some(failed) => Err(Why::Io(failed.error.to_string())),
        None => Ok(()),
    }
}

fn read(spool: &mut Spool, name: &str) -> io::Result<Chunk> {
    let records = loop {
        let records = spool.read(name, CHUNK_RECORDS, CHUNK_BYTES, 0)?;
        // A torn end was never reported as stored.
        let is_loss = |damage: &Damage| !matches!(damage, Damage::Torn { .. });
        if !spool.take_damage().iter().any(is_loss) {
            break records;
        }
        // A `lost` record was staged; if it cannot be written, acknowledgements wait for it.
        if let Some(failed) = spool.commit(Instant::now()).pop() {
            return Err(failed.error);
        }
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

/// Stands for unreadable records. No work has this form.
const LOST: &[u8] = b"lost\n";

/// The bodies of the records that hold this work, each within the limit of a record.
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

/// The reverse of [`bodies`] for one body; none if it holds no work.
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
    fn work_round_trips_through_records() {
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
    async fn records_are_returned_in_order_until_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let (disk_queue, damage) = SpoolFolder::open(folder.path(), "east", 1 << 20).unwrap();
        assert_eq!(damage, [""; 0]);
        let (first, second) = (deletes(&[b"a"]), deletes(&[b"b", b"c"]));
        disk_queue
            .append(vec![delivery(first.clone()), delivery(second.clone())])
            .await
            .expect("there is room");
        let chunk = disk_queue.read().await.unwrap();
        assert_eq!(works(&chunk), [first, second.clone()]);
        assert!(chunk.lost == 0 && chunk.records[0].2 == 7_000_000);
        disk_queue.acknowledge(chunk.records[0].0, Vec::new()).await.unwrap();
        drop(disk_queue);
        let (disk_queue, _) = SpoolFolder::open(folder.path(), "east", 1 << 20).unwrap();
        assert_eq!(works(&disk_queue.read().await.unwrap()), [second]);
        assert_eq!(disk_queue.held().records, 1);
    }

    #[tokio::test]
    async fn a_flush_replaces_everything_if_the_queue_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let (disk_queue, _) = SpoolFolder::open(folder.path(), "east", 10_000).unwrap();
        let key = [b'k'; 200];
        let mut kept = 0;
        while disk_queue.append(vec![delivery(deletes(&[&key]))]).await.is_ok() {
            kept += 1;
        }
        assert_eq!(kept, disk_queue.held().records);
        assert!((20..60).contains(&kept), "{kept}");
        disk_queue.replace(Flush::All).await.expect("room is left for it");
        let chunk = disk_queue.read().await.unwrap();
        assert_eq!(works(&chunk), [Work::Flush(Flush::All)]);
        assert_eq!(chunk.lost, 0);
        disk_queue.append(vec![delivery(deletes(&[b"a"]))]).await.expect("there is room again");
    }

    fn segments(folder: &Path) -> Vec<std::path::PathBuf> {
        let files = std::fs::read_dir(folder.join("east/east")).unwrap();
        let mut paths: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|kind| kind == "seg"));
        paths.sort();
        paths
    }

    fn damage(segment: &Path) {
        let mut bytes = std::fs::read(segment).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(segment, bytes).unwrap();
    }

    #[tokio::test]
    async fn a_flush_that_replaces_damaged_records_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (disk_queue, _) = SpoolFolder::open(folder.path(), "east", 10_000).unwrap();
        let key = [b'k'; 200];
        while disk_queue.append(vec![delivery(deletes(&[&key]))]).await.is_ok() {}
        damage(&segments(folder.path())[0]);
        disk_queue.replace(Flush::All).await.expect("room is left for it");
        assert_eq!(works(&disk_queue.read().await.unwrap()), [Work::Flush(Flush::All)]);
    }

    #[tokio::test]
    async fn removed_records_are_lost_and_later_ones_are_stored() {
        let folder = tempfile::tempdir().unwrap();
        let (killed, _) = SpoolFolder::open(folder.path(), "east", 1 << 20).unwrap();
        killed.append(vec![delivery(deletes(&[b"a"]))]).await.expect("there is room");
        std::fs::remove_dir_all(folder.path().join("east")).unwrap();
        killed.append(vec![delivery(deletes(&[b"b"]))]).await.expect("there is room");
        let (disk_queue, _) = SpoolFolder::open(folder.path(), "east", 1 << 20).unwrap();
        let chunk = disk_queue.read().await.unwrap();
        assert_eq!((works(&chunk), chunk.lost), (vec![deletes(&[b"b"]), deletes(&[])], 1));
    }

    #[tokio::test]
    async fn the_rest_of_a_chunk_is_stored_even_if_the_queue_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let (disk_queue, _) = SpoolFolder::open(folder.path(), "east", 10_000).unwrap();
        let key = [b'k'; 200];
        while disk_queue.append(vec![delivery(deletes(&[&key]))]).await.is_ok() {}
        let before = disk_queue.held().records;
        let chunk = disk_queue.read().await.unwrap();
        let left = vec![delivery(chunk.records[0].1.clone())];
        disk_queue.acknowledge(chunk.records[1].0, left).await.unwrap();
        assert_eq!(disk_queue.held().records, before - 1);
        let chunk = disk_queue.read().await.unwrap();
        let last = chunk.records.last().unwrap().0;
        disk_queue.acknowledge(last, Vec::new()).await.unwrap();
        assert_eq!(disk_queue.held(), Held::default());
    }

    #[tokio::test]
    async fn a_refused_append_reports_how_many_deliveries_were_stored() {
        let folder = tempfile::tempdir().unwrap();
        let (disk_queue, _) = SpoolFolder::open(folder.path(), "east", 10_000).unwrap();
        let key: &[u8] = &[b'k'; 200];
        // The first leaves room; the second needs more than there is.
        let works = [deletes(&[key; 40]), deletes(&[key; 100]), deletes(&[b"a"])];
        let refused = disk_queue.append(works.clone().map(delivery).to_vec()).await.unwrap_err();
        assert_eq!((refused.stored, refused.why), (2, Why::Full));
        assert_eq!(self::works(&disk_queue.read().await.unwrap()), works[..2]);
    }

    #[tokio::test]
    async fn damage_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (mut disk_queue, _) = SpoolFolder::open(folder.path(), "east", 1 << 20).unwrap();
        for key in [b"a", b"b", b"c"] {
            disk_queue.append(vec![delivery(deletes(&[key]))]).await.expect("there is room");
        }
        damage(&segments(folder.path())[0]);
        let first = disk_queue.read().await.unwrap();
        assert_eq!(works(&first), [deletes(&[b"a"])]);
        disk_queue.acknowledge(first.records[0].0, Vec::new()).await.unwrap();
        // The loss is reported, and again after a restart, until it is acknowledged.
        for _ in 0..2 {
            let second = disk_queue.read().await.unwrap();
            assert_eq!((works(&second), second.lost), (vec![deletes(&[b"c"]), deletes(&[])], 1));
            drop(disk_queue);
            (disk_queue, _) = SpoolFolder::open(folder.path(), "east", 1 << 20).unwrap();
        }
        let last = disk_queue.read().await.unwrap().records[1].0;
        disk_queue.acknowledge(last, Vec::new()).await.unwrap();
        assert_eq!(disk_queue.held().records, 0);
    }
}

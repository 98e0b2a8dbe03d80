//! The promises of a spool: order, no loss of committed records, no trust in damaged ones, bounds.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::VecDeque;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use spool::{AppendError, Damage, Fsync, Settings, Spool, asynclog, cli};
use tempfile::TempDir;

/// A separate folder for this test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn open(&self, settings: Settings) -> Spool {
        // A program that another test starts holds this one's lock between its fork and its exec.
        for _ in 0..1000 {
            match Spool::open(self.0.path(), settings) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    thread::sleep(Duration::from_millis(1));
                }
                other => return other.unwrap(),
            }
        }
        panic!("the lock is never free");
    }

    /// The segments of destination `d`, oldest first.
    fn segments(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.0.path().join("d")).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.extension().is_some()).collect();
        files.sort();
        files
    }
}

fn small() -> Settings {
    Settings { segment_bytes: 300, fsync: Fsync::Never, ..Settings::default() }
}

fn fill(spool: &mut Spool, numbers: std::ops::Range<u32>) {
    for number in numbers {
        spool.append("d", format!("record {number}").as_bytes(), 1000).unwrap();
        assert!(spool.commit(Instant::now()).is_empty());
    }
}

/// All pending records of `d`, in order.
fn bodies(spool: &mut Spool) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let records = spool.read("d", 7, usize::MAX, 1000).unwrap();
        let Some(last) = records.last().map(|record| record.number) else { return found };
        found.extend(records.into_iter().map(|record| String::from_utf8(record.body).unwrap()));
        spool.acknowledge("d", last);
    }
}

fn numbered(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("record {number}")).collect()
}

#[test]
fn unacknowledged_records_are_read_in_order_after_a_restart() {
    let folder = Folder::new();
    let mut spool = folder.open(small());
    fill(&mut spool, 0..50);
    assert!(folder.segments().len() > 3);
    let first = spool.read("d", 10, usize::MAX, 1000).unwrap();
    assert_eq!(spool.read("d", 10, usize::MAX, 1000).unwrap(), first);
    spool.acknowledge("d", first[6].number);
    spool.commit(Instant::now());
    drop(spool);
    let mut spool = folder.open(small());
    assert_eq!(spool.counts().pending, 43);
    fill(&mut spool, 50..60);
    assert_eq!(bodies(&mut spool), numbered(7..60));
    assert_eq!((spool.counts().pending, spool.counts().bytes, spool.counts().lost), (0, 0, 0));
    assert!(folder.segments().is_empty());
    fill(&mut spool, 60..61);
    assert_eq!(bodies(&mut spool), numbered([60]));
}

/// Keys of deletes contain information about users.
#[test]
fn a_spool_is_private_to_its_user() {
    let folder = Folder::new();
    let own = folder.0.path().join("below/own");
    let mut spool = Spool::open(&own, small()).unwrap();
    fill(&mut spool, 0..20);
    spool.read("d", 20, 1 << 20, 0).unwrap();
    spool.acknowledge("d", 3);
    spool.commit(Instant::now());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        [mode(&folder.0.path().join("below")), mode(&own), mode(&own.join("d"))],
        [0o700; 3]
    );
    let files = fs::read_dir(own.join("d")).unwrap().map(|file| file.unwrap().path());
    let files: Vec<PathBuf> = files.chain([own.join("lock")]).collect();
    assert!(files.iter().any(|file| file.ends_with("position")), "{files:?}");
    assert!(files.iter().any(|file| file.extension().is_some_and(|end| end == "seg")), "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[test]
fn a_torn_segment_is_truncated_after_the_last_whole_record() {
    let folder = Folder::new();
    fill(&mut folder.open(Settings { segment_bytes: 1 << 20, ..small() }), 0..5);
    let segment = folder.segments().remove(0);
    let whole = fs::read(&segment).unwrap();
    let len = whole.len() / 5;
    for cut in 0..whole.len() {
        fs::write(&segment, &whole[..cut]).unwrap();
        let mut spool = folder.open(small());
        let kept = u32::try_from(cut / len).unwrap();
        let torn = spool.take_damage();
        assert_eq!(torn.is_empty(), cut % len == 0, "{cut}: {torn:?}");
        assert_eq!(spool.counts().pending, u64::from(kept));
        // New records are appended after the last whole one.
        fill(&mut spool, kept..kept + 1);
        assert_eq!(bodies(&mut spool), numbered(0..=kept), "{cut}");
        assert_eq!(spool.take_damage(), []);
        drop(spool);
        let _ = fs::remove_dir_all(folder.0.path().join("d"));
        fs::create_dir_all(folder.0.path().join("d")).unwrap();
    }
}

#[test]
fn a_damaged_end_is_not_taken_for_a_torn_one() {
    let synced = Settings { segment_bytes: 1 << 20, fsync: Fsync::Always, ..small() };
    let cuts: [fn(&Path, &[u8]); 3] = [
        |segment, whole| fs::write(segment, &whole[..whole.len() - 6]).unwrap(),
        |segment, whole| {
            let flipped = whole.len() - 6;
            let bytes = whole.iter().enumerate();
            let bytes = bytes.map(|(at, byte)| byte ^ u8::from(at == flipped));
            fs::write(segment, bytes.collect::<Vec<_>>()).unwrap();
        },
        |segment, _| fs::write(segment, []).unwrap(),
    ];
    for (cut, left) in cuts.into_iter().zip([4, 4, 0]) {
        let folder = Folder::new();
        fill(&mut folder.open(synced), 0..5);
        let segment = folder.segments().remove(0);
        // What a crash tore off was not synced.
        let whole = fs::read(&segment).unwrap();
        fs::write(&segment, [&whole[..], &whole[..9]].concat()).unwrap();
        let spool = folder.open(synced);
        assert_eq!((spool.counts().pending, spool.counts().lost), (5, 0));
        drop(spool);
        cut(&segment, &whole);
        let mut spool = folder.open(synced);
        assert_eq!(spool.counts().pending, 5);
        assert_eq!(bodies(&mut spool), numbered(0..left));
        assert_eq!(spool.counts().lost, u64::from(5 - left));
        fill(&mut spool, 5..7);
        drop(spool);
        let mut spool = folder.open(synced);
        assert_eq!((bodies(&mut spool), spool.counts().lost), (numbered(5..7), 0));
        drop(spool);
        // A segment that is gone because its records were acknowledged is not missing.
        let mut spool = folder.open(synced);
        assert_eq!((bodies(&mut spool), spool.counts().lost), (numbered([]), 0));
    }
}

#[test]
fn damage_in_the_middle_is_reported_and_skipped() {
    let folder = Folder::new();
    fill(&mut folder.open(Settings { segment_bytes: 1 << 20, ..small() }), 0..9);
    let segment = folder.segments().remove(0);
    let whole = fs::read(&segment).unwrap();
    let len = whole.len() / 9;
    for at in 0..whole.len() - len {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&segment, &damaged).unwrap();
        fs::remove_file(folder.0.path().join("d/position")).ok();
        let mut spool = folder.open(small());
        let hit = u32::try_from(at / len).unwrap();
        let records = spool.read("d", 100, usize::MAX, 1000).unwrap();
        // A gap in the middle ends a read; the records after it come next.
        assert_eq!(records.len(), if hit == 0 { 8 } else { hit as usize }, "{at}");
        assert_eq!(bodies(&mut spool), numbered((0..9).filter(|number| *number != hit)), "{at}");
        let lost = Damage::Lost { destination: "d".into(), records: 1 };
        assert_eq!(spool.take_damage(), [lost]);
    }
}

#[test]
fn a_record_inside_a_record_is_never_read_as_one() {
    let folder = Folder::new();
    let mut spool = folder.open(Settings { segment_bytes: 1 << 20, ..small() });
    fill(&mut spool, 0..1);
    let segment = folder.segments().remove(0);
    // A client that could write a whole record into its key still does not know the segment's salt.
    let inner = fs::read(&segment).unwrap();
    drop(spool);
    let other = Folder::new();
    let mut spool = other.open(Settings { segment_bytes: 1 << 20, ..small() });
    spool.append("d", &inner, 1000).unwrap();
    spool.commit(Instant::now());
    fill(&mut spool, 1..2);
    let segment = other.segments().remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    bytes[0] ^= 1;
    fs::write(&segment, bytes).unwrap();
    assert_eq!(bodies(&mut spool), numbered([1]));
    assert_eq!(spool.counts().lost, 1);
}

/// A record with another number and a correct checksum.
fn renumbered(record: &[u8], salt: u32, number: u64) -> Vec<u8> {
    let mut record = record.to_vec();
    record[12..20].copy_from_slice(&number.to_le_bytes());
    let sum = crc32fast::hash(&[&salt.to_le_bytes(), &record[8..]].concat());
    record[4..8].copy_from_slice(&sum.to_le_bytes());
    record
}

#[test]
fn an_impossible_record_number_affects_no_later_record() {
    let folder = Folder::new();
    fill(&mut folder.open(Settings { segment_bytes: 1 << 20, ..small() }), 0..9);
    let segment = folder.segments().remove(0);
    let name = segment.file_stem().unwrap().to_str().unwrap();
    let salt = u32::from_str_radix(name.split_once('-').unwrap().1, 16).unwrap();
    let whole = fs::read(&segment).unwrap();
    let len = whole.len() / 9;
    let far = [100, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for (hit, number) in (0..9).flat_map(|hit| (0..13).chain(far).map(move |far| (hit, far))) {
        let place = hit * len..(hit + 1) * len;
        let mut bytes = whole.clone();
        bytes[place.clone()].copy_from_slice(&renumbered(&whole[place], salt, number));
        let _ = fs::remove_dir_all(folder.0.path().join("d"));
        fs::create_dir_all(folder.0.path().join("d")).unwrap();
        fs::write(&segment, bytes).unwrap();
        let mut spool = folder.open(small());
        let found = bodies(&mut spool);
        if number > 12 && hit < 8 {
            let lost = [Damage::Lost { destination: "d".into(), records: 1 }];
            assert_eq!(found, numbered((0..9).filter(|one| *one as usize != hit)), "{number}");
            assert_eq!(spool.take_damage(), lost, "{hit} {number}");
        }
        fill(&mut spool, 20..23);
        drop(spool);
        assert_eq!(bodies(&mut folder.open(small())), numbered(20..23), "{hit} {number}");
    }
}

#[test]
fn an_impossible_position_is_damage() {
    let folder = Folder::new();
    fill(&mut folder.open(small()), 0..9);
    let number = u64::MAX.to_le_bytes();
    let sum = crc32fast::hash(&number).to_le_bytes();
    fs::write(folder.0.path().join("d/position"), [&number[..], &sum].concat()).unwrap();
    let mut spool = folder.open(small());
    fill(&mut spool, 9..12);
    assert_eq!(bodies(&mut spool), numbered(0..12));
}

#[test]
fn a_spool_is_bounded_in_bytes_and_age() {
    let folder = Folder::new();
    let settings = Settings { bytes_max: 1000, age_max: Duration::from_secs(100), ..small() };
    let mut spool = folder.open(settings);
    let mut count = 0;
    while spool.append("d", &[b'x'; 72], 1000).is_ok() {
        spool.commit(Instant::now());
        count += 1;
    }
    assert_eq!((count, spool.append("e", &[b'x'; 72], 1000)), (10, Err(AppendError::Full)));
    assert_eq!(spool.append("", b"x", 1000), Err(AppendError::Unnamable));
    assert_eq!(spool.append("d", &vec![0; (1 << 20) + 1], 1000), Err(AppendError::TooLong));
    let records = spool.read("d", 4, usize::MAX, 1000).unwrap();
    spool.acknowledge("d", records[3].number);
    spool.append("d", &[b'y'; 72], 1050).unwrap();
    spool.commit(Instant::now());
    // Records that are too old are dropped when they are read, and before that to make room.
    let fresh = spool.read("d", 9, usize::MAX, 1101).unwrap();
    assert_eq!((fresh.len(), fresh[0].body[0]), (1, b'y'));
    assert_eq!(spool.take_damage(), [Damage::Expired { destination: "d".into(), records: 6 }]);
    spool.expire(1151);
    assert_eq!((spool.counts().pending, spool.counts().bytes, spool.counts().expired), (0, 0, 7));
}

#[test]
fn dropped_records_leave_a_substitute() {
    let folder = Folder::new();
    let settings = Settings { age_max: Duration::from_secs(100), ..small() };
    let start = || {
        let mut spool = folder.open(settings);
        spool.leave_behind(b"flush".to_vec());
        spool
    };
    let left = |spool: &mut Spool, secs| -> Vec<Vec<u8>> {
        let records = spool.read("d", 9, usize::MAX, secs).unwrap();
        records.into_iter().map(|record| record.body).collect()
    };
    // Too old in a segment that is dropped as a whole: the substitute is there after a kill.
    let mut spool = start();
    spool.append("d", b"a", 1000).unwrap();
    spool.commit(Instant::now());
    spool.expire(1100);
    assert_eq!(left(&mut spool, 1100), [b"a"], "not yet");
    spool.expire(1101);
    std::mem::forget(spool);
    fs::remove_file(folder.0.path().join("lock")).unwrap();
    let mut spool = start();
    assert_eq!(left(&mut spool, 1101), [b"flush"]);
    // Too old among others, and lost: after those that are still there.
    spool.append("d", b"b", 1150).unwrap();
    spool.commit(Instant::now());
    assert_eq!(left(&mut spool, 1202), [b"b"]);
    spool.commit(Instant::now());
    assert_eq!(left(&mut spool, 1202), [&b"b"[..], b"flush"]);
    assert_eq!(spool.counts().pending, 2);
}

/// Whoever removes files removes old ones first, or the folder.
#[test]
fn removed_records_are_lost_and_later_ones_are_kept() {
    for is_whole in [false, true] {
        let folder = Folder::new();
        let mut spool = folder.open(small());
        spool.leave_behind(b"flush".to_vec());
        fill(&mut spool, 0..20);
        if is_whole {
            fs::remove_dir_all(folder.0.path().join("d")).unwrap();
        } else {
            fs::remove_file(&folder.segments()[0]).unwrap();
        }
        fill(&mut spool, 20..21);
        let damage = spool.take_damage();
        assert!(matches!(damage[..], [Damage::Lost { .. }]), "{damage:?}");
        let Damage::Lost { records, .. } = damage[0] else { unreachable!() };
        assert_eq!(records == 20, is_whole, "{records}");
        let kept: Vec<String> = numbered(u32::try_from(records).unwrap()..21);
        let kept: Vec<String> = kept.into_iter().chain(["flush".to_owned()]).collect();
        // A kill.
        std::mem::forget(spool);
        fs::remove_file(folder.0.path().join("lock")).unwrap();
        let mut spool = folder.open(small());
        assert_eq!(bodies(&mut spool), kept);
        assert_eq!(spool.take_damage(), []);
    }
}

/// Position and synced end were open in the removed folder.
#[test]
fn a_folder_removed_without_records_is_made_again_with_all_files() {
    let folder = Folder::new();
    let mut spool = folder.open(Settings { fsync: Fsync::Always, ..small() });
    fill(&mut spool, 0..2);
    assert_eq!(bodies(&mut spool), numbered(0..2));
    spool.commit(Instant::now());
    fs::remove_dir_all(folder.0.path().join("d")).unwrap();
    fill(&mut spool, 2..5);
    let first = spool.read("d", 1, usize::MAX, 1000).unwrap();
    spool.acknowledge("d", first[0].number);
    spool.commit(Instant::now());
    // A kill.
    std::mem::forget(spool);
    fs::remove_file(folder.0.path().join("lock")).unwrap();
    let last = folder.segments().pop().unwrap();
    let bytes = fs::read(&last).unwrap();
    fs::write(&last, &bytes[..bytes.len() - 1]).unwrap();
    let mut spool = folder.open(small());
    assert_eq!(bodies(&mut spool), numbered(3..4), "one is delivered, and one is damaged");
    let damage = spool.take_damage();
    assert!(matches!(damage[..], [Damage::Torn { .. }, Damage::Lost { records: 1, .. }]));
}

#[test]
fn a_prepared_folder_without_its_files_was_removed() {
    let folder = Folder::new();
    let is_removed = || spool::is_unprepared(folder.0.path(), "d");
    let mut spool = folder.open(small());
    assert!(is_removed(), "it was never there");
    spool.prepare("d").unwrap();
    assert!(!is_removed());
    drop(spool);
    // Delivered records leave a position, too.
    let mut spool = folder.open(small());
    spool.prepare("d").unwrap();
    fill(&mut spool, 0..20);
    assert!(!is_removed());
    assert_eq!(bodies(&mut spool), numbered(0..20));
    spool.commit(Instant::now());
    assert!(!is_removed());
    fs::remove_dir_all(folder.0.path().join("d")).unwrap();
    assert!(is_removed());
    fill(&mut spool, 20..21);
    assert!(!is_removed(), "it has records");
}

#[test]
fn records_before_a_number_are_dropped_unread() {
    let folder = Folder::new();
    let mut spool = folder.open(small());
    fill(&mut spool, 0..20);
    let segment = &folder.segments()[0];
    let mut bytes = fs::read(segment).unwrap();
    bytes[20] ^= 1;
    fs::write(segment, bytes).unwrap();
    let number = spool.next_number("d");
    fill(&mut spool, 20..21);
    spool.drop_before("d", number);
    assert_eq!(spool.counts().pending, 1);
    assert_eq!((bodies(&mut spool), spool.take_damage()), (numbered(20..21), vec![]));
}

#[test]
fn a_spool_is_locked_to_one_program() {
    let folder = Folder::new();
    let spool = folder.open(small());
    assert!(
        Spool::open(folder.0.path(), small()).unwrap_err().to_string().contains("another program")
    );
    drop(spool);
    folder.open(small());
}

#[test]
fn periodic_fsync_reports_when_it_is_due() {
    let folder = Folder::new();
    let second = Duration::from_secs(1);
    let mut spool = folder.open(Settings { fsync: Fsync::Every(second), ..small() });
    let start = Instant::now();
    assert_eq!(spool.sync_due(), None);
    fill(&mut spool, 0..1);
    let due = spool.sync_due().unwrap();
    assert!(due >= start + second);
    spool.commit(due);
    assert_eq!(spool.sync_due(), None);
    drop(spool);
    let mut spool = folder.open(Settings { fsync: Fsync::Always, ..small() });
    fill(&mut spool, 1..2);
    assert_eq!((spool.sync_due(), bodies(&mut spool)), (None, numbered([0, 1])));
}

/// A file system of half a MiB, which this test mounts as root.
#[test]
fn a_full_disk_refuses_records_and_loses_no_kept_one() {
    let folder = Folder::new();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=512k", "spool-test"])
        .arg(folder.0.path())
        .status()
        .unwrap();
    assert!(mounted.success(), "mounting takes root");
    let end = scopeguard(folder.0.path());
    let mut spool = folder.open(Settings { segment_bytes: 64 << 10, ..small() });
    let (mut kept, mut refused) = (Vec::new(), 0);
    for number in 0..2000_u32 {
        spool.append("d", format!("{number} {}", "x".repeat(400)).as_bytes(), 1000).unwrap();
        match &spool.commit(Instant::now())[..] {
            [] => kept.push(number),
            [failed] => {
                assert_eq!(failed.error.kind(), ErrorKind::StorageFull);
                refused += 1;
            }
            more => panic!("{more:?}"),
        }
    }
    assert!(kept.len() > 900 && refused > 500, "{} kept, {refused} refused", kept.len());
    let number = |body: &String| body.split(' ').next().unwrap().parse::<u32>().unwrap();
    let first = spool.read("d", 500, usize::MAX, 1000).unwrap();
    spool.acknowledge("d", first[499].number);
    // There is room again.
    fill(&mut spool, 0..1);
    drop(spool);
    let mut spool = folder.open(small());
    let found = bodies(&mut spool);
    assert_eq!(found.last().unwrap(), "record 0");
    let found: Vec<u32> = found[..found.len() - 1].iter().map(number).collect();
    assert_eq!(found, kept[500..]);
    assert_eq!(spool.take_damage(), []);
    drop(spool);
    drop(end);
}

/// The loss must not be forgotten while its substitute has no room.
#[test]
fn a_substitute_is_written_when_the_disk_has_room_again() {
    let folder = Folder::new();
    let mut spool = folder.open(small());
    spool.leave_behind(b"flush".to_vec());
    fill(&mut spool, 0..1);
    // No segment can be created.
    let d = folder.0.path().join("d");
    fs::remove_dir_all(&d).unwrap();
    fs::write(&d, "").unwrap();
    spool.append("d", b"record 1", 1000).unwrap();
    assert_eq!(spool.commit(Instant::now()).len(), 1);
    assert_eq!(spool.commit(Instant::now()).len(), 1, "the substitute");
    fs::remove_file(&d).unwrap();
    assert!(spool.commit(Instant::now()).is_empty());
    assert_eq!(bodies(&mut spool), ["flush"]);
}

fn scopeguard(path: &Path) -> impl Drop {
    struct Unmount(PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    Unmount(path.to_owned())
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// The result of `act`, which must not block.
#[track_caller]
fn at_once<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || tell.send(act()));
    // After that, it waits for the other end of a FIFO.
    hear.recv_timeout(Duration::from_secs(60)).unwrap()
}

#[test]
fn files_that_are_not_regular_are_refused_by_name() {
    type Make = fn(&Path);
    let kinds: [Make; 3] = [
        make_fifo,
        |path| fs::create_dir(path).unwrap(),
        |path| std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
    ];
    for name in ["lock", "d/position"] {
        for make in kinds {
            let folder = Folder::new();
            fill(&mut folder.open(small()), 0..3);
            let path = folder.0.path().join(name);
            let _ = fs::remove_file(&path);
            make(&path);
            let root = folder.0.path().to_owned();
            let error = at_once(move || Spool::open(&root, small()).unwrap_err().to_string());
            assert_eq!(error, format!("{}: it is not a regular file", path.display()));
        }
    }
}

#[test]
fn the_tool_does_not_read_fifos() {
    let folder = Folder::new();
    fill(&mut folder.open(small()), 0..1);
    make_fifo(&folder.0.path().join("d/pipe"));
    let root = folder.0.path().display().to_string();
    let (status, out, err) = at_once(move || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = cli::main([root].into_iter(), &mut out, &mut err);
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    });
    assert_eq!((status, out.lines().count()), (1, 1), "{out}");
    assert!(err.ends_with("pipe: it is not a regular file\n"), "{err}");
}

#[test]
fn the_tool_shows_both_kinds_of_spool() {
    let folder = Folder::new();
    let mut spool = folder.open(small());
    spool.append("10.0.0.1:11211", b"A\ndelete k1\r\n", 1000).unwrap();
    spool.append("10.0.0.1:11211", b"A\nmd k2 I T30\r\n", 1001).unwrap();
    spool.commit(Instant::now());
    let show = |arguments: &[&str], path: &Path| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let arguments = arguments.iter().copied().chain([path.to_str().unwrap()]);
        let status = cli::main(arguments.map(str::to_owned), &mut out, &mut err);
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    };
    let text =
        "10.0.0.1:11211 0 1000 A\\ndelete k1\\r\\n\n10.0.0.1:11211 1 1001 A\\nmd k2 I T30\\r\\n\n";
    assert_eq!(show(&[], folder.0.path()), (0, text.to_owned(), String::new()));
    let (status, lines, _) = show(&["--json"], folder.0.path());
    assert_eq!(status, 0);
    let want =
        r#"{"destination":"10.0.0.1:11211","number":0,"record":"A\\ndelete k1\\r\\n","time":1000}"#;
    assert_eq!(lines.lines().next(), Some(want));
    let (status, lines, _) = show(&["--format", "as2"], folder.0.path());
    assert_eq!((status, lines.lines().count()), (0, 2));
    assert_eq!(asynclog::parse(lines.lines().next().unwrap()).unwrap().pool, "A");
    // mcrouter's folder.
    let hour = folder.0.path().join("20261121T13-1795266000");
    fs::create_dir_all(&hour).unwrap();
    let file = hour.join("20261121T134500-1795268700-libmcrouter-5000-t1-0x7f");
    let (_, lines, _) = show(&["--format=as1"], &folder.0.path().join("10.0.0.1:11211"));
    fs::write(&file, format!("{lines}broken\n")).unwrap();
    assert_eq!(asynclog::files(folder.0.path(), 1_795_268_700).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(asynclog::files(folder.0.path(), 1_795_268_701).unwrap(), [file.as_path()]);
    let (status, shown, complaints) = show(&["--format", "as1"], &file);
    assert_eq!((status, shown), (1, lines));
    let (_, shown, _) = show(&["--json"], &file);
    // mcrouter's older format does not name the pool.
    assert_eq!(shown.lines().next(), Some(&*want.replace("\"A", "\"")));
    assert!(complaints.contains("t1-0x7f:3: "), "{complaints}");
    assert_eq!(show(&["--format", "xml"], &file).0, 64);
    assert_eq!(show(&["--help"], &file).0, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Append(u8, usize),
    Commit,
    Read(u8, usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..3_u8, 0..200_usize).prop_map(|(name, len)| Step::Append(name, len)),
        3 => Just(Step::Commit),
        3 => (0..3_u8, 1..9_usize).prop_map(|(name, max)| Step::Read(name, max)),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any operations in any order, each destination is a queue.
    #[test]
    fn each_destination_has_its_own_queue(steps in proptest::collection::vec(step(), 1..200)) {
        let folder = Folder::new();
        let mut spool = folder.open(small());
        let mut model: [VecDeque<Vec<u8>>; 3] = Default::default();
        let mut staged: Vec<(u8, Vec<u8>)> = Vec::new();
        let mut count = 0_u32;
        let name = |number: u8| format!("server:{number}");
        for step in steps {
            match step {
                Step::Append(to, len) => {
                    let body = format!("{count} {}", "x".repeat(len)).into_bytes();
                    count += 1;
                    spool.append(&name(to), &body, 1000).unwrap();
                    staged.push((to, body));
                }
                Step::Commit => {
                    assert!(spool.commit(Instant::now()).is_empty());
                    for (to, body) in staged.drain(..) {
                        model[usize::from(to)].push_back(body);
                    }
                }
                Step::Read(from, max) => {
                    let queue = &mut model[usize::from(from)];
                    let records = spool.read(&name(from), max, usize::MAX, 1000).unwrap();
                    prop_assert_eq!(records.len(), queue.len().min(max));
                    for record in &records {
                        prop_assert_eq!(Some(record.body.clone()), queue.pop_front());
                    }
                    if let Some(last) = records.last() {
                        spool.acknowledge(&name(from), last.number);
                    }
                }
                Step::Reopen => {
                    assert!(spool.commit(Instant::now()).is_empty());
                    for (to, body) in staged.drain(..) {
                        model[usize::from(to)].push_back(body);
                    }
                    drop(spool);
                    spool = folder.open(small());
                }
            }
            let pending = model.iter().map(VecDeque::len).sum::<usize>() + staged.len();
            prop_assert_eq!(spool.counts().pending, pending as u64);
        }
        prop_assert_eq!(spool.take_damage(), vec![]);
    }

    /// For any damage to a segment, returned records were appended, in order, once.
    #[test]
    fn damaged_records_are_never_returned(
        spots in proptest::collection::vec((0..3000_usize, 0..40_usize, any::<u8>()), 1..6),
        cut in 0..36_usize,
    ) {
        let folder = Folder::new();
        fill(&mut folder.open(Settings { segment_bytes: 1 << 20, ..small() }), 0..60);
        let segment = folder.segments().remove(0);
        let mut bytes = fs::read(&segment).unwrap();
        bytes.truncate(bytes.len() - cut);
        for (at, len, value) in spots {
            let end = (at + len).min(bytes.len());
            bytes[at.min(end)..end].fill(value);
        }
        fs::write(&segment, bytes).unwrap();
        let mut spool = folder.open(small());
        let found = bodies(&mut spool);
        let mut all = numbered(0..60).into_iter();
        prop_assert!(found.iter().all(|body| all.any(|one| one == *body)), "{:?}", found);
        let missing = 60 - found.len() as u64;
        let torn = spool.take_damage().iter().any(|damage| matches!(damage, Damage::Torn { .. }));
        prop_assert!(torn || spool.counts().lost == missing, "{} lost of {}", spool.counts().lost, missing);
    }
}

//! Segments of a spool with changed bytes: the spool opens, returns records in order, and works
//! afterwards, whatever they contain.
//!
//! An input is a byte that chooses a change to the files of a spool, then its data: their whole
//! content, bytes to flip (file, place in two bytes, mask), or bytes to insert. With the highest
//! bit of that byte all checksums are corrected afterwards: each run has its own salts, so a stored
//! input with correct checksums would have wrong ones in the next run.
#![no_main]
#![allow(clippy::unwrap_used, reason = "a target stops where it fails")]

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Instant;

use spool::{Fsync, Settings, Spool};

const RECORDS: usize = 40;
/// The number of records that were read, so that there is a position.
const READ: usize = 3;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let mut files = files().to_vec();
    let is_changed = change(&mut files, choice, rest);
    let folder = folder("work");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("d")).unwrap();
    for (name, content) in files {
        fs::write(folder.join("d").join(name), content).unwrap();
    }
    let mut spool = open(&folder);
    let kept = records(&mut spool);
    assert!(kept.is_sorted_by(|one, other| one.0 < other.0), "out of order");
    assert!(
        is_changed || kept.len() == RECORDS - READ,
        "{} records of what nobody changed",
        kept.len()
    );
    spool.take_damage();
    let fresh: Vec<String> = (0..20).map(|number| format!("fresh {number}")).collect();
    for body in &fresh {
        spool.append("d", body.as_bytes(), 1000).unwrap();
    }
    assert!(spool.commit(Instant::now()).is_empty());
    drop(spool);
    let mut spool = open(&folder);
    let last = records(&mut spool);
    let bodies: Vec<&[u8]> = last.iter().map(|(_, body)| &body[..]).collect();
    let wanted: Vec<&[u8]> = fresh.iter().map(String::as_bytes).collect();
    assert!(bodies.ends_with(&wanted), "what was kept afterwards is lost");
});

/// Changes the files. Returns whether any byte differs.
fn change(files: &mut [(String, Vec<u8>)], choice: u8, rest: &[u8]) -> bool {
    let count = files.len();
    let (name, file) = &mut files[usize::from(choice / 4 % 32) % count];
    let was = file.clone();
    match choice % 4 {
        0 => *file = rest.to_vec(),
        1 => {
            let at = rest.first().map_or(0, |at| usize::from(*at) * file.len() / 256);
            file.splice(at..at, rest.iter().skip(1).copied());
        }
        2 => file.truncate(rest.first().map_or(0, |at| usize::from(*at) * file.len() / 256)),
        _ => {
            for flip in rest.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([flip[0], flip[1]])) % file.len().max(1);
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= flip[2];
                }
            }
        }
    }
    if choice >= 128 {
        repair(name, file);
    }
    *file != was
}

/// Corrects the checksums of everything that looks like a record, or of the position.
fn repair(name: &str, file: &mut [u8]) {
    let Some((_, rest)) = name.split_once('-') else {
        if let Some((number, sum)) = file.split_first_chunk_mut::<8>()
            && sum.len() == 4
        {
            sum.copy_from_slice(&crc32fast::hash(number).to_le_bytes());
        }
        return;
    };
    let salt = u32::from_str_radix(rest.strip_suffix(".seg").unwrap(), 16).unwrap().to_le_bytes();
    for at in 0..file.len() {
        let Some(record) = file.get_mut(at..).filter(|rest| rest.starts_with(b"\xf5hs1")) else {
            continue;
        };
        let Some(len) = record.get(8..12) else { return };
        let len = u32::from_le_bytes(len.try_into().unwrap()) as usize;
        let Some(covered) = record.get(8..28_usize.saturating_add(len)) else { continue };
        let sum = crc32fast::hash(&[&salt, covered].concat());
        record[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Another program that inspects this one's open files may hold the lock a moment longer.
fn open(folder: &Path) -> Spool {
    loop {
        match Spool::open(folder, settings()) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

fn settings() -> Settings {
    Settings { segment_bytes: 400, fsync: Fsync::Never, ..Settings::default() }
}

/// All pending records of `d`, in order: numbers and bodies.
fn records(spool: &mut Spool) -> Vec<(u64, Vec<u8>)> {
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    loop {
        let records = spool.read("d", 7, usize::MAX, 1000).unwrap();
        let Some(last) = records.last().map(|record| record.number) else { return found };
        found.extend(records.into_iter().map(|record| (record.number, record.body)));
        spool.acknowledge("d", last);
    }
}

/// The files of a spool after some records were read.
fn files() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let folder = folder("template");
        let _ = fs::remove_dir_all(&folder);
        let mut spool = open(&folder);
        for number in 0..RECORDS {
            spool.append("d", format!("record {number}").as_bytes(), 1000).unwrap();
            assert!(spool.commit(Instant::now()).is_empty());
        }
        let read = spool.read("d", READ, usize::MAX, 1000).unwrap();
        spool.acknowledge("d", read.last().unwrap().number);
        assert!(spool.commit(Instant::now()).is_empty());
        drop(spool);
        let mut files: Vec<_> = fs::read_dir(folder.join("d"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        let _ = fs::remove_dir_all(&folder);
        files
    })
}

/// A folder in memory, if available.
fn folder(name: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    root.join(format!("fuzz-spool-{}-{name}", std::process::id()))
}

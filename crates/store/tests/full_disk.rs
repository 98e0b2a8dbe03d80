//! A memory file whose file system is full: stores continue by eviction, as at the limit.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, dead_code, reason = "a test stops where it fails")]

mod common;

use common::{at, config, get, set};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use store::{Cleaner, Handle, MemoryFile, Store};

/// A file system in memory, which only root can mount.
struct Disk(PathBuf);

impl Disk {
    fn new(name: &str, bytes: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let size = format!("size={bytes}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, name]).arg(&path).status();
        assert!(mounted.unwrap().success(), "mounting takes root");
        Self(path)
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Writes until there is no room.
    fn fill(&self) {
        let mut filler = File::options().create(true).append(true).open(self.filler()).unwrap();
        for piece in [1 << 16, 1 << 12, 1] {
            while filler.write_all(&vec![0; piece]).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A store over a file, and its threads.
struct World {
    store: Arc<Store>,
    me: Handle,
    cleaner: Cleaner,
    secs: u32,
    stored: u64,
}

impl World {
    fn open(path: &Path) -> Self {
        let file = MemoryFile::open(path, &config()).unwrap();
        let (store, _) = Store::open(&config(), file, at(1)).unwrap();
        let (me, cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
        me.begin_turn(1);
        Self { store, me, cleaner, secs: 1, stored: 0 }
    }

    /// Stores new items of these sizes, none of which may be refused. The cleaner has a step for
    /// 200 of them, and a second has 50 steps.
    fn set(&mut self, count: u64, len: impl Fn(u64) -> usize) {
        for _ in 0..count {
            self.stored += 1;
            let key = self.stored.to_string().into_bytes();
            let value = vec![b'v'; len(self.stored)];
            let result = set(&self.me, &key, &value, 0, 0);
            assert!(result.is_ok(), "store {}: {result:?}", self.stored);
            if self.stored.is_multiple_of(200) {
                assert!(get(&self.me, &key).is_some());
                self.secs += u32::from(self.stored.is_multiple_of(10_000));
                self.me.rest();
                self.cleaner.step(self.secs, 2000);
                self.me.begin_turn(self.secs);
            }
        }
    }

    fn pages(&self) -> u64 {
        self.store.memory().arena
    }
}

#[test]
fn stores_continue_by_eviction_on_a_full_disk() {
    let disk = Disk::new("store-full", "40m");
    let mut world = World::open(&disk.0.join("memory"));
    // Few items in much memory, so that index and bags are small.
    world.set(3000, |_| 1000);
    let before = world.pages();
    assert!(before < 6 << 20, "{before}");
    disk.fill();
    // Many small items need more index and bags, and other classes.
    world.set(150_000, |_| 4);
    world.set(50_000, |n| (n % 400) as usize);
    world.set(300, |_| 50_000);
    disk.fill();
    world.set(150_000, |_| 4);
    assert!(world.pages() <= before, "{} of {before}", world.pages());
    // There is room again.
    disk.empty();
    world.set(300_000, |n| (n % 400) as usize);
    assert!(world.pages() > 12 << 20, "{}", world.pages());
}

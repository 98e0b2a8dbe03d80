//! The table in the record of a clean end. Buckets and directory are already in the file.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded.

use super::Table;
use super::bucket::BUCKET_BYTES;
use super::directory::Directory;
use super::pool::Pool;
use arena::codec::{Reader, Writer};
use arena::sync::Ordering;

impl Table {
    pub(crate) fn save(&self, out: &mut Writer) {
        out.number(self.directory(Ordering::Relaxed).to_bits());
        out.count(self.granted.load(Ordering::Relaxed));
        out.count(self.items());
        self.overflow.save(out);
    }

    /// Charges nothing: `bytes` returns the amount in use.
    pub(crate) fn load(&self, input: &mut Reader<'_>) -> Option<()> {
        self.set_directory(input.number()?)?;
        let granted = input.index(self.buckets.len() + 1)?;
        self.granted.store(granted, Ordering::Relaxed);
        self.items.store(input.small()?, Ordering::Relaxed);
        self.overflow.load(input)?;
        (granted >= self.buckets()).then_some(())
    }

    /// Uses this as the directory if it is one of this table's.
    pub(super) fn set_directory(&self, bits: u64) -> Option<()> {
        let directory = Directory::checked(bits)?;
        let buckets = directory.buckets();
        // No table has fewer buckets, for any number of stripes.
        if buckets < self.buckets_min || buckets > self.buckets.len() {
            return None;
        }
        self.directory.store(bits, Ordering::Relaxed);
        self.recorded[0].store(bits, Ordering::Relaxed);
        Some(())
    }

    /// Bytes of buckets, and of overflow buckets, that have been in use.
    pub(crate) fn touched_bytes(&self) -> (u64, u64) {
        let bytes = |buckets: usize| (buckets * BUCKET_BYTES) as u64;
        (bytes(self.granted.load(Ordering::Relaxed)), bytes(self.overflow.granted()))
    }
}

impl Pool {
    fn save(&self, out: &mut Writer) {
        self.keep_all();
        let list = self.list.lock();
        out.number(u64::from(list.first));
        out.count(list.used);
        out.count(list.granted);
    }

    fn load(&self, input: &mut Reader<'_>) -> Option<()> {
        let mut list = self.list.lock();
        list.first = input.small()?;
        list.used = input.index(self.buckets.len() + 1)?;
        list.granted = input.index(self.buckets.len() + 1)?;
        list.free = self.free_after(list.first).take(list.used).count();
        self.granted.store(list.granted, Ordering::Relaxed);
        (list.first as usize <= list.used && list.used <= list.granted).then_some(())
    }
}

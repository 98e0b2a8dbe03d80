//! The pages of numbers that connections hold until they are read.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The maximum number of pages of one format that connections hold at a time.
const PAGES_MAX: usize = 2;

/// The answers to `/metrics` that connections hold, in each format.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Prometheus's text.
    pub(crate) text: HeldPages,
    /// Prometheus's messages.
    pub(crate) messages: HeldPages,
}

/// The answers in one format, oldest first. Connections that do not read share them, so that their
/// number does not multiply the memory.
#[derive(Debug, Default)]
pub(crate) struct HeldPages(Mutex<Vec<Weak<Vec<u8>>>>);

impl HeldPages {
    /// A current answer, or the younger one if [`PAGES_MAX`] are held.
    ///
    /// No connection joins the older one any more, so it is freed when the time of its connections
    /// is over. Therefore the younger one that is shared is never older than a connection may be.
    pub(crate) fn get(&self, make: impl FnOnce() -> Vec<u8>) -> Arc<Vec<u8>> {
        // Locked while the answer is made, so that one is made at a time.
        let mut held = self.0.lock();
        held.retain(|page| page.strong_count() > 0);
        if held.len() >= PAGES_MAX
            && let Some(youngest) = held.last().and_then(Weak::upgrade)
        {
            return youngest;
        }
        let page = Arc::new(make());
        held.push(Arc::downgrade(&page));
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_shared_only_while_an_older_one_is_held() {
        let held = HeldPages::default();
        let get = |number: u8| held.get(|| vec![number]);
        for number in 1..4 {
            assert_eq!(get(number)[0], number);
        }
        let (oldest, younger) = (get(4), get(5));
        let joined = get(6);
        assert!(Arc::ptr_eq(&younger, &joined));
        drop((oldest, younger));
        // A connection that joined still holds it; it is the older one now.
        let next = get(7);
        assert_eq!((joined[0], next[0], get(8)[0]), (5, 7, 7));
    }
}

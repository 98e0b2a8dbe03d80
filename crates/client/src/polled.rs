//! The future that a thread waits for, while it is polled: the caller, and the inbox that the
//! thread will drive afterwards.

use std::cell::RefCell;
use std::sync::Arc;

use crate::inbox::Inbox;

/// The requests of a waited-for future during its poll.
#[derive(Default)]
struct Polled {
    /// The number of the thread's signal; 0 if no future is waited for.
    number: u64,
    /// The inbox whose driver this thread has had for that.
    inbox: Option<Arc<Inbox>>,
}

thread_local! {
    static POLLED: RefCell<Polled> = const { RefCell::new(Polled { number: 0, inbox: None }) };
}

/// The caller: the number of the thread's signal, or 0 if it waits for no future.
pub(crate) fn caller() -> u64 {
    POLLED.with_borrow(|polled| polled.number)
}

/// Records that the polled future has used `inbox`, whose driver this thread has had.
pub(crate) fn has_asked(inbox: &Arc<Inbox>) {
    let before = POLLED.with_borrow_mut(|polled| polled.inbox.replace(Arc::clone(inbox)));
    // This thread drives one inbox; the background driver gets replies and timers of the previous
    // one.
    if let Some(before) = before
        && !Arc::ptr_eq(&before, inbox)
    {
        before.call_background();
    }
}

/// Marks that this thread's future is polled. If that ends without a wait, the background driver
/// gets its requests.
pub(crate) struct Polling(Polled);

impl Polling {
    pub(crate) fn begin(number: u64) -> Self {
        Self(POLLED.replace(Polled { number, inbox: None }))
    }

    /// The inbox that was used.
    pub(crate) fn end(self) -> Option<Arc<Inbox>> {
        POLLED.with_borrow_mut(|polled| polled.inbox.take())
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let polled = POLLED.replace(std::mem::take(&mut self.0));
        polled.inbox.iter().for_each(|inbox| inbox.call_background());
    }
}

//! The future that a thread waits for, while it is polled: the caller, and the inbox that the
//! thread is to drive afterwards.

use std::cell::RefCell;
use std::sync::Arc;

use crate::inbox::Inbox;

/// What the future that a thread waits for has asked while it was polled.
#[derive(Default)]
struct Polled {
    /// Of the thread's signal; 0 where no future is waited for.
    number: u64,
    /// Whose driver this thread has had for that.
    inbox: Option<Arc<Inbox>>,
}

thread_local! {
    static POLLED: RefCell<Polled> = const { RefCell::new(Polled { number: 0, inbox: None }) };
}

/// The caller: the number of the thread's signal, and 0 if it waits for no future.
pub(crate) fn caller() -> u64 {
    POLLED.with_borrow(|polled| polled.number)
}

/// The future that is being polled has asked `inbox`, whose driver this thread has had.
pub(crate) fn has_asked(inbox: &Arc<Inbox>) {
    let before = POLLED.with_borrow_mut(|polled| polled.inbox.replace(Arc::clone(inbox)));
    // This thread drives one inbox: replies and timers of the one before are the background
    // driver's.
    if let Some(before) = before
        && !Arc::ptr_eq(&before, inbox)
    {
        before.call_background();
    }
}

/// While it lives, this thread's future is polled. If that ends without anybody waiting, what was
/// asked is the background driver's.
pub(crate) struct Polling(Polled);

impl Polling {
    pub(crate) fn begin(number: u64) -> Self {
        Self(POLLED.replace(Polled { number, inbox: None }))
    }

    /// The inbox that was asked.
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

//! The executor of requests that need more than one step: futures, which run on the thread that
//! owns them at the time.
//!
//! A task is polled when it was spawned and when something it waits for has come. Wakers only note
//! the task's number, so a task that is woken twice is polled once. Slots are a list of their own,
//! not a ready-made slab: a slot keeps its waker when its task has ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use narrow::to_u32;
use upstream::SendRefCell;

pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The tasks of one worker.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: SendRefCell<Slots>,
    ready: Arc<Ready>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    /// `None` while it is polled, and when the slot is free. Nobody locks it: the mutex is for a
    /// future that may be sent, but not shared.
    task: Mutex<Option<BoxedTask>>,
    task_waker: Arc<TaskWaker>,
    waker: Waker,
}

/// Numbers of tasks to poll. A mutex since wakers may be sent anywhere; nobody but this thread uses
/// it.
#[derive(Default)]
struct Ready {
    queue: Mutex<Vec<u32>>,
}

struct TaskWaker {
    number: u32,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Relaxed: the queue's mutex orders what matters.
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        }
    }
}

impl Tasks {
    /// Runs `task` from the next [`Self::run`] on.
    pub(crate) fn spawn(&self, task: BoxedTask) {
        let mut slots = self.slots.borrow_mut();
        let number = slots.free.pop().unwrap_or_else(|| {
            let number = to_u32(slots.slots.len());
            let ready = Arc::clone(&self.ready);
            let task_waker =
                Arc::new(TaskWaker { number, is_queued: AtomicBool::new(false), ready });
            let waker = Waker::from(Arc::clone(&task_waker));
            slots.slots.push(Slot { task: Mutex::default(), task_waker, waker });
            number
        });
        let slot = &mut slots.slots[number as usize];
        slot.task = Mutex::new(Some(task));
        slot.task_waker.wake_by_ref();
    }

    /// Polls what is ready, until nothing is. True if anything was.
    pub(crate) fn run(&self) -> bool {
        let mut has_run = false;
        let mut turn = Vec::new();
        loop {
            std::mem::swap(
                &mut turn,
                &mut self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner),
            );
            if turn.is_empty() {
                return has_run;
            }
            has_run = true;
            for number in turn.drain(..) {
                self.poll(number);
            }
        }
    }

    /// No slot is borrowed while the task runs, since it may spawn others.
    fn poll(&self, number: u32) {
        let (task, waker) = {
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = slots.slots.get_mut(number as usize) else { return };
            slot.task_waker.is_queued.store(false, Ordering::Relaxed);
            (slot.task.get_mut().unwrap_or_else(PoisonError::into_inner).take(), slot.waker.clone())
        };
        let Some(mut task) = task else { return };
        let poll = task.as_mut().poll(&mut Context::from_waker(&waker));
        if poll == Poll::Ready(()) {
            drop(task);
            self.slots.borrow_mut().free.push(number);
        } else {
            self.slots.borrow_mut().slots[number as usize].task = Mutex::new(Some(task));
        }
    }

    /// Gives up all tasks.
    pub(crate) fn clear(&self) {
        // Not dropped while it is borrowed: what a task holds may look here.
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        drop(slots);
    }

    /// Whether [`Self::run`] has something to do.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Tasks that have not ended.
    pub(crate) fn len(&self) -> usize {
        let slots = self.slots.borrow();
        slots.slots.len() - slots.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use upstream::SendCell;

    /// Pending once, then ready.
    struct Once(bool);

    impl Future for Once {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            if std::mem::replace(&mut self.0, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            context.waker().wake_by_ref();
            Poll::Pending
        }
    }

    #[test]
    fn tasks_run_to_their_end_and_their_slots_are_used_again() {
        let (tasks, count) = (Tasks::default(), Arc::new(SendCell::new(0)));
        for round in 1..=3 {
            for _ in 0..10 {
                let count = Arc::clone(&count);
                tasks.spawn(Box::pin(async move {
                    Once(false).await;
                    count.set(count.get() + 1);
                }));
            }
            assert_eq!(tasks.len(), 10);
            assert!(tasks.run());
            assert_eq!((count.get(), tasks.len()), (10 * round, 0));
        }
        assert_eq!(tasks.slots.borrow().slots.len(), 10);
        assert!(!tasks.run());
    }

    #[test]
    fn a_late_wake_of_an_ended_task_does_nothing() {
        let tasks = Tasks::default();
        tasks.spawn(Box::pin(async {}));
        let waker = tasks.slots.borrow().slots[0].waker.clone();
        tasks.run();
        waker.wake();
        tasks.run();
        assert_eq!(tasks.len(), 0);
    }
}

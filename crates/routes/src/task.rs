//! The executor of requests that need several steps: futures that run on the thread that currently
//! owns them.
//!
//! The executor polls a task after its spawn, and whenever an event that it waits for has happened.
//! Wakers only record the task's number, so a task woken twice is polled once. The slots are not a
//! ready-made slab, because a slot keeps its waker after its task has ended.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use narrow::to_u32;
use upstream::SendRefCell;

pub(crate) type BoxedTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lets all tasks run that are ready now.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

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
    /// `None` while it is polled, and when the slot is free. No other thread locks it. The mutex
    /// only makes a future `Sync` that is only `Send`.
    task: Mutex<Option<BoxedTask>>,
    task_waker: Arc<TaskWaker>,
    waker: Waker,
}

/// Numbers of tasks to poll. It is a mutex because wakers may be sent anywhere. Only this thread
/// uses it.
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
        // Relaxed: the queue's mutex provides the ordering.
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.ready.queue.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        }
    }
}

impl Tasks {
    /// Runs `task`, starting with the next [`Self::run`].
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

    /// Polls ready tasks until none is ready. Returns true if any was.
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

    /// Polls one task. No slot is borrowed while it runs, since it may spawn others.
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

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        // Not dropped while borrowed: a task's contents may access the slots.
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        drop(slots);
    }

    /// Returns true if [`Self::run`] has work to do.
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
    fn tasks_run_to_completion_and_their_slots_are_reused() {
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
    fn waking_a_finished_task_does_nothing() {
        let tasks = Tasks::default();
        tasks.spawn(Box::pin(async {}));
        let waker = tasks.slots.borrow().slots[0].waker.clone();
        tasks.run();
        waker.wake();
        tasks.run();
        assert_eq!(tasks.len(), 0);
    }
}

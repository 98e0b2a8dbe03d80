//! Starts the threads and waits for their end.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::accept::Acceptor;
use crate::config::{BufferBudget, Config};
use crate::control::{Control, Shared};
use crate::peer::ListenAddress;
use crate::service::Service;
use crate::sockets::Sockets;
use crate::worker::Worker;

/// The running server's threads.
#[derive(Debug)]
pub struct Handle {
    control: Control,
    threads: Vec<JoinHandle<()>>,
}

impl Handle {
    /// Observes and ends the server from elsewhere.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// [`Control::drain`].
    pub fn drain(&self, patience: Duration) {
        self.control.drain(patience);
    }

    /// [`Control::stop`].
    pub fn stop(&self) {
        self.control.stop();
    }

    /// Waits until every thread has ended, after [`Control::drain`] or [`Control::stop`].
    ///
    /// # Panics
    ///
    /// Panics when a thread has panicked, with its panic.
    pub fn join(self) {
        for thread in self.threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        // Connections accepted while the workers ended: no other thread will close them.
        for worker in &self.control.shared.workers {
            worker.mailbox.take(&mut Vec::new());
        }
    }
}

/// Starts the workers (threads `worker-0`, `worker-1`, ...) and the acceptor (`acceptor`). `make`
/// is called in each worker's thread with the worker's number and creates its service.
///
/// # Errors
///
/// A thread cannot be started, pinned, or given a poller; threads started before have ended.
pub fn start<S, F>(
    sockets: Sockets,
    config: &Config,
    budget: Arc<dyn BufferBudget>,
    make: F,
) -> io::Result<Handle>
where
    S: Service + 'static,
    F: Fn(usize, &Control) -> S + Send + Sync + 'static,
{
    let workers = config.workers.max(1);
    let shared = Arc::new(Shared::new(workers, &sockets, config)?);
    let control = Control { shared: Arc::clone(&shared) };
    let acceptor = Acceptor::new(Arc::clone(&shared), sockets.streams, config)?;
    let mut datagrams = one_each(sockets.datagrams, workers);
    let make = Arc::new(make);
    let (ready, is_ready) = mpsc::channel();
    let mut handle = Handle { control: control.clone(), threads: Vec::new() };
    let mut started = Ok(());
    for index in (0..workers).rev() {
        let core = config
            .affinity
            .as_ref()
            .and_then(|cores| (!cores.is_empty()).then(|| cores[index % cores.len()]));
        let (shared, control) = (Arc::clone(&shared), control.clone());
        let (make, ready, budget) = (Arc::clone(&make), ready.clone(), Arc::clone(&budget));
        let (udp, config) = (datagrams.pop().unwrap_or_default(), config.clone());
        let body = move || {
            let worker = set_core(core).and_then(|()| {
                Worker::new(index, shared, config, budget, udp, || make(index, &control))
            });
            match worker {
                Ok(worker) => {
                    // The starter waits for every answer, so it still receives this one.
                    let _ = ready.send(Ok(()));
                    drop(ready);
                    worker.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        match thread::Builder::new().name(format!("worker-{index}")).spawn(body) {
            Ok(thread) => handle.threads.push(thread),
            Err(error) => started = Err(error),
        }
    }
    drop(ready);
    let started = is_ready.iter().fold(started, Result::and).and_then(|()| {
        let body = move || acceptor.run();
        thread::Builder::new().name("acceptor".to_owned()).spawn(body)
    });
    match started {
        Ok(thread) => handle.threads.push(thread),
        Err(error) => {
            handle.stop();
            handle.join();
            return Err(error);
        }
    }
    Ok(handle)
}

/// Distributes the sockets of each address, one to each worker.
fn one_each(
    groups: Vec<(Arc<ListenAddress>, Vec<UdpSocket>)>,
    workers: usize,
) -> Vec<Vec<(Arc<ListenAddress>, UdpSocket)>> {
    let mut dealt: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for (address, group) in groups {
        for (index, socket) in group.into_iter().enumerate() {
            dealt[index % workers].push((Arc::clone(&address), socket));
        }
    }
    dealt
}

fn set_core(core: Option<usize>) -> io::Result<()> {
    let Some(core) = core else { return Ok(()) };
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no core {core}"),
        ));
    }
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot run on core {core}: {error}"))
    })
}

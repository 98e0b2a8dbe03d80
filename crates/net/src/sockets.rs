//! Bound sockets, and the files of unix ones.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::peer::ListenAddress;

/// Bound sockets, not yet served.
#[derive(Debug, Default)]
pub struct Sockets {
    pub(crate) streams: Vec<StreamListener>,
    /// For each address, one socket for each worker.
    pub(crate) datagrams: Vec<(Arc<ListenAddress>, Vec<UdpSocket>)>,
    /// The addresses at which systemd also listens.
    pub(crate) systemds: Vec<Arc<ListenAddress>>,
    /// Files of inherited unix sockets that nobody serves any more.
    pub(crate) abandoned: Vec<Arc<SocketFile>>,
    /// A listener that the loops do not serve, and that the next process also receives.
    pub(crate) metrics: Option<TcpListener>,
}

/// One listening stream socket.
#[derive(Debug)]
pub(crate) struct StreamListener {
    pub(crate) address: Arc<ListenAddress>,
    socket: OwnedFd,
    /// The unix socket's file, unless it is systemd's.
    file: Option<Arc<SocketFile>>,
}

/// The file of a unix socket, removed with the last copy of its listener if it is still this one.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// The permission bits to set.
    mode: u32,
    is_left: AtomicBool,
}

impl Sockets {
    /// Adds sockets that were bound later: a unix socket, bound without the rights for low ports.
    pub fn append(&mut self, other: Self) {
        self.streams.extend(other.streams);
        self.datagrams.extend(other.datagrams);
        self.systemds.extend(other.systemds);
        self.abandoned.extend(other.abandoned);
    }

    /// Adds the listener of the metrics, which the loops do not serve: it only goes with the others
    /// to the next process.
    pub fn keep_metrics(&mut self, listener: Option<TcpListener>) {
        self.metrics = listener;
    }

    /// Every address, as bound: TCP first, then the unix socket, then UDP.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<ListenAddress>> {
        let streams = self.streams.iter().map(|listener| &listener.address);
        streams.chain(self.datagrams.iter().map(|(address, _)| address))
    }

    /// Gives the files of unix sockets the configured permission bits: an inherited one still has
    /// those of the other process.
    ///
    /// # Errors
    ///
    /// The system's refusal, with the path.
    pub fn set_modes(&self) -> io::Result<()> {
        self.streams.iter().filter_map(|one| one.file.as_ref()).try_for_each(|file| file.set_mode())
    }

    /// Every socket by its descriptor, with its address: a UDP address has several.
    pub(crate) fn by_descriptor(&self) -> BTreeMap<RawFd, Arc<ListenAddress>> {
        let streams = self.streams.iter().map(|one| (one.as_fd().as_raw_fd(), &one.address));
        let datagrams = self.datagrams.iter().flat_map(|(address, sockets)| {
            sockets.iter().map(move |socket| (socket.as_raw_fd(), address))
        });
        streams.chain(datagrams).map(|(fd, address)| (fd, Arc::clone(address))).collect()
    }
}

impl AsFd for StreamListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl StreamListener {
    pub(crate) fn new(
        address: Arc<ListenAddress>,
        socket: OwnedFd,
        file: Option<Arc<SocketFile>>,
    ) -> Self {
        Self { address, socket, file }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let (address, socket) = (Arc::clone(&self.address), self.socket.try_clone()?);
        Ok(Self { address, socket, file: self.file.clone() })
    }

    /// Sets which process removes the file: another one, or this one again.
    pub(crate) fn leave_file(&self, is_left: bool) {
        if let Some(file) = &self.file {
            file.leave(is_left);
        }
    }
}

impl SocketFile {
    /// The file that exists now.
    pub(crate) fn at(path: &Path, mode: u32) -> io::Result<Self> {
        let file = fs::metadata(path)?;
        let (device, inode) = (file.dev(), file.ino());
        let is_left = AtomicBool::new(false);
        Ok(Self { path: path.to_path_buf(), device, inode, mode, is_left })
    }

    pub(crate) fn leave(&self, is_left: bool) {
        // Relaxed: it is read when the last copy is dropped, and `Arc` orders that after this.
        self.is_left.store(is_left, Ordering::Relaxed);
    }

    /// Removes it, unless another one is at its path.
    pub(crate) fn remove(&self) {
        let Self { path, device, inode, .. } = self;
        let is_same = |found: fs::Metadata| (found.dev(), found.ino()) == (*device, *inode);
        if fs::symlink_metadata(path).is_ok_and(is_same) {
            // A file that cannot be removed is stale at the next start, and is removed then.
            let _ = fs::remove_file(path);
        }
    }

    fn set_mode(&self) -> io::Result<()> {
        let Self { path, device, inode, mode, .. } = self;
        match fs::metadata(path) {
            // It was removed, or belongs to another process by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(found) if (found.dev(), found.ino()) != (*device, *inode) => Ok(()),
            Ok(found) if found.mode() & 0o7777 == *mode => Ok(()),
            _ => fs::set_permissions(path, fs::Permissions::from_mode(*mode)).map_err(|error| {
                let text = format!("cannot set the mode of {}: {error}", path.display());
                io::Error::new(error.kind(), text)
            }),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !*self.is_left.get_mut() {
            self.remove();
        }
    }
}

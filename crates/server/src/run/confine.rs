//! `-o drop_privileges`: after its start the process may no longer make most system calls
//! (seccomp).
//!
//! ```text
//!     everything bound, opened and written -> CONTROL, for the whole process -> threads
//!         -> each worker: WORKER, in addition
//! ```
//!
//! A worker faces the network, so it has the shortest list: it moves bytes between memory and the
//! sockets that it receives. It opens no file and makes no socket. The other threads may also
//! accept, read files (certificates, users: a reload), remove the files that the server made,
//! change the process's own limits (`conn_limit`: a reload), and communicate with the service
//! manager; with `--otlp` they may connect to the network. No thread starts a program, makes memory
//! executable, or changes the process's user. A forbidden call fails with `EPERM`, so that an
//! incomplete list breaks only the missing function.

use std::collections::BTreeMap;

use nix::libc;
use options::Options;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::Failure;
use crate::log::Log;

/// One system call: its name, its number, and the condition on an argument.
type Call = (&'static str, libc::c_long, Only);

/// The condition on an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    /// Anything.
    Any,
    /// Not executable: the protection of memory.
    Data,
    /// For reading: the flags of an open relative to a folder.
    Reading,
    /// For reading: the flags of the old `open`.
    ReadingOld,
    /// A unix socket.
    Unix,
    /// This process, not another one by its id.
    Own,
}

macro_rules! calls {
    ($($name:ident $only:ident,)*) => {
        &[$((stringify!($name), libc::$name, Only::$only),)*]
    };
}

/// The calls of workers.
const WORKER: &[Call] = calls! {
    SYS_read Any, SYS_write Any, SYS_readv Any, SYS_writev Any, SYS_close Any,
    SYS_recvfrom Any, SYS_recvmsg Any, SYS_recvmmsg Any,
    SYS_sendto Any, SYS_sendmsg Any, SYS_sendmmsg Any, SYS_shutdown Any,
    SYS_getsockopt Any, SYS_setsockopt Any, SYS_getsockname Any, SYS_getpeername Any,
    SYS_epoll_pwait Any, SYS_epoll_pwait2 Any, SYS_epoll_ctl Any,
    SYS_futex Any, SYS_sched_yield Any, SYS_membarrier Any,
    SYS_fallocate Any,
    SYS_mmap Data, SYS_mprotect Data, SYS_munmap Any, SYS_mremap Any, SYS_madvise Any, SYS_brk Any,
    SYS_clock_gettime Any, SYS_clock_nanosleep Any, SYS_nanosleep Any, SYS_getrandom Any,
    SYS_getpid Any, SYS_gettid Any, SYS_getrusage Any, SYS_sched_getaffinity Any,
    SYS_sigaltstack Any, SYS_rt_sigaction Any, SYS_rt_sigprocmask Any, SYS_rt_sigreturn Any,
    SYS_restart_syscall Any, SYS_tgkill Any, SYS_exit Any, SYS_exit_group Any,
};

/// The additional calls of the other threads.
const CONTROL: &[Call] = calls! {
    SYS_accept4 Any, SYS_ppoll Any, SYS_fcntl Any, SYS_eventfd2 Any,
    SYS_epoll_create1 Any,
    SYS_openat Reading, SYS_getdents64 Any, SYS_fstat Any, SYS_newfstatat Any, SYS_statx Any,
    SYS_lseek Any, SYS_pread64 Any, SYS_unlinkat Any,
    SYS_msync Any, SYS_fsync Any, SYS_fdatasync Any, SYS_ftruncate Any, SYS_pwrite64 Any,
    SYS_socket Unix, SYS_socketpair Unix, SYS_connect Any, SYS_bind Any, SYS_listen Any,
    SYS_clone Any, SYS_clone3 Any, SYS_set_robust_list Any, SYS_rseq Any, SYS_prctl Any,
    SYS_sched_setaffinity Any, SYS_seccomp Any, SYS_mlock Any, SYS_munlock Any, SYS_mlock2 Any,
    SYS_geteuid Any, SYS_getuid Any, SYS_kill Any,
    SYS_prlimit64 Own,
};

/// The additional calls of the exporter of `--otlp`: it finds its collector's address and connects.
const EXPORTER: &[Call] = calls! { SYS_socket Any, SYS_uname Any, SYS_ioctl Any, };

/// The calls of workers where the system keeps older calls.
#[cfg(target_arch = "x86_64")]
const WORKER_OLD: &[Call] = calls! { SYS_epoll_wait Any, };
#[cfg(not(target_arch = "x86_64"))]
const WORKER_OLD: &[Call] = &[];

/// The calls of the other threads there; musl's library prefers these.
#[cfg(target_arch = "x86_64")]
const CONTROL_OLD: &[Call] = calls! {
    SYS_open ReadingOld, SYS_poll Any, SYS_readlink Any, SYS_unlink Any, SYS_stat Any,
    SYS_lstat Any,
};
#[cfg(not(target_arch = "x86_64"))]
const CONTROL_OLD: &[Call] = &[];

/// Confines the process from now on, including its future threads, if the options say so. Call it
/// while there is one thread.
pub(super) fn process(options: &Options, exports: bool, log: &Log) -> Result<(), Failure> {
    if !options.drop_privileges {
        return Ok(());
    }
    let calls = if exports { with_exporter() } else { all() };
    apply(&calls).map_err(|error| Failure::os(error.to_string()))?;
    log.detail(format_args!("drop_privileges: workers may call {}", names(&of_workers())));
    log.detail(format_args!("drop_privileges: all threads may call {}", names(&calls)));
    Ok(())
}

/// Confines the calling worker further.
///
/// # Errors
///
/// Fails when the system refuses.
pub(super) fn worker() -> Result<(), NotConfined> {
    apply(&of_workers())
}

fn of_workers() -> Vec<Call> {
    [WORKER, WORKER_OLD].concat()
}

fn all() -> Vec<Call> {
    [WORKER, WORKER_OLD, CONTROL, CONTROL_OLD].concat()
}

/// All calls; the exporter's replace the same ones with a condition.
fn with_exporter() -> Vec<Call> {
    let mut calls = all();
    calls.retain(|(name, ..)| !EXPORTER.iter().any(|(own, ..)| own == name));
    calls.extend_from_slice(EXPORTER);
    calls
}

fn names(calls: &[Call]) -> String {
    let names = calls.iter().map(|(name, _, _)| name.trim_start_matches("SYS_"));
    names.collect::<Vec<_>>().join(" ")
}

/// Allows only these calls to the calling thread and the threads that it starts.
fn apply(calls: &[Call]) -> Result<(), NotConfined> {
    Ok(seccompiler::apply_filter(&program(calls)?)?)
}

/// The filter of system calls is not in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotConfined {
    /// The list of calls cannot be compiled.
    #[error("-o drop_privileges: {0}")]
    Program(#[from] seccompiler::BackendError),
    /// The system refuses it.
    #[error("-o drop_privileges: {0}")]
    System(#[from] seccompiler::Error),
}

fn program(calls: &[Call]) -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules = BTreeMap::new();
    for (_, number, only) in calls {
        let rules: &mut Vec<SeccompRule> = rules.entry(*number).or_default();
        if let Some(condition) = only.condition()? {
            rules.push(SeccompRule::new(vec![condition])?);
        }
    }
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()
}

impl Only {
    fn condition(self) -> Result<Option<SeccompCondition>, seccompiler::BackendError> {
        let (argument, mask, value) = match self {
            Self::Any => return Ok(None),
            Self::Data => (2, libc::PROT_EXEC, 0),
            Self::Reading => (2, WRITING, 0),
            Self::ReadingOld => (1, WRITING, 0),
            Self::Unix => (0, i32::MAX, libc::AF_UNIX),
            Self::Own => (0, -1, 0),
        };
        let as_word = |flags: i32| u64::from(flags.cast_unsigned());
        let like = SeccompCmpOp::MaskedEq(as_word(mask));
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, like, as_word(value)).map(Some)
    }
}

/// Flags of an open that does more than read. `O_TMPFILE` includes the bit of `O_DIRECTORY`, and
/// `--metrics` reads a folder to count its descriptors.
const WRITING: i32 = libc::O_WRONLY
    | libc::O_RDWR
    | libc::O_CREAT
    | libc::O_TRUNC
    | libc::O_APPEND
    | (libc::O_TMPFILE & !libc::O_DIRECTORY);

#[cfg(test)]
mod tests {
    use super::*;

    use std::fs::{self, File};
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use rustix::io::Errno;
    use rustix::process::{Resource, getpid, prlimit};

    /// Runs `body` in a thread confined to `calls`.
    fn confined<T: Send>(calls: &[Call], body: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                apply(calls).unwrap();
                body()
            });
            thread.join().unwrap()
        })
    }

    fn kind<T>(result: std::io::Result<T>) -> ErrorKind {
        result.err().map_or(ErrorKind::Other, |error| error.kind())
    }

    #[test]
    fn workers_can_only_read_and_write_open_descriptors() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        confined(&of_workers(), || {
            assert_eq!(kind(File::open("/etc/passwd")), ErrorKind::PermissionDenied);
            assert_eq!(kind(File::create("/tmp/x")), ErrorKind::PermissionDenied);
            assert_eq!(kind(TcpListener::bind("127.0.0.1:0")), ErrorKind::PermissionDenied);
            assert_eq!(kind(Command::new("/bin/true").spawn()), ErrorKind::PermissionDenied);
            one.write_all(b"hello").unwrap();
            let mut got = [0; 5];
            other.read_exact(&mut got).unwrap();
            let large = vec![1u8; 64 << 20];
            assert_eq!((&got, large.len()), (b"hello", 64 << 20));
        });
    }

    #[test]
    fn other_threads_can_read_files_but_start_no_program() {
        confined(&all(), || {
            assert!(fs::read("/etc/passwd").is_ok());
            assert!(fs::read_dir("/proc/self/fd").is_ok_and(|files| files.count() > 0));
            // The limit of files, as `conn_limit` needs it, but not another process's.
            let files = rustix::process::getrlimit(Resource::Nofile);
            assert!(rustix::process::setrlimit(Resource::Nofile, files).is_ok());
            let other = prlimit(Some(getpid()), Resource::Nofile, files);
            assert_eq!(other, Err(Errno::PERM));
            assert_eq!(kind(fs::write("/tmp/x", "")), ErrorKind::PermissionDenied);
            assert_eq!(kind(TcpListener::bind("127.0.0.1:0")), ErrorKind::PermissionDenied);
            assert_eq!(kind(Command::new("/bin/true").spawn()), ErrorKind::PermissionDenied);
            // A thread that it starts is also confined, and can be confined further.
            let further = thread::spawn(|| {
                let before = kind(fs::write("/tmp/x", ""));
                apply(&of_workers()).unwrap();
                (before, kind(File::open("/etc/passwd")))
            });
            let denied = ErrorKind::PermissionDenied;
            assert_eq!(further.join().unwrap(), (denied, denied));
        });
    }
}

//! The process's limit of open files, of which each connection is one.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of files that this process may open; `None`: any number.
#[must_use]
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Lets this process open `wanted` files, if it may open fewer. If the system does not allow that
/// many, it may then open as many as the system allows, if those are at least `least`.
///
/// # Errors
///
/// The error of the system if the limit is not changed.
pub fn raise_open_files(wanted: u64, least: u64) -> Result<(), Errno> {
    let now = getrlimit(Resource::Nofile);
    if is_at_least(now.current, wanted) {
        return Ok(());
    }
    let maximum = if is_at_least(now.maximum, wanted) { now.maximum } else { Some(wanted) };
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    let Err(error) = raised else { return Ok(()) };
    if matches!(error, Errno::PERM | Errno::ACCESS) && is_at_least(now.maximum, least) {
        let at_most = Rlimit { current: now.maximum, maximum: now.maximum };
        if setrlimit(Resource::Nofile, at_most).is_ok() {
            return Ok(());
        }
    }
    Err(error)
}

/// The same, for `needed` files and as many more as the system allows without a right.
///
/// # Errors
///
/// As for [`raise_open_files`].
pub fn raise_open_files_to_most(needed: u64) -> Result<(), Errno> {
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(needed);
    raise_open_files(needed.max(allowed), 0)
}

/// True if a limit (`None`: none) admits `wanted`.
fn is_at_least(limit: Option<u64>, wanted: u64) -> bool {
    limit.is_none_or(|limit| limit >= wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests of this process need far fewer files than half of its limit.
    #[test]
    fn the_soft_limit_becomes_the_wanted_or_the_hard_one() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let most = maximum.unwrap_or(1 << 20);
        let lower = || {
            setrlimit(Resource::Nofile, Rlimit { current: Some(most / 2), maximum }).unwrap();
        };
        lower();
        raise_open_files(most / 2 - 1, 0).unwrap();
        assert_eq!(open_files_max(), Some(most / 2), "it is not lowered");
        raise_open_files(most / 2 + 1, 0).unwrap();
        assert_eq!(open_files_max(), Some(most / 2 + 1));
        lower();
        raise_open_files_to_most(1).unwrap();
        assert_eq!(open_files_max(), Some(most));
    }
}

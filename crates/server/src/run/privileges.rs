//! The user that the server runs as.
//!
//! A server started as root becomes the user of `-u` once its ports are bound. Without `-u`,
//! memcached refuses, and a server run under that name also refuses; `holdall serve` becomes
//! `nobody` if that user exists. Exit statuses are memcached's.

use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use options::{Options, Style};

use super::Failure;
use crate::log::Log;

/// The user to become; `None` to stay.
pub(super) fn identity(options: &Options, log: &Log) -> Result<Option<User>, Failure> {
    if !Uid::effective().is_root() && !Uid::current().is_root() {
        return Ok(None);
    }
    match (&options.user, options.style) {
        (Some(name), _) => match User::from_name(name) {
            Ok(Some(user)) => Ok(Some(user)),
            Ok(None) => Err(Failure {
                status: EXIT_NO_USER,
                message: format!("-u {name}: there is no such user"),
                hint: None,
            }),
            Err(error) => Err(Failure::os(format!("-u {name}: {error}"))),
        },
        (None, Style::Memcached) => {
            Err(Failure::usage("can't run as root without the -u switch".to_owned()))
        }
        (None, Style::Holdall) => match User::from_name(DEFAULT_USER) {
            Ok(Some(user)) => {
                log.warning(format_args!(
                    "started as root: becoming {DEFAULT_USER}; -u names another user"
                ));
                Ok(Some(user))
            }
            _ => {
                log.warning(format_args!(
                    "running as root: there is no user {DEFAULT_USER}; -u names one"
                ));
                Ok(None)
            }
        },
    }
}

/// Permanently becomes `user`: real, effective and saved ids, and no supplementary groups. Must be
/// called while there is one thread.
pub(super) fn assume(options: &mut Options, user: Option<User>, log: &Log) -> Result<(), Failure> {
    let Some(user) = user.filter(|user| !user.uid.is_root()) else { return Ok(()) };
    let assumed = setgroups(&[]).and_then(|()| setgid(user.gid)).and_then(|()| setuid(user.uid));
    assumed.map_err(|error| Failure::os(format!("cannot become user {}: {error}", user.name)))?;
    log.detail(format_args!("running as {}", user.name));
    options.user = Some(user.name);
    if options.core_dumps {
        // The kernel turned them off with the change of user.
        let dumpable = rustix::process::DumpableBehavior::Dumpable;
        if let Err(error) = rustix::process::set_dumpable_behavior(dumpable) {
            log.warning(format_args!("-r: no core files after the change of user: {error}"));
        }
    }
    Ok(())
}

/// The user that root becomes if none is named.
const DEFAULT_USER: &str = "nobody";

/// `EX_NOUSER`, as in memcached.
const EXIT_NO_USER: u8 = 67;

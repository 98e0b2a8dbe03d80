//! Deletes that failed, and what others are told of their server until they are executed.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::{Failure, Op, Outcome, Spooler};
use common::{Rig, Scripted, patient};
use spool::{Fsync, Spool};

/// A server that takes no delete has the old value: whoever asked for it would be given that.
#[test]
fn a_server_with_deletes_to_come_is_asked_for_no_value() {
    for holds_gets in [true, false] {
        let folder = std::env::temp_dir().join(format!("held-{}-{holds_gets}", std::process::id()));
        let takes = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&takes);
        let server = Scripted::new(move |asked| {
            let answers = asked.lines().map(|line| match line.split(' ').next() {
                Some("get") => Some("VALUE k 0 3\r\nold\r\nEND\r\n"),
                Some("delete") => now.load(Ordering::SeqCst).then_some("DELETED\r\n"),
                Some("version") => Some("VERSION 1\r\n"),
                _ => Some("STORED\r\n"),
            });
            answers.collect()
        });
        let mut rig = Rig::new(patient(), |servers| servers.at(server.address));
        let settings = spool::Settings { fsync: Fsync::Never, ..spool::Settings::default() };
        let spool = Spool::open(&folder, settings).unwrap();
        let registry = rig.registry.clone();
        let spooler = Spooler::start(spool, None, registry, 1, holds_gets, |_| {}).unwrap();
        let name = server.address.to_string();
        spooler.deletes().set_targets(vec![(name, server.address.into(), patient())]);
        rig.core.keep_deletes(spooler.deletes().clone()).unwrap();
        let old = Ok(Some("old".to_owned()));
        assert_eq!(rig.get("k"), old);
        assert_eq!(rig.simple(Op::Delete, "k"), Outcome::NotFound, "it is kept");
        let held = if holds_gets { Err(Failure::TryAgain) } else { old.clone() };
        assert_eq!(rig.get("k"), held);
        assert_eq!(rig.store(Op::Set, "other", "v"), Outcome::Stored);
        takes.store(true, Ordering::SeqCst);
        rig.eventually("it is asked again", |rig| rig.get("k") == old);
        rig.eventually("it is executed", |_| spooler.deletes().counts().replayed == 1);
        drop(spooler);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

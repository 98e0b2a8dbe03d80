//! Trees that are replaced while requests run in them.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use common::{Rig, Scripted, patient};
use routes::Tree;
use routes::route::{DestinationRoute, RouteRef};
use std::net::SocketAddr;
use std::sync::Arc;
use upstream::{Command, Outcome, Request, Window};

/// A server that reports when it has read a set, and answers it when the test allows it.
fn told() -> (Scripted, Sender<()>, Receiver<()>) {
    let ((tell, told), (say, asked)) = (channel(), channel());
    let told = Mutex::new(told);
    let server = Scripted::new(move |request| {
        if request.starts_with("set ") {
            say.send(()).unwrap();
            told.lock().unwrap().recv().ok()?;
            return Some("STORED\r\n".to_owned());
        }
        Some("VERSION 1.6.18\r\n".to_owned())
    });
    (server, tell, asked)
}

/// A tree of one server.
fn tree(upstream: &mut upstream::Upstream, address: SocketAddr) -> Tree {
    let id = upstream.destination(&address.into(), &patient());
    let label = address.to_string().into();
    let root: RouteRef = Arc::new(DestinationRoute {
        id,
        label,
        asynclog: None,
        keeps_prefix: false,
        shadows: Default::default(),
    });
    Tree { root, destinations: vec![id], keeps_prefixes: false }
}

#[test]
fn a_removed_server_answers_its_outstanding_requests() {
    let (before, tell, asked) = told();
    let (after, tell_after, _asked_after) = told();
    let mut rig = Rig::over(|upstream| tree(upstream, before.address));
    let request = Request { value: b"1", ..Request::new(Command::Set, b"k") };
    let ticket = rig.submit(&request);
    while asked.try_recv().is_err() {
        rig.turn();
    }
    rig.core.replace(|upstream| tree(upstream, after.address));
    rig.turn();
    rig.turn();
    tell.send(()).unwrap();
    let reply = rig.reply(ticket);
    assert_eq!(reply.outcome, Outcome::Stored, "{reply:?}");
    // Requests from now on go to the other server.
    tell_after.send(()).unwrap();
    assert_eq!(rig.store(Command::Set, "k", "1"), Outcome::Stored);
    assert!(asked.try_recv().is_err());
}

#[test]
fn requests_waiting_for_the_window_reach_a_removed_server() {
    let (slow, tell_slow, asked_slow) = told();
    let (before, tell_before, asked_before) = told();
    let (after, _tell_after, asked_after) = told();
    let (later, _tell_later, asked_later) = told();
    let mut rig = Rig::over(|upstream| {
        upstream.set_window(Window::Fixed(1));
        tree(upstream, slow.address)
    });
    let request = Request { value: b"1", ..Request::new(Command::Set, b"k") };
    let outstanding = rig.submit(&request);
    while asked_slow.try_recv().is_err() {
        rig.turn();
    }
    rig.core.replace(|upstream| tree(upstream, before.address));
    let waiting = rig.submit(&request);
    rig.turn();
    rig.core.replace(|upstream| tree(upstream, after.address));
    rig.turn();
    tell_slow.send(()).unwrap();
    assert_eq!(rig.reply(outstanding).outcome, Outcome::Stored);
    while asked_before.try_recv().is_err() {
        rig.turn();
    }
    // They take the places of removed servers.
    rig.core.replace(|upstream| {
        let mut tree = tree(upstream, later.address);
        let more = [slow.address, "127.0.0.1:9".parse().unwrap()];
        let more =
            more.map(|address: SocketAddr| upstream.destination(&address.into(), &patient()));
        tree.destinations.extend(more);
        tree
    });
    rig.turn();
    tell_before.send(()).unwrap();
    assert_eq!(rig.reply(waiting).outcome, Outcome::Stored);
    assert!(asked_after.try_recv().is_err() && asked_later.try_recv().is_err());
}

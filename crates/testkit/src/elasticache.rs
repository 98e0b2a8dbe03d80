//! A configuration endpoint like Amazon ElastiCache's, which cannot be installed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::eventually;

/// An endpoint that answers each `config get cluster` with a text that the test sets. It ends with
/// the test's process.
#[derive(Debug)]
pub struct FakeElastiCache {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    answer: String,
    questions: u64,
}

impl FakeElastiCache {
    /// Starts one with this answer.
    #[must_use]
    pub fn new(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Mutex::new(Shared { answer, questions: 0 }));
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            listener.incoming().map_while(Result::ok).for_each(|client| serve(client, &served));
        });
        Self { address, shared }
    }

    /// The address of the endpoint.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the answer, and returns after a client that asks repeatedly has processed it.
    #[track_caller]
    pub fn set_answer(&self, answer: String) {
        self.shared.lock().unwrap().answer = answer;
        self.wait_for_questions();
    }

    /// Returns after a client that asks repeatedly has processed an answer of this moment.
    ///
    /// The first question that ends may have its answer already, the second one gets the present
    /// answer, and the client sends the third one after it has processed that answer.
    #[track_caller]
    pub fn wait_for_questions(&self) {
        let questions = || self.shared.lock().unwrap().questions;
        let enough = questions() + 3;
        eventually("the endpoint is asked three times", || questions() >= enough);
    }
}

/// Answers the one question of a connection.
fn serve(mut client: TcpStream, shared: &Mutex<Shared>) {
    let mut question = [0; 64];
    let len = client.read(&mut question).unwrap_or(0);
    let mut shared = shared.lock().unwrap();
    if question[..len] == *b"config get cluster\r\n" {
        let _ = client.write_all(shared.answer.as_bytes());
        shared.questions += 1;
    }
}

/// The answer that names these servers, in ElastiCache's format.
#[must_use]
pub fn cluster(servers: &[SocketAddr]) -> String {
    named_cluster(&servers.iter().map(|server| ("name", *server)).collect::<Vec<_>>())
}

/// The same with a name for each server.
#[must_use]
pub fn named_cluster(servers: &[(&str, SocketAddr)]) -> String {
    let members = servers.iter().map(|(name, one)| format!("{name}|{}|{}", one.ip(), one.port()));
    let text = format!("7\n{}\n", members.collect::<Vec<_>>().join(" "));
    format!("CONFIG cluster 0 {}\r\n{text}\r\nEND\r\n", text.len())
}

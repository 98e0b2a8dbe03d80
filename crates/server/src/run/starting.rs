//! The view of operators and systemd while a memory file is recovered, which can take minutes.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use metrics::supervisor::{self, Watchdog};
use metrics::{Check, Endpoint, Health, Page, Pages};

/// Answers at the address of `--metrics` that the server starts, and asks systemd for more time,
/// until it is dropped.
#[derive(Debug)]
pub(super) struct Starting {
    _endpoint: Option<Endpoint>,
    _more_time: Watchdog,
}

impl Starting {
    pub(super) fn show(listener: Option<&TcpListener>, connections_max: usize) -> io::Result<Self> {
        let endpoint = listener.map(|listener| {
            let pages = Arc::new(NotServing::default());
            Endpoint::start(listener.try_clone()?, pages, connections_max)
        });
        Ok(Self { _endpoint: endpoint.transpose()?, _more_time: supervisor::starting()? })
    }
}

/// The pages of a server that lives and does not serve clients yet.
#[derive(Default)]
struct NotServing(Health);

impl Pages for NotServing {
    fn metrics(&self) -> Page {
        let mut page = Page::new("holdall_");
        metrics::process(&mut page, "serve");
        page
    }

    fn live(&self) -> Vec<Check> {
        Vec::new()
    }

    fn ready(&self) -> Vec<Check> {
        self.started()
    }

    fn started(&self) -> Vec<Check> {
        vec![self.0.started()]
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_server_that_starts_is_alive_and_leaves_the_address_to_its_successor() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let status = |path: &str| {
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.split(' ').nth(1).unwrap().to_owned()
        };
        for _ in 0..2 {
            let starting = Starting::show(Some(&listener), 8).unwrap();
            for (path, right) in
                [("/livez", "200"), ("/startupz", "503"), ("/readyz", "503"), ("/metrics", "200")]
            {
                assert_eq!(status(path), right, "{path}");
            }
            drop(starting);
        }
    }
}

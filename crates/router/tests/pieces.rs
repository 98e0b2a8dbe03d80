//! Requests in pieces, with replies that leave in between: the client's input does not depend on
//! the cuts in its requests.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::net::SocketAddr;

use common::{SESSION, packet, proxy};
use testkit::Server;
use testkit::wire::Wire;

/// A client, and another one of the same worker and the same servers.
struct Clients {
    proxy: SocketAddr,
    client: Wire,
    bystander: Wire,
}

impl Clients {
    /// Clients of a proxy with one worker over these servers. Keys with the prefix `dead` fail.
    fn over(servers: &[SocketAddr]) -> Self {
        let servers: Vec<_> = servers.iter().map(|server| format!(r#""{server}""#)).collect();
        let config = format!(
            r#"{{"pools": {{"A": {{"servers": [{}]}}}}, "route": {{
                "type": "PrefixSelectorRoute", "wildcard": "PoolRoute|A",
                "policies": {{"dead": {{"type": "ErrorRoute", "response": "gone"}}}}}}}}"#,
            servers.join(",")
        );
        let proxy = proxy(&["--config-str", &config, "--num-proxies", "1"]).unwrap();
        Self { proxy, client: Wire::connect(proxy), bystander: Wire::connect(proxy) }
    }

    /// Waits until the client is owed nothing: every server has answered a later request, and the
    /// client's replies leave before more of its requests is read.
    fn settle(&mut self) {
        let keys: String = (0..32).map(|key| format!(" bystander{key}")).collect();
        self.bystander.expect(format!("get{keys}\r\n").as_bytes(), b"END\r\n");
    }

    /// Sends a request in these pieces, each after the replies to the previous ones have left, and
    /// asserts the reply.
    #[track_caller]
    fn expect<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>, reply: &[u8]) {
        for piece in pieces {
            self.settle();
            self.client.send(piece);
        }
        self.client.expect(b"", reply);
    }

    /// Asserts the reply to a request cut at every place, once in two pieces and once everywhere;
    /// `before` precedes each.
    #[track_caller]
    fn expect_for_every_split(&mut self, before: &[u8], request: &[u8], reply: &[u8]) {
        let cuts = (0..request.len()).map(|cut| request.split_at(cut));
        for (begin, rest) in cuts {
            self.client.expect(before, b"MN\r\n");
            self.expect([begin, rest], reply);
        }
        self.client.expect(before, b"MN\r\n");
        self.expect(request.chunks(1), reply);
    }
}

#[test]
fn every_command_split_anywhere_gets_the_same_reply() {
    let servers: Vec<_> = (0..3).map(|_| Server::memcached(&[])).collect();
    let mut clients = Clients::over(&servers.iter().map(Server::addr).collect::<Vec<_>>());
    let clean = b"delete n noreply\r\ndelete m noreply\r\ndelete a noreply\r\nmn\r\n";
    let request: Vec<u8> = SESSION.iter().flat_map(|(request, _)| request.to_vec()).collect();
    let reply: Vec<u8> = SESSION.iter().flat_map(|(_, reply)| reply.to_vec()).collect();
    clients.expect_for_every_split(clean, &request, &reply);
}

/// It replaces END, whatever has left before the end of the line comes.
#[test]
fn a_split_line_with_a_failing_key_ends_with_its_error() {
    let server = Server::holdall(&[]);
    let mut clients = Clients::over(&[server.addr()]);
    clients.client.expect(b"set live 0 0 40\r\n", b"");
    clients.client.expect(&[&[b'v'; 40][..], b"\r\n"].concat(), b"STORED\r\n");
    let value = format!("VALUE live 0 40\r\n{}\r\n", "v".repeat(40));
    let gone = "SERVER_ERROR gone\r\n";
    let long = "k".repeat(251);
    let lines = [
        ("get dead live".to_owned(), format!("{value}{gone}")),
        ("get dead none live dead2 live".to_owned(), format!("{value}{value}{gone}")),
        ("get live dead".to_owned(), format!("{value}{gone}")),
        ("get dead none".to_owned(), gone.to_owned()),
        ("gets dead none".to_owned(), gone.to_owned()),
        ("gat 0 dead live".to_owned(), format!("{value}{gone}")),
        ("gats 0 dead none".to_owned(), gone.to_owned()),
        ("lease-get dead live".to_owned(), format!("{value}{gone}")),
        ("metaget dead none".to_owned(), gone.to_owned()),
        (
            "get __mcrouter__.nothing live".to_owned(),
            format!("{value}CLIENT_ERROR unknown admin request nothing\r\n"),
        ),
        // The refusal of a line's rest precedes the error of a key.
        (
            format!("get dead live {long}"),
            format!("{value}CLIENT_ERROR bad command line format\r\n"),
        ),
        ("get live none".to_owned(), format!("{value}END\r\n")),
    ];
    for (line, reply) in lines {
        let request = format!("{line}\r\nmn\r\nget live\r\n");
        let reply = format!("{reply}MN\r\n{value}END\r\n");
        clients.expect_for_every_split(b"mn\r\n", request.as_bytes(), reply.as_bytes());
    }
}

/// The queue has room for a part of the line's replies, which leave before the next keys are read.
#[test]
fn a_failing_key_before_many_values_ends_the_line_in_an_error() {
    let server = Server::memcached(&[]);
    let mut clients = Clients::over(&[server.addr()]);
    let large = "v".repeat(300_000);
    clients.client.expect(format!("set large 0 0 300000\r\n{large}\r\n").as_bytes(), b"STORED\r\n");
    let line = format!("get dead{}\r\nmn\r\n", " large".repeat(40));
    let values = format!("VALUE large 0 300000\r\n{large}\r\n").repeat(40);
    for _ in 0..10 {
        // An unknown client, which may request little at first.
        let mut client = Wire::connect(clients.proxy);
        client.send(line.as_bytes());
        assert!(client.read_exact(values.len()) == values.as_bytes());
        let end = client.read_until(b"MN\r\n");
        assert_eq!(end.escape_ascii().to_string(), r"SERVER_ERROR gone\r\nMN\r\n");
    }
}

#[test]
fn binary_requests_split_anywhere_get_the_same_replies() {
    const HIT: &[u8] = b"hit";
    let server = Server::memcached(&[]);
    let mut clients = Clients::over(&[server.addr()]);
    let noop = packet(0x0a, b"", b"", b"", 0);
    let ask = |opcode, key: &[u8]| packet(opcode, key, b"", b"", 0);
    let add = |opcode| packet(opcode, HIT, &[0; 8], b"value", 0);
    let request = [
        ask(0x0d, HIT),
        ask(0x0d, b"none"),
        ask(0x0d, b"dead"),
        ask(0x00, b"with space"),
        ask(0x0c, HIT),
        add(0x02),
        add(0x12),
        ask(0x09, HIT),
        ask(0x0b, b""),
        noop.clone(),
    ]
    .concat();
    // Without a cut, and then with one at each place.
    clients.client.send(&[add(0x12), noop.clone(), request.clone(), noop].concat());
    let mark = [&[0x81, 0x0a][..], &[0; 10], b"opaq", &[0; 8]].concat();
    clients.client.read_until(&mark);
    let reply = clients.client.read_until(&mark);
    assert_eq!(clients.client.read_until(&mark), mark);
    for cut in 0..request.len() {
        let (begin, rest) = request.split_at(cut);
        clients.expect([begin, rest], &reply);
    }
    clients.expect(request.chunks(1), &reply);
}

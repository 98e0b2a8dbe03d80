//! Another server takes over from a confined one with listeners of every kind (`--takeover`).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testkit::process::free_port;
use testkit::{Kind, Launch, Server};

use crate::certificates::Certificates;
use crate::confined::until_confined;
use crate::tls::{connect, read};

/// The memory file, removed at the end.
struct Memory(String);

impl Drop for Memory {
    fn drop(&mut self) {
        for name in [self.0.clone(), format!("{}.takeover", self.0)] {
            let _ = std::fs::remove_file(name);
        }
    }
}

/// Each listener keeps the protocol of its own flag, in any order of flags; every thread of the new
/// server is confined; the unix socket is handed over, too.
#[test]
fn listeners_of_every_kind_are_handed_over() {
    let certificates = Certificates::new();
    let memory = Memory(format!("/dev/shm/security-handover-{}", std::process::id()));
    let unix = std::env::temp_dir().join(format!("security-handover-{}", std::process::id()));
    let (tls, plain) = (free_port(), free_port());
    let options = certificates.options("drop_privileges,keep_tcp");
    let listen = [format!("127.0.0.1:{tls}"), format!("notls:127.0.0.1:{plain}")];
    let launch = |listen: [&String; 2]| {
        Launch::new(Kind::Holdall)
            .plain_port(plain)
            .args(&["-Z", "-o", &options, "-e", &memory.0, "-m", "64", "-t", "2"])
            .args(&["-l", listen[0], "-l", listen[1]])
            .args(&["-s", unix.to_str().unwrap(), "-a", "0777"])
    };
    let ask = |server: &Server, after: &str| {
        server.connect().expect(b"get k\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\n");
        let trusting = certificates.client("ca", None);
        let mut stream = connect(([127, 0, 0, 1], tls).into(), &trusting).expect(after);
        stream.write_all(b"get k\r\n").unwrap();
        assert_eq!(read(&mut stream, 14), b"VALUE k 0 1\r\nx", "{after}");
        let mut stream = UnixStream::connect(&unix).expect(after);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"get k\r\n").unwrap();
        let mut answer = [0; 14];
        stream.read_exact(&mut answer).expect(after);
        assert_eq!(&answer, b"VALUE k 0 1\r\nx", "{after}");
        until_confined(server.pid(), 1);
    };
    let mut server = launch([&listen[0], &listen[1]]).start();
    server.connect().expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    ask(&server, "the first");
    for (after, listen) in
        [("swapped", [&listen[1], &listen[0]]), ("back again", [&listen[0], &listen[1]])]
    {
        let next =
            launch(listen).succeed(&server).unwrap_or_else(|error| panic!("{after}: {error}"));
        let (is_well, log) = server.wait();
        assert!(is_well && log.contains("takes over"), "{after}: {log}");
        server = next;
        ask(&server, after);
    }
    server.end();
    assert!(!unix.exists());
}

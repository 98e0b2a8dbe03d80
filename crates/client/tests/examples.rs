//! The example programs work as described, with real servers.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test stops where it fails; a program has a main"
)]

#[path = "../examples/page.rs"]
mod page;

use testkit::process::free_port;
use testkit::{Kind, Launch, Server};

#[test]
fn the_example_page_uses_every_feature() {
    let port = free_port();
    let word = port.to_string();
    // By TCP and UDP on one port: the later option counts.
    let both = ["-p", &word, "-U", &word, "-t", "1"];
    let own = Launch::new(Kind::Memcached).plain_port(port).args(&both).start();
    let others = [Server::memcached(&[]), Server::memcached(&[])];
    let [region, gutter] = others.each_ref().map(|server| server.addr().to_string());
    let deletes = std::env::temp_dir().join(format!("holdall-page-{}", std::process::id()));
    page::run(&[own.addr().to_string(), region, gutter], &deletes).unwrap();
    assert_eq!(others[0].stat("cmd_set"), 2, "a marker, and what is shared");
    assert_eq!(others[1].stat("cmd_set"), 0, "nothing failed");
    std::fs::remove_dir_all(deletes).unwrap();
}

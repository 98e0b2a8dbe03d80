//! The sliding window against incast (figure 4 of the paper): multigets of 2,000 keys over 100
//! servers, through a link of 1 Gb/s with a shallow queue. Needs root, because servers and client
//! live in separate network namespaces.

use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::rig;

const SERVERS: u16 = 100;
const FIRST_PORT: u16 = 20_000;
const SERVER_ADDRESS: &str = "10.211.0.2";
const KEYS: &str = "2000";
const VALUE_BYTES: &str = "1000";
const ROUNDS: &str = "60";

/// The link to the client: a queue of 64 KB after a token bucket for ten packets.
const SHAPE: &str = "tbf rate 1gbit burst 16kb limit 64kb";

const WINDOWS: &str =
    "4 8 16 32 64 96 128 192 256 320 384 512 1024 2000 adaptive adaptive adaptive";

/// Namespaces and servers, which end when this value is dropped.
struct Rig {
    near: String,
    far: String,
    servers: Vec<Child>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // A kill fails only if the server has already ended.
            let _ = server.kill();
            let _ = server.wait();
        }
        for name in [&self.near, &self.far] {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(words: &str) -> Result<()> {
    rig::done(Command::new("ip").args(words.split(' '))).with_context(|| words.to_owned())
}

impl Rig {
    fn new() -> Result<Self> {
        let id = std::process::id();
        let (near, far) = (format!("window-near-{id}"), format!("window-far-{id}"));
        ip(&format!("netns add {near}"))?;
        let rig = Self { near: near.clone(), far: far.clone(), servers: Vec::new() };
        ip(&format!("netns add {far}"))?;
        ip(&format!("-n {near} link add near type veth peer name far netns {far}"))?;
        ip(&format!("-n {near} addr add 10.211.0.1/24 dev near"))?;
        ip(&format!("-n {far} addr add {SERVER_ADDRESS}/24 dev far"))?;
        ip(&format!("-n {near} link set near up"))?;
        ip(&format!("-n {far} link set far up"))?;
        ip(&format!("netns exec {far} tc qdisc add dev far root {SHAPE}"))?;
        Ok(rig)
    }

    fn serve(&mut self) -> Result<()> {
        for number in 0..SERVERS {
            let port = (FIRST_PORT + number).to_string();
            let server = Command::new("ip")
                .args(["netns", "exec", &self.far])
                .arg(rig::program("holdall"))
                .args(["serve", "-u", "root", "-t", "1", "-m", "8", "-l", SERVER_ADDRESS])
                .args(["-p", &port, "-U", &port, "-o", "udp_amplification=0,no_sampling"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .context("holdall")?;
            self.servers.push(server);
        }
        // The client's first sets wait at most a second for a connection.
        thread::sleep(Duration::from_secs(3));
        Ok(())
    }
}

/// Measures and prints a table.
pub(crate) fn run(args: &[String]) -> ExitCode {
    rig::ended("window", measure(args))
}

fn measure(args: &[String]) -> Result<()> {
    // A separate build, because examples are built with the features of the tests.
    rig::build(&["-p", "holdall-routes", "--examples"])?;
    rig::build(&["-p", "holdall"])?;
    let mut rig = Rig::new()?;
    rig.serve()?;
    println!(
        "{KEYS} keys of {VALUE_BYTES} bytes over {SERVERS} servers, {ROUNDS} multigets each; {SHAPE}\n"
    );
    let first = format!("{SERVER_ADDRESS}:{FIRST_PORT}");
    let mut client = Command::new("ip");
    client.args(["netns", "exec", &rig.near]).arg(rig::program("examples/incast")).args([
        &first,
        &SERVERS.to_string(),
        KEYS,
        VALUE_BYTES,
        ROUNDS,
    ]);
    match args {
        [] => client.args(WINDOWS.split(' ')),
        windows => client.args(windows),
    };
    rig::done(&mut client)
}

//! How long a get takes by UDP, by TCP, and by TCP through the router (figure 3 of the paper).

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::steps::{cargo, target};

/// Programs that end when this does.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Whatever cannot be ended has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Running {
    fn start(&mut self, words: &[&str], port: u16) -> Result<(), String> {
        let mut program = Command::new(target().join("release/holdall"));
        program.args(words).stdin(Stdio::null()).stderr(Stdio::null());
        self.0.push(program.spawn().map_err(|error| format!("holdall: {error}"))?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            if Instant::now() > end {
                return Err(format!("holdall {words:?} does not accept"));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Measures, and prints a table.
pub(super) fn run(args: &[String]) -> ExitCode {
    match measure(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("latency: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &[String]) -> Result<(), String> {
    let mut build =
        cargo(["build", "--release", "--locked", "-p", "client", "--examples", "-p", "holdall"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return Err("the build failed".to_owned());
    }
    let [server, by_tcp, by_udp] = [free_port()?, free_port()?, free_port()?];
    let [port, tcp, udp] = [server, by_tcp, by_udp].map(|port| port.to_string());
    let mut running = Running(Vec::new());
    let options = ["-u", "root", "-t", "1", "-o", "udp_amplification=0"];
    running.start(&[&["serve", "-p", &port, "-U", &port], &options[..]].concat(), server)?;
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["127.0.0.1:{port}"]}}}}, "route": "PoolRoute|A"}}"#
    );
    let route = ["route", "--config", &config, "-p"];
    running.start(&[&route[..], &[&tcp]].concat(), by_tcp)?;
    running.start(&[&route[..], &[&udp, "--udp-gets"]].concat(), by_udp)?;
    let status = Command::new(target().join("release/examples/latency"))
        .arg(format!("udp=127.0.0.1:{port}/udp"))
        .arg(format!("tcp=127.0.0.1:{port}"))
        .arg(format!("router=127.0.0.1:{tcp}"))
        .arg(format!("router-udp=127.0.0.1:{udp}"))
        .args(args)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("latency: {status}")),
        Err(error) => Err(format!("latency: {error}")),
    }
}

//! The latency of a get by UDP, by TCP, and by TCP through the router (figure 3 of *Scaling
//! Memcache at Facebook*).

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::rig::{self, Running, build, free_port, program};

/// Measures and prints a table.
pub(crate) fn run(args: &[String]) -> ExitCode {
    rig::ended("latency", measure(args))
}

fn measure(args: &[String]) -> Result<()> {
    // A separate build, because examples are built with the features of the tests.
    build(&["-p", "holdall-routes", "--examples"])?;
    build(&["-p", "holdall"])?;
    let [server, by_tcp, by_udp] = [free_port()?, free_port()?, free_port()?];
    let [port, tcp, udp] = [server, by_tcp, by_udp].map(|port| port.to_string());
    let mut running = Running::new();
    let options = ["-u", "root", "-t", "1", "-o", "udp_amplification=0"];
    running.start(&[&["serve", "-p", &port, "-U", &port], &options[..]].concat(), server)?;
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["127.0.0.1:{port}"]}}}}, "route": "PoolRoute|A"}}"#
    );
    let route = ["route", "--config", &config, "-p"];
    running.start(&[&route[..], &[&tcp]].concat(), by_tcp)?;
    running.start(&[&route[..], &[&udp, "--udp-gets"]].concat(), by_udp)?;
    rig::done(
        Command::new(program("examples/latency"))
            .arg(format!("udp=127.0.0.1:{port}/udp"))
            .arg(format!("tcp=127.0.0.1:{port}"))
            .arg(format!("router=127.0.0.1:{tcp}"))
            .arg(format!("router-udp=127.0.0.1:{udp}"))
            .args(args),
    )
}

//! The settings of a network interface's driver, by the program `ethtool`: they are behind a system
//! call and have no file.
//!
//! Without the program, or for a driver without the setting, there is no value.

use std::io;
use std::process::{Command, Stdio};

use crate::host::Host;

/// Its place in Debian, Red Hat and others.
const PROGRAMS: [&str; 3] = ["/usr/sbin/ethtool", "/sbin/ethtool", "/usr/bin/ethtool"];

/// The first word in the name of a setting that is not a file.
const NAME: &str = "ethtool ";

/// Receive rings, or channels: the current number, and the driver's maximum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Size {
    pub now: u64,
    pub most: u64,
}

/// The receive ring of an interface, in packets.
pub(crate) fn receive_ring(host: &Host, nic: &str) -> Option<Size> {
    size(&said(host, &["-g", nic])?, "RX")
}

/// The channels of an interface that both receive and send.
pub(crate) fn channels(host: &Host, nic: &str) -> Option<Size> {
    size(&said(host, &["-l", nic])?, "Combined")
}

/// The time for which an interface waits before it interrupts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Coalescing {
    pub rx_usecs: u64,
    pub is_adaptive: bool,
}

/// The coalescing of an interface.
pub(crate) fn coalescing(host: &Host, nic: &str) -> Option<Coalescing> {
    let text = said(host, &["-c", nic])?;
    let rx_usecs = value(&text, "rx-usecs")?.parse().ok()?;
    let adaptive = value(&text, "Adaptive RX").unwrap_or_default();
    Some(Coalescing { rx_usecs, is_adaptive: adaptive.split_whitespace().next() == Some("on") })
}

/// The switches of an interface.
#[derive(Debug)]
pub(crate) struct Features(String);

impl Features {
    /// The features printed by `ethtool -k`; none if it prints nothing.
    pub(crate) fn of(host: &Host, nic: &str) -> Self {
        Self(said(host, &["-k", nic]).unwrap_or_default())
    }

    /// True for one that is on; none if it is absent or fixed.
    pub(crate) fn is_on(&self, name: &str) -> Option<bool> {
        match value(&self.0, name)? {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    }
}

/// The hash table's share for each receive queue, by its number.
pub(crate) fn table(host: &Host, nic: &str) -> Option<Vec<usize>> {
    let text = said(host, &["-x", nic])?;
    let rings = text.lines().next()?.split_once(" with ")?.1.split(' ').next()?;
    let mut shares = vec![0; rings.parse::<usize>().ok().filter(|rings| *rings <= 4096)?];
    for line in text.lines().skip(1) {
        let row = line.split_once(':').filter(|(place, _)| place.trim().parse::<u64>().is_ok());
        let Some((_, queues)) = row else { break };
        for queue in queues.split_whitespace() {
            *shares.get_mut(queue.parse::<usize>().ok()?)? += 1;
        }
    }
    shares.iter().any(|share| *share > 0).then_some(shares)
}

/// The name of the setting that `ethtool OPTION NIC NAME VALUE` changes.
pub(crate) fn setting(option: &str, nic: &str, name: &str) -> String {
    format!("{NAME}{option} {nic} {name}")
}

/// The current value of a [`setting`]; the outer `None` for the name of a file.
pub(crate) fn read(host: &Host, name: &str) -> Option<Option<String>> {
    let [option, nic, what] = words(name)?;
    Some(match option {
        "-C" => said(host, &["-c", nic]).and_then(|text| Some(value(&text, what)?.to_owned())),
        "-K" => {
            let is_on = Features::of(host, nic).is_on(what);
            is_on.map(|is_on| if is_on { "on" } else { "off" }.to_owned())
        }
        _ => None,
    })
}

/// Changes a [`setting`]; `None` for the name of a file.
pub(crate) fn write(host: &Host, name: &str, value: &str) -> Option<io::Result<()>> {
    let [option, nic, what] = words(name)?;
    Some(run(host, &[option, nic, what, value]).map(|_| ()))
}

/// The shell command that changes a [`setting`]; `None` for the name of a file.
pub(crate) fn command(name: &str, value: &str) -> Option<String> {
    words(name).map(|_| format!("{name} {value}"))
}

fn words(name: &str) -> Option<[&str; 3]> {
    let words: Vec<&str> = name.strip_prefix(NAME)?.split(' ').collect();
    words.try_into().ok()
}

fn size(text: &str, name: &str) -> Option<Size> {
    let (most, now) = text.split_once("Current hardware settings:")?;
    let number = |text: &str| value(text, name)?.parse().ok();
    Some(Size { now: number(now)?, most: number(most)? })
}

fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut pairs = text.lines().filter_map(|line| line.trim().split_once(':'));
    pairs.find(|(word, _)| *word == name).map(|(_, value)| value.trim())
}

fn said(host: &Host, words: &[&str]) -> Option<String> {
    run(host, words).ok()
}

/// Runs the host's own program. An interface's name is a separate word and never a flag.
fn run(host: &Host, words: &[&str]) -> io::Result<String> {
    let program = PROGRAMS.into_iter().find(|program| host.has(program));
    let program = program.ok_or_else(|| io::Error::other("ethtool is not installed"))?;
    if words.get(1).is_some_and(|nic| nic.starts_with('-')) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut command = Command::new(host.path(program));
    command.args(words).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.trim().lines().next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_ethtool_6_1_is_parsed() {
        let rings = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\n\
                     Current hardware settings:\nRX:\t\t256\nRX Mini:\tn/a\n";
        assert_eq!(size(rings, "RX"), Some(Size { now: 256, most: 4096 }));
        assert_eq!(size(rings, "RX Mini"), None, "the driver has none");
        let features = "rx-checksumming: on [fixed]\ngeneric-receive-offload: on\n\
                        \ttx-checksum-ipv4: off [fixed]\n";
        let features = Features(features.to_owned());
        assert_eq!(features.is_on("generic-receive-offload"), Some(true));
        assert_eq!(features.is_on("rx-checksumming"), None, "it cannot be changed");
        assert_eq!(features.is_on("none"), None);
    }

    #[test]
    fn setting_names_are_not_read_from_files() {
        let name = setting("-C", "eth0", "rx-usecs");
        assert_eq!(command(&name, "350").as_deref(), Some("ethtool -C eth0 rx-usecs 350"));
        assert_eq!(command("/sys/x", "1"), None);
        let nowhere = Host::at("/nowhere".as_ref());
        assert_eq!(read(&nowhere, "/sys/x"), None);
        assert_eq!(read(&nowhere, &name), Some(None));
        assert!(write(&nowhere, &name, "1").unwrap().is_err());
    }

    #[test]
    fn an_interface_name_cannot_be_a_flag() {
        let refused = run(&Host::at("/".as_ref()), &["-g", "--statistics"]);
        assert!(refused.is_err());
    }
}

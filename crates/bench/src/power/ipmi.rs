//! Watts of a host from its management controller, by IPMI: the program `ipmitool`, which reads
//! them through the Data Center Manageability Interface (DCMI 1.5, 6.6.1).

use std::io::ErrorKind;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::Access;

/// A host's controller.
#[derive(Debug)]
pub(super) struct Controller {
    /// The controller's address; none for this host's controller.
    host: Option<String>,
    login: Option<(String, String)>,
}

impl Controller {
    /// The controller at `host`, or this host's.
    ///
    /// # Errors
    ///
    /// When the file of the login cannot be read.
    pub(super) fn open(host: Option<&str>, access: &Access) -> Result<Self> {
        Ok(Self { host: host.map(str::to_owned), login: access.login()? })
    }

    /// Watts now.
    ///
    /// # Errors
    ///
    /// When ipmitool is not installed or fails, or the controller reports no watts.
    pub(super) fn watts(&self) -> Result<f64> {
        let mut command = Command::new("ipmitool");
        if let Some(host) = &self.host {
            command.args(["-I", "lanplus", "-H", host]);
        }
        if let Some((user, password)) = &self.login {
            // In the environment, which other users cannot read, unlike a command line.
            command.args(["-U", user, "-E"]).env("IPMI_PASSWORD", password);
        }
        let output = match command.args(["dcmi", "power", "reading"]).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("ipmitool is not installed: --power ipmi needs it")
            }
            other => other.context("ipmitool")?,
        };
        let text = String::from_utf8_lossy(&output.stdout);
        if let Some(watts) = watts(&text) {
            return Ok(watts);
        }
        let error = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = error.lines().chain(text.lines()).map(str::trim).collect();
        bail!("ipmitool tells no watts: {}", said.join(" ").trim())
    }
}

/// The watts in ipmitool's answer; none if the controller does not measure.
fn watts(text: &str) -> Option<f64> {
    let mut lines = text.lines();
    let reading =
        lines.find_map(|line| line.trim().strip_prefix("Instantaneous power reading:"))?;
    let watts = reading.trim().strip_suffix("Watts")?.trim().parse::<f64>().ok()?;
    (watts > 0.0).then_some(watts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form of ipmitool 1.8.19 (`lib/ipmi_dcmi.c`); not captured from a controller.
    const ANSWER: &str = "
    Instantaneous power reading:                   212 Watts
    Minimum during sampling period:                 18 Watts
    Maximum during sampling period:                468 Watts
    Average power reading over sample period:      205 Watts
    IPMI timestamp:                           Thu Nov 26 00:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated

";

    #[test]
    fn the_instantaneous_reading_is_taken() {
        assert_eq!(watts(ANSWER), Some(212.0));
        assert_eq!(watts(&ANSWER.replace(" 212 W", " 0 W")), None);
        assert_eq!(watts("DCMI request failed because: Invalid command (c1)\n"), None);
    }

    /// This machine may have ipmitool, a controller, both or neither.
    #[test]
    fn a_host_without_a_power_reading_is_an_error() {
        let controller = Controller { host: Some("127.0.0.1".to_owned()), login: None };
        let error = controller.watts().unwrap_err().to_string();
        assert!(error.starts_with("ipmitool"), "{error}");
    }
}

//! Warnings about a certificate that openssl has made.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs, process};

use certs::Warning;

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn an_expired_or_future_certificate_and_a_readable_key_are_reported() {
    let folder = env::temp_dir().join(format!("certs-warnings-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (chain, key) = (folder.join("chain.pem"), folder.join("key.pem"));
    let before = SystemTime::now();
    let words = "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost";
    let mut openssl = Command::new("openssl");
    openssl.args(words.split(' ')).arg("-keyout").arg(&key).arg("-out").arg(&chain);
    assert!(openssl.output().unwrap().status.success());
    let after = SystemTime::now();
    let certificate = certs::certificates(&chain).unwrap().remove(0);

    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let ends = certs::not_after(&certificate).unwrap();
    let expected = seconds(before + 30 * DAY)..=seconds(after + 30 * DAY);
    assert!(expected.contains(&ends), "{ends}, not {expected:?}");

    let at = |now| certs::warnings(&chain, &certificate, &key, now);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(at(after + DAY), []);
    let ended = UNIX_EPOCH + Duration::from_secs(ends);
    assert_eq!(at(ended + DAY), [Warning::Expired(chain.clone(), DAY)]);
    let text = at(ended + DAY)[0].to_string();
    assert!(text.ends_with("expired 24 hours ago; clients that verify it refuse it"), "{text}");
    let begun = ended - 30 * DAY;
    assert_eq!(at(begun - DAY), [Warning::NotYetValid(chain.clone(), DAY)]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(at(after + DAY), [Warning::Readable(key.clone())]);
    fs::remove_dir_all(&folder).unwrap();
}

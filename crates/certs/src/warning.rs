//! Faults of a server's certificate that do not prevent its use.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

/// A fault that clients or the operator must know. Its text begins with the path of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Clients that verify the certificate refuse it for this long.
    Expired(PathBuf, Duration),
    /// Clients that verify the certificate refuse it for this long from now.
    NotYetValid(PathBuf, Duration),
    /// A private key that every user of this machine may read.
    Readable(PathBuf),
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired(path, since) => write!(
                f,
                "{}: the certificate expired {} ago; clients that verify it refuse it",
                path.display(),
                Rough(*since)
            ),
            Self::NotYetValid(path, until) => write!(
                f,
                "{}: the certificate becomes valid in {}; clients that verify it refuse it",
                path.display(),
                Rough(*until)
            ),
            Self::Readable(path) => {
                write!(f, "{}: everybody on this machine may read the private key", path.display())
            }
        }
    }
}

/// A time in the largest unit of which it has two or more.
struct Rough(Duration);

impl fmt::Display for Rough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            secs @ ..120 => write!(f, "{secs} s"),
            secs @ 120..7200 => write!(f, "{} minutes", secs / 60),
            secs @ 7200..172_800 => write!(f, "{} hours", secs / 3600),
            secs => write!(f, "{} days", secs / 86_400),
        }
    }
}

/// The warnings about the server's certificate of `chain` and about the file `key`, at this time.
#[must_use]
pub fn warnings(
    chain: &Path,
    certificate: &CertificateDer<'_>,
    key: &Path,
    now: SystemTime,
) -> Vec<Warning> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let validity = match validity_fault(certificate, now) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => {
            let since = now.saturating_sub(Duration::from_secs(not_after.as_secs()));
            Some(Warning::Expired(chain.to_owned(), since))
        }
        Some(CertificateError::NotValidYetContext { not_before, .. }) => {
            let until = Duration::from_secs(not_before.as_secs()).saturating_sub(now);
            Some(Warning::NotYetValid(chain.to_owned(), until))
        }
        _ => None,
    };
    let readable = files::is_readable_by_all(key).then(|| Warning::Readable(key.to_owned()));
    validity.into_iter().chain(readable).collect()
}

/// The Unix time, in seconds, at which the certificate expires; `None` if it cannot be parsed.
#[must_use]
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<u64> {
    match validity_fault(certificate, Duration::from_secs(u64::MAX))? {
        CertificateError::ExpiredContext { not_after, .. } => Some(not_after.as_secs()),
        _ => None,
    }
}

/// The fault that a client finds at this time. The verifier checks the period of validity before
/// it looks for an issuer, so a store without issuers is enough.
fn validity_fault(certificate: &CertificateDer<'_>, now: Duration) -> Option<CertificateError> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let known = ring::default_provider().signature_verification_algorithms.all;
    let now = UnixTime::since_unix_epoch(now);
    let issuers = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &issuers, &[], now, known) {
        Err(Error::InvalidCertificate(fault)) => Some(fault),
        _ => None,
    }
}

//! TLS for connections to MariaDB and MySQL.

use std::path::PathBuf;

use certs::CertsError;
use mysql_async::SslOpts;

use crate::source::ssl_mode::SslMode;

/// The driver's TLS options; none for a plaintext connection.
///
/// # Errors
///
/// When `issuers` (PEM; Mozilla's list where it is `None`) cannot be read.
pub(super) fn options(
    mode: SslMode,
    issuers: Option<&PathBuf>,
) -> Result<Option<SslOpts>, CertsError> {
    let options = match mode {
        SslMode::Disable => return Ok(None),
        SslMode::Prefer | SslMode::Require => {
            let options = SslOpts::default().with_danger_accept_invalid_certs(true);
            return Ok(Some(options.with_danger_skip_domain_validation(true)));
        }
        // The driver compares the name whenever it verifies: a configuration cannot require less.
        SslMode::VerifyCa | SslMode::VerifyFull => SslOpts::default(),
    };
    let Some(file) = issuers else { return Ok(Some(options)) };
    let roots = certs::certificates(file)?.into_iter();
    let roots = roots.map(|root| root.to_vec().into()).collect();
    Ok(Some(options.with_disable_built_in_roots(true).with_root_certs(roots)))
}

//! Certificates for the tests, made by OpenSSL: two authorities, a server, and valid, expired and
//! foreign clients.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A separate folder for each test, removed at the end. The server can read it, even as another
/// user.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        static TURN: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the numbers differ and order nothing.
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("security-{}-{turn}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// The path of a file of this name.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file atomically. Returns its path.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(format!("{path}.part"), text).unwrap();
        fs::rename(format!("{path}.part"), &path).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The output of a program, which must succeed.
#[track_caller]
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?} {}:\n{text}", output.status);
    text
}

/// The files of one test, all in PEM: `NAME.crt` and `NAME.key`.
#[derive(Debug)]
pub struct Certificates {
    /// The folder of the files.
    pub folder: Folder,
}

impl Certificates {
    /// Creates the files.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it runs programs")]
    pub fn new() -> Self {
        let made = Self { folder: Folder::new() };
        made.authority("ca");
        made.authority("other-ca");
        made.issue("server", "ca");
        made.issue("client", "ca");
        made.issue("foreign", "other-ca");
        made.issue_of_2023("expired", "ca");
        made
    }

    /// The path of a file of this name.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        self.folder.path(name)
    }

    /// A server's options for these certificates, followed by `more` TLS options.
    #[must_use]
    pub fn options(&self, more: &str) -> String {
        let (cert, key) = (self.path("server.crt"), self.path("server.key"));
        let comma = if more.is_empty() { "" } else { "," };
        format!("ssl_chain_cert={cert},ssl_key={key}{comma}{more}")
    }

    /// A client that trusts one authority and has a certificate or none.
    #[must_use]
    pub fn client(&self, trusts: &str, own: Option<&str>) -> Arc<ClientConfig> {
        let cert =
            |name: &str| CertificateDer::from_pem_file(self.path(&format!("{name}.crt"))).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert(trusts)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key")));
                builder.with_client_auth_cert(vec![cert(name)], key.unwrap()).unwrap()
            }
        })
    }

    fn authority(&self, name: &str) {
        let (key, cert) = (self.path(&format!("{name}.key")), self.path(&format!("{name}.crt")));
        let subject = format!("/CN={name}");
        let words = ["req", "-x509", "-nodes", "-days", "3650", "-subj", &subject, "-newkey", "ec"];
        let more = ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key, "-out", &cert];
        output(Command::new("openssl").args(words).args(more));
    }

    /// Creates a key and a certificate by `issuer`, valid for thirty days from now.
    pub fn issue(&self, name: &str, issuer: &str) {
        let names = self.request(name);
        let file = |name: &str, kind: &str| self.path(&format!("{name}.{kind}"));
        let (ca, ca_key) = (file(issuer, "crt"), file(issuer, "key"));
        let words = ["x509", "-req", "-days", "30", "-CAcreateserial", "-extfile", &names];
        let files = ["-in", &file(name, "csr"), "-out", &file(name, "crt")];
        output(
            Command::new("openssl").args(words).args(files).args(["-CA", &ca, "-CAkey", &ca_key]),
        );
    }

    /// The same, valid for a month in the past.
    fn issue_of_2023(&self, name: &str, issuer: &str) {
        let names = self.request(name);
        let file = |name: &str, kind: &str| self.path(&format!("{name}.{kind}"));
        let index = self.folder.write("index", "");
        let new = self.path("");
        let settings = self.folder.write(
            "ca.conf",
            &format!(
                "[ca]\ndefault_ca=own\n[own]\ndatabase={index}\nnew_certs_dir={new}\nrand_serial=yes\n\
                 default_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
            ),
        );
        let (ca, ca_key) = (file(issuer, "crt"), file(issuer, "key"));
        let words = ["ca", "-batch", "-notext", "-config", &settings, "-extfile", &names];
        let dates = ["-startdate", "20230101000000Z", "-enddate", "20230131000000Z"];
        let files = ["-in", &file(name, "csr"), "-out", &file(name, "crt")];
        let own = ["-cert", &ca, "-keyfile", &ca_key];
        output(Command::new("openssl").args(words).args(dates).args(files).args(own));
    }

    /// Creates a key and a certificate request. Returns the file with its names.
    fn request(&self, name: &str) -> String {
        let file = |name: &str, kind: &str| self.path(&format!("{name}.{kind}"));
        let (key, request) = (file(name, "key"), file(name, "csr"));
        let subject = format!("/CN={name}");
        let words = ["req", "-new", "-nodes", "-subj", &subject, "-newkey", "ec"];
        let more = ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key, "-out", &request];
        output(Command::new("openssl").args(words).args(more));
        // The server may run as another user.
        output(Command::new("chmod").args(["644", &key]));
        self.folder.write(
            &format!("{name}.ext"),
            "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n",
        )
    }
}

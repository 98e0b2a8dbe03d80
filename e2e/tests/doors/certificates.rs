//! Certificates for the tests, made by OpenSSL: two authorities, a server, and clients good, expired and of the other one.

use std::process::Command;

use crate::{Folder, output};

/// The files of one test, all in PEM: `NAME.crt` and `NAME.key`.
pub(crate) struct Certificates {
    pub(crate) folder: Folder,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let made = Self { folder: Folder::new() };
        made.authority("ca");
        made.authority("other-ca");
        made.issue("server", "ca", None);
        made.issue("client", "ca", None);
        made.issue("stranger", "other-ca", None);
        made.issue("expired", "ca", Some("3 years ago"));
        made
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path(name)
    }

    /// The options of a server with these certificates, with what else is wanted of TLS.
    pub(crate) fn options(&self, more: &str) -> String {
        let (cert, key) = (self.path("server.crt"), self.path("server.key"));
        let comma = if more.is_empty() { "" } else { "," };
        format!("ssl_chain_cert={cert},ssl_key={key}{comma}{more}")
    }

    fn authority(&self, name: &str) {
        let (key, cert) = (self.path(&format!("{name}.key")), self.path(&format!("{name}.crt")));
        let subject = format!("/CN={name}");
        let words = ["req", "-x509", "-nodes", "-days", "3650", "-subj", &subject, "-newkey", "ec"];
        let more = ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key, "-out", &cert];
        output(Command::new("openssl").args(words).args(more));
    }

    /// Makes a key, and has `issuer` sign for it; `when` is the date on which that happened, for thirty days.
    pub(crate) fn issue(&self, name: &str, issuer: &str, when: Option<&str>) {
        let file = |name: &str, kind: &str| self.path(&format!("{name}.{kind}"));
        let (key, request, cert) = (file(name, "key"), file(name, "csr"), file(name, "crt"));
        let subject = format!("/CN={name}");
        let words = ["req", "-new", "-nodes", "-subj", &subject, "-newkey", "ec"];
        let more = ["-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", &key, "-out", &request];
        output(Command::new("openssl").args(words).args(more));
        // The server may run as another user.
        output(Command::new("chmod").args(["644", &key]));
        let names = self.folder.write(
            &format!("{name}.ext"),
            "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n",
        );
        let mut command = match when {
            Some(when) => {
                let mut command = Command::new("faketime");
                command.args([when, "openssl"]);
                command
            }
            None => Command::new("openssl"),
        };
        let (ca, ca_key) = (file(issuer, "crt"), file(issuer, "key"));
        command.args(["x509", "-req", "-days", "30", "-CAcreateserial", "-in", &request]);
        command.args(["-CA", &ca, "-CAkey", &ca_key, "-extfile", &names, "-out", &cert]);
        output(&mut command);
    }
}

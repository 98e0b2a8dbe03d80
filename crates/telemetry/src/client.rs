//! One request to a collector.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use hostport::without_login;
use prost::Message;
use ureq::Agent;
use ureq::http::{Response as Answer, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::message::Response;
use crate::settings::Target;

/// The maximum bytes read of an answer.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// The maximum bytes of the file of issuers.
const PEM_BYTES_MAX: u64 = 16 << 20;

/// The connection to a collector for one signal. Connections are kept between requests.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    target: Target,
}

/// The collector's response to a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// It accepted all but this number of points or spans, for this reason.
    Taken(u64, String),
    /// It may accept the same later, after this time if it gives one.
    Later(Option<Duration>, String),
    /// It will not accept this.
    Refused(String),
}

impl Client {
    /// A client for `target`.
    ///
    /// # Errors
    ///
    /// Fails if the file of issuers cannot be read or contains none.
    pub(crate) fn new(target: Target) -> io::Result<Self> {
        let mut tls = TlsConfig::builder();
        if let Some(path) = &target.certificate {
            let failed = |what: String| io::Error::other(format!("{}: {what}", path.display()));
            let text =
                files::read(path, PEM_BYTES_MAX).map_err(|error| failed(error.to_string()))?;
            let mut issuers = Vec::new();
            for item in parse_pem(&text) {
                if let PemItem::Certificate(issuer) =
                    item.map_err(|error| failed(error.to_string()))?
                {
                    issuers.push(issuer);
                }
            }
            if issuers.is_empty() {
                return Err(failed("it holds no certificate".to_owned()));
            }
            tls = tls.root_certs(RootCerts::new_with_certs(&issuers));
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls.build())
            .user_agent(concat!("holdall/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Self { agent, target })
    }

    /// The address for people, without a login.
    pub(crate) fn shown_url(&self) -> Cow<'_, str> {
        without_login(&self.target.url)
    }

    /// Sends a message, in at most `patience` if that is less than the target's timeout.
    pub(crate) fn send(&self, message: &[u8], patience: Duration) -> Outcome {
        let timeout = self.target.timeout.min(patience);
        let mut request = self
            .agent
            .post(&self.target.url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/x-protobuf");
        for (name, value) in &self.target.headers {
            request = request.header(name, value);
        }
        match request.send(message) {
            Ok(answer) => judge(answer),
            Err(error) => {
                // Some errors contain the address.
                let why = error.to_string().replace(&self.target.url, &self.shown_url());
                Outcome::Later(None, why)
            }
        }
    }
}

/// The statuses after which the protocol lets a client send again.
const RETRYABLE: [StatusCode; 4] = [
    StatusCode::TOO_MANY_REQUESTS,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
];

fn judge(mut answer: Answer<ureq::Body>) -> Outcome {
    let status = answer.status();
    let retry_after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let asked = retry_after.and_then(|secs| secs.trim().parse().ok()).map(Duration::from_secs);
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
    if RETRYABLE.contains(&status) {
        return Outcome::Later(asked, format!("status {status}"));
    }
    if !status.is_success() {
        return Outcome::Refused(format!("status {status}"));
    }
    let response = body.ok().and_then(|body| Response::decode(&body[..]).ok()).unwrap_or_default();
    let partial = response.partial_success.unwrap_or_default();
    Outcome::Taken(u64::try_from(partial.rejected).unwrap_or(0), partial.error_message)
}

//! TLS and credentials for the place of a remote configuration.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use crate::fleet::stores::driver::{Login, Password};
use crate::transport::net::Protocol;
use crate::transport::net::tls::{CertificateProblem, ClientTls, ServerCertificate};

/// Files about a remote configuration, as the command line names them.
#[derive(Clone, Debug, Default)]
pub struct RemoteOptions {
    /// TLS to its servers.
    pub tls: TlsFiles,
    /// A file with `user:password`; otherwise the environment variable `WEIR_CONFIG_LOGIN` counts.
    pub login: Option<PathBuf>,
    /// A file with a bearer token for HTTPS; otherwise the environment variable `WEIR_CONFIG_TOKEN` counts.
    pub token: Option<PathBuf>,
    /// The folder of relative paths in the configuration; otherwise the working directory.
    pub folder: Option<PathBuf>,
}

/// Files in PEM for TLS to a server.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// The CA certificates; otherwise those of the system count.
    pub authorities: Option<PathBuf>,
    /// The client certificate and its private key.
    pub own: Option<(PathBuf, PathBuf)>,
}

const LOGIN_VARIABLE: &str = "WEIR_CONFIG_LOGIN";
const TOKEN_VARIABLE: &str = "WEIR_CONFIG_TOKEN";

impl TlsFiles {
    /// Whether any file is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.authorities.is_none() && self.own.is_none()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// The file that cannot be used.
    pub(crate) fn read(&self, protocol: Protocol) -> Result<ClientTls, String> {
        let read = |file: &Path| fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()));
        let authorities = self.authorities.as_deref().map(read).transpose()?;
        let own = match &self.own {
            Some((cert, key)) => {
                let own = ServerCertificate::new(&read(cert)?, &read(key)?);
                Some(own.map_err(|(CertificateProblem::Certificate(why) | CertificateProblem::Key(why))| {
                    format!("the client certificate: {why}")
                })?)
            }
            None => None,
        };
        ClientTls::new(authorities.as_deref(), own, protocol).map_err(|error| format!("the CA certificates: {error}"))
    }
}

impl RemoteOptions {
    /// User and password; none of them if there are no credentials.
    pub(super) fn login(&self) -> Result<Login, String> {
        let Some(text) = secret("the login", self.login.as_deref(), LOGIN_VARIABLE)? else {
            return Ok(Login::default());
        };
        let (user, password) = text.split_once(':').ok_or("the login is not `user:password`")?;
        Ok(Login { user: Some(user.into()), password: Some(Password::new(password)) })
    }

    /// The field `Authorization`, from the token or from user and password.
    pub(super) fn authorization(&self) -> Result<Option<HeaderValue>, String> {
        let token = secret("the token", self.token.as_deref(), TOKEN_VARIABLE)?;
        let text = match (token, self.login()?) {
            (Some(token), _) => format!("Bearer {token}"),
            (None, Login { user: Some(user), password: Some(password) }) => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.reveal())))
            }
            (None, _) => return Ok(None),
        };
        let mut value = HeaderValue::try_from(text).map_err(|_| "the token is not a valid header value")?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// The text of a file or of an environment variable, without white space at its end.
fn secret(what: &str, file: Option<&Path>, variable: &str) -> Result<Option<String>, String> {
    let text = match file {
        Some(file) => {
            Some(fs::read_to_string(file).map_err(|error| format!("cannot read {what}, {}: {error}", file.display()))?)
        }
        None => std::env::var(variable).ok(),
    };
    Ok(text.map(|text| text.trim_end().to_owned()))
}

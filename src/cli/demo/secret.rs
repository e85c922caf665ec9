//! The secret of a demo, and the tokens that it signs.

use std::error::Error;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::json;

use crate::base::time::system_now;
use crate::config::Origin;

/// The environment variable of the configuration. The demo supplies its value.
const SECRET_NAME: &str = "WEIR_DEMO_SECRET";
/// The length of the hash (RFC 7518, section 3.2).
const SECRET_BYTES: usize = 32;
const TOKEN_LIFE_S: u64 = 24 * 3600;

/// The configuration `text` of a demo with its secret.
pub(super) fn origin(text: String, secret: &Secret) -> Origin {
    Origin::Bytes {
        bytes: text.into_bytes().into(),
        name: "demo".into(),
        folder: Path::new("").into(),
        variables: [(SECRET_NAME.to_owned(), secret.text.clone())].into(),
    }
}

/// The secret that signs the tokens of this run.
pub(super) struct Secret {
    text: String,
}

impl Secret {
    pub(super) fn random() -> Result<Self, Box<dyn Error>> {
        let mut bytes = [0; SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        Ok(Self { text: URL_SAFE_NO_PAD.encode(bytes) })
    }

    /// A token of a seller, valid for a day.
    pub(super) fn token(&self, seller: u64) -> Result<String, Box<dyn Error>> {
        let expires = system_now().as_secs() + TOKEN_LIFE_S;
        let head = json!({ "alg": "HS256", "typ": "JWT" });
        let claims = json!({ "sellerId": seller, "exp": expires });
        let signed = [head, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let key = EncodingKey::from_secret(self.text.as_bytes())?;
        let signer = (DEFAULT_PROVIDER.signer_factory)(&Algorithm::HS256, &key)?;
        let signature = signer.try_sign(signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

//! One order: the account, the challenges, and the certificate.

use std::fmt::Display;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order,
    OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio::task::spawn_blocking;

use super::client::Client;
use super::files::Files;
use crate::transport::net::tls::{AcmeSettings, ServerCertificate};

/// The polls of an order: from a quarter of a second on, each later than the one before, for at most two minutes.
const POLLS: RetryPolicy = RetryPolicy::new().backoff(1.5).timeout(Duration::from_mins(2));

/// The error of an account that the authority does not know (RFC 8555, section 6.7).
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Orders a certificate. Gives the answers to its challenges to `answer`. Returns the certificate and its key in PEM.
///
/// # Errors
/// Why there is no certificate.
pub(super) async fn order(
    settings: &AcmeSettings,
    files: &Files,
    client: impl Fn() -> Client,
    answer: impl Fn(Vec<ServerCertificate>) -> Result<(), String>,
) -> Result<String, String> {
    let identifiers: Vec<_> = settings.domains.iter().cloned().map(Identifier::Dns).collect();
    let account = account(settings, files, &client, false).await?;
    let order = match account.new_order(&NewOrder::new(&identifiers)).await {
        Err(Error::Api(problem)) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
            tracing::warn!("the authority does not know the ACME account; Weir creates a new one");
            let account = self::account(settings, files, &client, true).await?;
            account.new_order(&NewOrder::new(&identifiers)).await
        }
        order => order,
    };
    let mut order = order.map_err(text)?;
    answer(answers(&mut order).await?)?;
    begin_validations(&mut order).await?;
    match order.poll_ready(&POLLS).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) => return Err(refusal(&mut order, "the order is invalid".to_owned()).await),
        Err(Error::Api(problem)) => return Err(refusal(&mut order, in_one_line(&problem)).await),
        Err(error) => return Err(text(error)),
    }
    let key = order.finalize().await.map_err(text)?;
    let chain = order.poll_certificate(&POLLS).await.map_err(text)?;
    Ok(format!("{}\n{key}", chain.trim_end()))
}

/// The stored account, or a new one, which is stored before it is used.
async fn account(
    settings: &AcmeSettings,
    files: &Files,
    client: &impl Fn() -> Client,
    is_new: bool,
) -> Result<Account, String> {
    let builder = || Account::builder_with_http(Box::new(client()));
    let stored = if is_new { Ok(None) } else { in_background(files, Files::account).await };
    match stored {
        Ok(Some(credentials)) => return builder().from_credentials(credentials).await.map_err(text),
        Err(error) => tracing::error!(%error, "the stored ACME account cannot be used; Weir creates a new one"),
        Ok(None) => {}
    }
    let contact: Vec<_> = settings.contact.iter().map(String::as_str).collect();
    let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
    let external = settings.external.as_ref();
    let external = external.map(|external| ExternalAccountKey::new(external.key_id.clone(), &external.key));
    let directory = settings.directory.to_string();
    let (account, credentials) = builder().create(&new, directory, external.as_ref()).await.map_err(text)?;
    in_background(files, move |files| files.save_account(&credentials)).await?;
    Ok(account)
}

/// The certificates that answer the open challenges.
async fn answers(order: &mut Order) -> Result<Vec<ServerCertificate>, String> {
    let (mut answers, mut authorizations) = (Vec::new(), order.authorizations());
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(text)?;
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => return Err(format!("the authorization is {status:?}")),
        }
        let challenge = authorization.challenge(ChallengeType::TlsAlpn01);
        let challenge = challenge.ok_or("the authority does not offer the challenge tls-alpn-01")?;
        let digest = challenge.key_authorization().digest();
        answers.push(challenge_certificate(&challenge.identifier().to_string(), digest.as_ref())?);
    }
    Ok(answers)
}

/// The certificate that answers a challenge (RFC 8737, section 3).
fn challenge_certificate(host: &str, digest: &[u8]) -> Result<ServerCertificate, String> {
    let made = || -> Result<_, rcgen::Error> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
    };
    let (certificate, key) = made().map_err(|error| error.to_string())?;
    ServerCertificate::of_challenge(certificate.as_bytes(), key.as_bytes()).map_err(|error| error.to_string())
}

/// Asks for the validation of each open challenge.
async fn begin_validations(order: &mut Order) -> Result<(), String> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization.map_err(text)?;
        if authorization.status == AuthorizationStatus::Pending
            && let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01)
        {
            let host = challenge.identifier().to_string();
            let begun = challenge.set_ready().await;
            begun.map_err(|error| format!("the validation of {host} failed: {}", text(error)))?;
        }
    }
    Ok(())
}

/// Why the authority refuses an order: the first failed validation, else `otherwise`.
async fn refusal(order: &mut Order, otherwise: String) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        let host = state.identifier().to_string();
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            return format!("the validation of {host} failed: {}", in_one_line(problem));
        }
    }
    otherwise
}

/// Runs `work` on the files on a thread on which the disk may be slow.
pub(super) async fn in_background<T: Send + 'static>(
    files: &Files,
    work: impl FnOnce(&Files) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let files = files.clone();
    spawn_blocking(move || work(&files)).await.map_err(|error| error.to_string())?
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn text(error: Error) -> String {
    in_one_line(&error)
}

/// The text of an error, which may be that of the authority, without control characters, and cut.
fn in_one_line(error: &impl Display) -> String {
    error.to_string().chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect()
}

/// Characters of an error.
const TEXT_MAX: usize = 500;

//! Names in certificates: the hosts of a server certificate, and the identity of a client certificate.
//!
//! Client certificates are verified before they come here.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

use crate::base::time::Timestamp;
use crate::engine::policy::Certificate;

/// The hosts of a certificate, in lower case, `*.` included, and the first and the last moment at which it is valid.
/// None if `der` is not a certificate.
pub(super) fn of_server(der: &CertificateDer<'_>) -> Option<(Vec<String>, [Timestamp; 2])> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    let at =
        |time: ASN1Time| Timestamp::from_ns(u64::try_from(time.timestamp()).unwrap_or(0).saturating_mul(SECOND_NS));
    let valid = [certificate.validity().not_before, certificate.validity().not_after].map(at);
    Some((alternative_names(&certificate).iter().filter_map(dns).collect(), valid))
}

const SECOND_NS: u64 = 1_000_000_000;

/// The identity of a client certificate. None if `der` is not a certificate.
pub(super) fn of_client(der: &CertificateDer<'_>) -> Option<Certificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let texts = |names: &mut dyn Iterator<Item = &str>| names.filter(|name| !name.is_empty()).map(Into::into).collect();
    let names = alternative_names(&certificate);
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase().into()),
        _ => None,
    };
    let uri = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some((*uri).into()),
        _ => None,
    };
    Some(Certificate {
        subject_cn: texts(&mut certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok())),
        san_dns: names.iter().filter_map(dns).collect(),
        san_uri: names.iter().filter_map(uri).collect(),
    })
}

fn alternative_names<'c>(certificate: &'c X509Certificate<'_>) -> &'c [GeneralName<'c>] {
    let found = certificate.subject_alternative_name().ok().flatten();
    found.map_or(&[], |extension| &extension.value.general_names)
}

//! Names in certificates: the hosts of a server certificate, and the identity of a client certificate.
//!
//! Client certificates are verified before they come here.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;
use x509_parser::x509::AttributeTypeAndValue;

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
    let names = alternative_names(&certificate);
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    let uri = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    };
    Some(Certificate {
        subject_cn: not_empty(certificate.subject().iter_common_name().map(text)),
        san_dns: not_empty(names.iter().filter_map(dns)),
        san_uri: not_empty(names.iter().filter_map(uri)),
    })
}

fn not_empty(names: impl Iterator<Item = String>) -> Vec<Arc<str>> {
    names.filter(|name| !name.is_empty()).map(Into::into).collect()
}

/// The text of a name. Of types other than UTF-8, ASCII and UTF-16 each byte is a character, so that two names have two
/// texts.
fn text(name: &AttributeTypeAndValue<'_>) -> String {
    let utf16 = || name.attr_value().as_bmpstring().map(|text| text.string());
    let latin1 = |_| name.as_slice().iter().map(|&byte| char::from(byte)).collect();
    name.as_str().map(str::to_owned).or_else(|_| utf16()).unwrap_or_else(latin1)
}

fn alternative_names<'c>(certificate: &'c X509Certificate<'_>) -> &'c [GeneralName<'c>] {
    let found = certificate.subject_alternative_name().ok().flatten();
    found.map_or(&[], |extension| &extension.value.general_names)
}

#[cfg(test)]
mod tests {
    use rcgen::string::BmpString;
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};

    use super::*;

    #[test]
    fn names_of_clients() {
        let bmp = |text: &str| DnValue::BmpString(BmpString::try_from(text).unwrap());
        let utf8 = |text: &str| DnValue::Utf8String(text.into());
        let uri = |text: &str| SanType::URI(text.try_into().unwrap());
        let dns = |text: &str| SanType::DnsName(text.try_into().unwrap());
        let common = || DnType::CustomDnType(vec![2, 5, 4, 3]);
        for (subject, alternative, expected) in [
            (vec![(DnType::CommonName, utf8("Acme, Inc."))], vec![], [&["Acme, Inc."][..], &[], &[]]),
            (vec![(DnType::CommonName, bmp("Ämter"))], vec![], [&["Ämter"], &[], &[]]),
            (vec![(DnType::CommonName, utf8("a")), (common(), bmp("b"))], vec![], [&["a", "b"], &[], &[]]),
            (vec![(DnType::CommonName, utf8(""))], vec![uri("")], [&[], &[], &[]]),
            (vec![], vec![uri(""), uri("urn:A"), dns("A.test")], [&[], &["a.test"], &["urn:A"]]),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            for (kind, value) in subject {
                params.distinguished_name.push(kind, value);
            }
            params.subject_alt_names = alternative;
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            let Certificate { subject_cn, san_dns, san_uri } = of_client(certificate.der()).unwrap();
            let found = [subject_cn, san_dns, san_uri];
            let found = found.each_ref().map(|names| names.iter().map(|name| &**name).collect::<Vec<_>>());
            assert_eq!(found, expected.map(<[_]>::to_vec));
        }
    }
}

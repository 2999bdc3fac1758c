//! Certificates in a directory, as the mounted Secrets have them.

use std::fs;
use std::path::Path;

use etcd_operator_core::etcd_config::tls_file;
use etcd_operator_core::tls::{AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, Purpose};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    pub fn generate() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Writes what one Secret has: a certificate for all these names, its key, and this authority.
    pub fn issue(&self, tls_dir: &Path, purpose: Purpose, names: &[String]) {
        let mut params = CertificateParams::new(names).expect("names");
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        let directory = tls_dir.join(purpose.directory().expect("pods have it"));
        fs::create_dir_all(directory).expect("a directory");
        let texts = [
            (CERTIFICATE_KEY, certificate),
            (PRIVATE_KEY, key.serialize_pem()),
            (AUTHORITY_KEY, self.certificate.clone()),
        ];
        for (file, text) in texts {
            let path = tls_file(&tls_dir.display().to_string(), purpose, file);
            fs::write(path, text).expect("a file");
        }
    }
}

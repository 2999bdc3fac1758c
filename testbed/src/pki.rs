//! The certificates of one instance: one throw-away authority signs them all.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::layout::Layout;

/// Who a certificate is for: its common name and, for Kubernetes, its group.
pub struct Subject<'a> {
    pub name: &'a str,
    pub group: Option<&'a str>,
}

/// An authority whose files lie in the instance's directory.
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn create(layout: &Layout) -> Result<Self> {
        let dir = layout.pki();
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, "testbed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        write_pair(&dir, "ca", &certificate.pem(), &key)?;
        Ok(Self { dir, issuer: Issuer::new(params, key) })
    }

    /// Writes `NAME.crt` and `NAME.key`, good for clients and for servers under the given names.
    pub fn issue(&self, name: &str, subject: Subject<'_>, alternative_names: &[String]) -> Result<()> {
        let mut params = CertificateParams::new(alternative_names)?;
        params.distinguished_name.push(DnType::CommonName, subject.name);
        if let Some(group) = subject.group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        write_pair(&self.dir, name, &certificate.pem(), &key)
    }

    /// Writes a kubeconfig with a client certificate of its own.
    pub fn issue_client(
        &self,
        kubeconfig: &Path,
        server: &str,
        name: &str,
        subject: Subject<'_>,
    ) -> Result<()> {
        self.issue(name, subject, &[])?;
        let dir = self.dir.display();
        let text = format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters: [{{name: testbed, cluster: {{server: \"{server}\", certificate-authority: {dir}/ca.crt}}}}]\n\
             users: [{{name: {name}, user: {{client-certificate: {dir}/{name}.crt, client-key: {dir}/{name}.key}}}}]\n\
             contexts: [{{name: testbed, context: {{cluster: testbed, user: {name}}}}}]\n\
             current-context: testbed\n"
        );
        std::fs::write(kubeconfig, text).with_context(|| format!("cannot write {}", kubeconfig.display()))
    }

    /// Writes the key pair that signs service account tokens.
    pub fn service_account_keys(&self) -> Result<()> {
        let key = KeyPair::generate()?;
        write(&self.dir.join("service-account.key"), &key.serialize_pem())?;
        write(&self.dir.join("service-account.pub"), &key.public_key_pem())
    }
}

fn write_pair(dir: &Path, name: &str, certificate: &str, key: &KeyPair) -> Result<()> {
    write(&dir.join(format!("{name}.crt")), certificate)?;
    write(&dir.join(format!("{name}.key")), &key.serialize_pem())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

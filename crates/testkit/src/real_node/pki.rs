//! The certificate authority of a real node, and a certificate and kubeconfig file for each of its programs.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use super::NODE;
use super::namespaces::ADDRESS;
use super::settings::{API_PORT, SERVICE_ADDRESS};

/// Common name and organisation of each identity.
const IDENTITIES: [(&str, &str, &str); 7] = [
    ("apiserver", "kube-apiserver", ""),
    ("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
    ("admin", "admin", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
    ("proxy", "system:kube-proxy", ""),
    ("kubelet", "system:node:node-1", "system:nodes"),
];

/// Writes everything into the folder `pki`, and a kubeconfig file for each identity.
pub fn write(dir: &Path) -> Result<()> {
    let pki = dir.join("pki");
    std::fs::create_dir_all(&pki)?;
    let put = |name: &str, text: &str| {
        std::fs::write(pki.join(name), text).with_context(|| format!("writing {name} of {}", pki.display()))
    };
    let accounts = KeyPair::generate()?;
    put("accounts.key", &accounts.serialize_pem())?;
    put("accounts.pub", &accounts.public_key_pem())?;

    let mut authority = params("ca", "")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    put("ca.crt", &authority.self_signed(&key)?.pem())?;
    let issuer = Issuer::new(authority, key);

    for (name, common_name, organisation) in IDENTITIES {
        let mut params = params(common_name, organisation)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        put(&format!("{name}.crt"), &params.signed_by(&key, &issuer)?.pem())?;
        put(&format!("{name}.key"), &key.serialize_pem())?;
        kubeconfig(
            dir,
            name,
            &format!("https://{ADDRESS}:{API_PORT}"),
            &kubeconfig_path(dir, name),
        )?;
    }
    Ok(())
}

fn params(common_name: &str, organisation: &str) -> Result<CertificateParams> {
    let names = [
        "127.0.0.1",
        ADDRESS,
        SERVICE_ADDRESS,
        "localhost",
        NODE,
        "kubernetes.default.svc",
    ];
    let mut params = CertificateParams::new(names.map(str::to_owned))?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, common_name);
    if !organisation.is_empty() {
        subject.push(DnType::OrganizationName, organisation);
    }
    params.distinguished_name = subject;
    Ok(params)
}

/// The kubeconfig file of an identity, for use inside.
pub fn kubeconfig_path(dir: &Path, identity: &str) -> PathBuf {
    dir.join(format!("{identity}.kubeconfig"))
}

/// The administrator's, for use inside.
pub fn inside_path(dir: &Path) -> PathBuf {
    kubeconfig_path(dir, "admin")
}

/// The administrator's, for use outside by the process that holds the passage.
pub fn outside_path(dir: &Path) -> PathBuf {
    dir.join(format!("outside-{}.kubeconfig", std::process::id()))
}

/// Writes the administrator's for use outside.
pub fn outside_kubeconfig(dir: &Path, server: &str) -> Result<PathBuf> {
    let path = outside_path(dir);
    kubeconfig(dir, "admin", server, &path)?;
    Ok(path)
}

fn kubeconfig(dir: &Path, identity: &str, server: &str, path: &Path) -> Result<()> {
    let file = |name: String| dir.join("pki").join(name);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "node", "cluster": {
            "server": server,
            "certificate-authority": file("ca.crt".to_owned()),
        }}],
        "users": [{ "name": identity, "user": {
            "client-certificate": file(format!("{identity}.crt")),
            "client-key": file(format!("{identity}.key")),
        }}],
        "contexts": [{ "name": "node", "context": { "cluster": "node", "user": identity }}],
        "current-context": "node",
    });
    std::fs::write(path, serde_json::to_vec_pretty(&config)?).with_context(|| format!("writing {}", path.display()))
}

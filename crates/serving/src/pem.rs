//! PEM out. Reading is rustls-pki-types' part, which has no writer.

use k8s_openapi::ByteString;

/// A certificate in PEM.
pub fn certificate(der: &[u8]) -> String {
    // The only base64 encoder in the tree that is ours to use is that of Kubernetes' byte strings.
    let encoded = serde_json::to_value(ByteString(der.to_vec())).unwrap_or_default();
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in encoded.as_str().unwrap_or_default().as_bytes().chunks(64) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

//! What to do about the certificates, decided from what was seen. Pure: the caller reads, writes and tells the time.
//!
//! The order is always the same, so that at no moment anybody serves what the bundles do not trust:
//! 1. a new authority is put beside the old one and published in both bundles;
//! 2. once it has been there for a while, it issues the serving certificate and becomes the authority;
//! 3. once every replica serves that certificate, the old authority leaves the bundles.
//!
//! A first start is the same without an old one, and without waiting. Nothing that was begun is undone: a replica whose
//! clock differs, or a second one that believes it holds the Lease, carries on where the other stopped.

use jiff::{SignedDuration, Timestamp};

use super::{
    issue::Issuing,
    material::{Authority, Certificate, Material, Pair},
    trust,
};

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The time, by the clock of the API server.
    pub now: Timestamp,
    /// What the Secret holds.
    pub secret: &'a Material,
    /// What this replica last used, if it has any.
    pub memory: Option<&'a Material>,
    /// What both bundles trust.
    pub published: &'a [Certificate],
    /// For how long the issuer-to-be has been in both bundles; none if it is not.
    pub published_for: Option<SignedDuration>,
    /// For how long every replica has told that it serves the certificate in the Secret; none if one does not.
    pub served_for: Option<SignedDuration>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing, for now; the reason is for the log.
    Wait(&'static str),
    /// Write this into the Secret, for this reason, and publish its bundle.
    Write(Box<Material>, &'static str),
}

/// Decides the next step. `settle` is how long a bundle needs to reach every API server.
pub fn next_step(seen: Seen<'_>, issuing: &Issuing, settle: SignedDuration) -> Result<Step, rcgen::Error> {
    let Seen { now, secret, .. } = seen;
    let write = |material, why| Ok(Step::Write(Box::new(material), why));
    if let Some(memory) = restorable(&seen, issuing) {
        return write(
            memory.clone(),
            "the Secret was emptied or damaged; what is in use is written back",
        );
    }
    let issuer = secret
        .ca
        .as_ref()
        .filter(|ca| ca.key.is_some() && ca.certificate.is_valid(now));
    let due = issuer.is_none_or(|ca| now >= ca.certificate.renewal());
    let next = secret
        .next
        .as_ref()
        .filter(|next| next.key.is_some() && next.certificate.is_valid(now));
    let Some(next) = next else {
        if due {
            let next = Some(issuing.authority(now)?);
            let material = Material {
                next,
                previous: anchor(&seen, issuing),
                ..secret.clone()
            };
            return write(material, "a new authority is introduced");
        }
        return tend(&seen, issuer, issuing, settle);
    };
    // Somebody may rely on what the bundles trust now: then the newcomer must have reached every API server first.
    let newcomer_alone = seen
        .published
        .iter()
        .all(|certificate| *certificate == next.certificate);
    match seen.published_for {
        None => Ok(Step::Wait("the new authority is not in both bundles yet")),
        Some(passed) if passed < settle && !newcomer_alone => {
            Ok(Step::Wait("the new authority was published a moment ago"))
        }
        Some(_) => {
            let material = Material {
                serving: Some(issuing.pair(next, now)?),
                ca: Some(next.clone()),
                next: None,
                previous: anchor(&seen, issuing),
            };
            write(material, "the new authority issues the serving certificate")
        }
    }
}

/// The steps while the authority is good: renew what it issued, let its predecessor go.
fn tend(
    seen: &Seen<'_>,
    issuer: Option<&Authority>,
    issuing: &Issuing,
    settle: SignedDuration,
) -> Result<Step, rcgen::Error> {
    let Seen { now, secret, .. } = *seen;
    let Some(issuer) = issuer else {
        return Ok(Step::Wait("no authority"));
    };
    let good = secret
        .serving
        .as_ref()
        .filter(|pair| now < pair.leaf.renewal() && serves_all_names(pair, &[&issuer.certificate], issuing, now));
    if good.is_none() {
        if !seen.published.contains(&issuer.certificate) {
            return Ok(Step::Wait("the authority is not in both bundles yet"));
        }
        let serving = Some(issuing.pair(issuer, now)?);
        return Ok(Step::Write(
            Box::new(Material {
                serving,
                ..secret.clone()
            }),
            "the serving certificate is renewed",
        ));
    }
    if let Some(previous) = &secret.previous {
        let left = seen.served_for.is_some_and(|passed| passed >= settle);
        if left || now >= previous.not_after {
            let material = Material {
                previous: None,
                ..secret.clone()
            };
            return Ok(Step::Write(Box::new(material), "the old authority is dropped"));
        }
        return Ok(Step::Wait("a replica may still serve under the old authority"));
    }
    Ok(Step::Wait("nothing is due"))
}

/// What this replica uses, if the Secret holds nothing that could be used and the replica's own is good.
fn restorable<'a>(seen: &Seen<'a>, issuing: &Issuing) -> Option<&'a Material> {
    let memory = seen.memory?;
    let pair = memory.serving.as_ref()?;
    let is_lost = seen.secret.serving.is_none() && seen.secret.anchors().is_empty();
    let is_good = serves_all_names(pair, &memory.anchors(), issuing, seen.now);
    (is_lost && is_good).then_some(memory)
}

/// The certificate that vouches for what replicas serve at the moment, unless it is the issuer-to-be: from the Secret, from
/// this replica's memory or, if both are lost, from the bundles.
fn anchor(seen: &Seen<'_>, issuing: &Issuing) -> Option<Certificate> {
    let valid = |certificate: &&Certificate| certificate.is_valid(seen.now);
    let of_secret = seen.secret.ca.as_ref().map(|ca| &ca.certificate).filter(valid);
    if let Some(certificate) = of_secret.or(seen.secret.previous.as_ref().filter(valid)) {
        return Some(certificate.clone());
    }
    let known = seen.memory.into_iter().flat_map(Material::anchors);
    let pairs = || {
        seen.secret
            .serving
            .iter()
            .chain(seen.memory.and_then(|memory| memory.serving.as_ref()))
    };
    let vouches =
        |certificate: &&Certificate| pairs().any(|pair| serves_all_names(pair, &[*certificate], issuing, seen.now));
    let mut published = seen.published.iter().filter(valid);
    let mut newcomers = seen.secret.next.iter().map(|next| &next.certificate);
    let newcomer = newcomers.next();
    let is_newcomer = |certificate: &&Certificate| Some(*certificate) == newcomer;
    known
        .chain(published.clone())
        .find(vouches)
        .or_else(|| published.rfind(|certificate| !is_newcomer(certificate)))
        .cloned()
}

fn serves_all_names(pair: &Pair, anchors: &[&Certificate], issuing: &Issuing, now: Timestamp) -> bool {
    issuing
        .names
        .iter()
        .all(|name| trust::check(pair, anchors.iter().copied(), name, now).is_ok())
}

#[cfg(test)]
mod tests;

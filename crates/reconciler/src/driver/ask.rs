//! Asking the API server on behalf of the decision, within the limits that bound such reads.

use appwrapper_api::TypeRef;
use jiff::SignedDuration;

use super::{Pass, Requeue};
use crate::{
    cluster::Cluster,
    decision::Question,
    error::Error,
    evidence::{
        Cached, Expectation, Presence, Survey, Suspicion, Uncached,
        confirm::{self, Confirmation, PodsLeft},
    },
    observation::{ConfirmationResult, Missing, Observation},
    observed::{Evidence, PodEvidence},
    status::{Recorded, recorded},
};

impl<C: Cluster> Pass<'_, C> {
    /// Asks the API server. Answers with a requeue if the pass cannot go on.
    pub(super) async fn confirm(&mut self, question: Question) -> Result<Option<Requeue>, Error> {
        match question {
            Question::Missing(suspicion) => return self.confirm_missing(suspicion).await,
            Question::Deleted => {
                // Whatever is ours has to go, also an object that is not the one we made.
                let any = |(expected, component)| Expectation {
                    uid: None,
                    unproven: recorded(component) != Recorded::Created,
                    ..expected
                };
                let expected = self.expectations().into_iter().zip(&self.status.component_status);
                let expected: Vec<_> = expected.map(any).collect();
                self.components = match confirm::components(self.driver.cluster, &self.stored, &expected).await {
                    Ok(survey) => {
                        self.memory.answered();
                        Evidence::Uncached(survey)
                    }
                    Err(_) => Evidence::Doubt(self.memory.doubted()),
                };
            }
            Question::PodsLeft => {
                self.pods = match confirm::pods(self.driver.cluster, &self.stored).await {
                    Ok(PodsLeft::None(proof)) => PodEvidence::NoneLeft(proof),
                    Ok(PodsLeft::Some(pods)) => PodEvidence::Left(pods),
                    Err(_) => PodEvidence::Doubt(self.memory.doubted()),
                };
            }
        }
        Ok(None)
    }

    async fn confirm_missing(&mut self, suspicion: Suspicion) -> Result<Option<Requeue>, Error> {
        let now = self.now();
        let cluster = self.driver.cluster;
        let Evidence::Cached(survey) = std::mem::replace(&mut self.components, Evidence::Doubt(SignedDuration::ZERO))
        else {
            return Ok(None);
        };
        let expected = self.expectations();
        let suspects = suspects(&suspicion, &expected);
        let soon = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
        let put_off = self
            .memory
            .confirmations
            .not_before(&suspicion.changes, now)
            .or_else(|| (!cluster.admit_confirmation()).then_some(soon));
        if let Some(until) = put_off {
            cluster.tell(
                &self.stored,
                Observation::Confirmed {
                    suspects,
                    result: ConfirmationResult::Deferred,
                },
            );
            self.components = Evidence::Deferred(survey, until);
            return Ok(None);
        }
        // What led here must be stored before the verdict, so that the copy which is compared is the stored one.
        self.write().await?;
        cluster.tell(&self.stored, Observation::ConfirmationStarted);
        match confirm::running(cluster, &self.stored, &expected).await {
            Confirmation::Survey(live) => {
                self.memory.answered();
                self.tell_confirmed(&survey, &live, &expected, suspects);
                if live.found() == live.presences().len() {
                    self.memory.confirmations.found_present(suspicion.changes, now);
                }
                self.components = Evidence::Uncached(live);
                Ok(None)
            }
            Confirmation::Doubt(doubt) => {
                let result = ConfirmationResult::Doubt(doubt);
                cluster.tell(&self.stored, Observation::Confirmed { suspects, result });
                self.components = Evidence::Doubt(self.memory.doubted());
                Ok(None)
            }
            Confirmation::Outdated => {
                let result = ConfirmationResult::Outdated;
                cluster.tell(&self.stored, Observation::Confirmed { suspects, result });
                Ok(Some(Requeue::After(self.memory.doubted())))
            }
        }
    }

    fn tell_confirmed(
        &self,
        cached: &Survey<Cached>,
        live: &Survey<Uncached>,
        expected: &[Expectation],
        suspects: Vec<TypeRef>,
    ) {
        let tell = |observation| self.driver.cluster.tell(&self.stored, observation);
        for ((before, after), expected) in cached.presences().iter().zip(live.presences()).zip(expected) {
            let component = expected.component.clone();
            match after {
                Presence::Present(facts) if !matches!(before, Presence::Present(_)) => {
                    let cached = before.facts().and_then(|facts| facts.version.clone());
                    tell(Observation::RaceSurvived {
                        component,
                        cached,
                        live: facts.version.clone(),
                    });
                }
                Presence::Absent { .. } => tell(Observation::ConfirmedMissing {
                    component,
                    how: Missing::Absent,
                }),
                Presence::Terminating(_) => {
                    tell(Observation::ConfirmedMissing {
                        component,
                        how: Missing::Terminating,
                    });
                }
                Presence::Replaced(_) => tell(Observation::ConfirmedMissing {
                    component,
                    how: Missing::Replaced,
                }),
                _ => {}
            }
        }
        let all = live.found() == live.presences().len();
        let result = if all {
            ConfirmationResult::Live
        } else {
            ConfirmationResult::Missing
        };
        tell(Observation::Confirmed { suspects, result });
    }
}

/// Kinds of the components that a suspicion is about.
fn suspects(suspicion: &Suspicion, expected: &[Expectation]) -> Vec<TypeRef> {
    let positions = suspicion.changes.iter().map(|(position, _)| *position);
    positions
        .filter_map(|position| Some(expected.get(position)?.component.type_ref.clone()))
        .collect()
}

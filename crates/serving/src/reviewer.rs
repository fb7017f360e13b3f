//! Asks the API server who a caller is and whether it may read a page: TokenReview, then SubjectAccessReview.
//!
//! As the Go controller does for its metrics. Answers are kept for a short time, so that a scrape every few seconds costs
//! next to nothing; a right that is taken away ends within [`ALLOWED`]. Tokens themselves are not kept, only their digests.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use appwrapper_metrics::serve::{Guard, Refusal};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::Semaphore, time::Instant};

/// How long a yes is kept.
pub const ALLOWED: Duration = Duration::from_secs(60);
/// How long a no is kept: shorter, since whoever is granted a right waits for it.
pub const REFUSED: Duration = Duration::from_secs(10);
/// Answers kept at most. Scrapers are few; whoever tries many tokens only displaces other answers.
const ANSWERS: usize = 256;
/// Questions under way at once, so that strangers cannot make us flood the API server.
const QUESTIONS: usize = 4;
/// For both questions together; a scrape waits 10 s as a rule.
const PATIENCE: Duration = Duration::from_secs(5);

type Answer = Result<(), Refusal>;

/// Asks, and remembers the answers for a while.
pub struct Reviewer {
    client: Client,
    answers: Mutex<HashMap<Question, (Answer, Instant)>>,
    questions: Semaphore,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    token: Vec<u8>,
    verb: String,
    path: String,
}

impl Reviewer {
    /// Asks through `client`, which needs the right to create both kinds of review.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            answers: Mutex::default(),
            questions: Semaphore::new(QUESTIONS),
        }
    }

    fn known(&self, question: &Question) -> Option<Answer> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, until) = answers.get(question)?;
        (Instant::now() < *until).then_some(*answer)
    }

    fn remember(&self, question: Question, answer: Answer) {
        let now = Instant::now();
        let until = now + if answer.is_ok() { ALLOWED } else { REFUSED };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS {
            answers.retain(|_, (_, until)| now < *until);
        }
        if answers.len() >= ANSWERS {
            let soonest = answers.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(soonest) = soonest.map(|(question, _)| question.clone()) {
                answers.remove(&soonest);
            }
        }
        answers.insert(question, (answer, until));
    }

    async fn ask(&self, token: &str, question: &Question) -> Result<Answer, kube::Error> {
        let Some(user) = self.who(token).await? else {
            return Ok(Err(Refusal::Unknown));
        };
        Ok(if self.may(user, question).await? {
            Ok(())
        } else {
            Err(Refusal::Forbidden)
        })
    }

    async fn who(&self, token: &str) -> Result<Option<UserInfo>, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let review: TokenReview = Api::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        let status = review.status.unwrap_or_default();
        let is_known = status.authenticated == Some(true);
        Ok(status.user.filter(|_| is_known))
    }

    async fn may(&self, user: UserInfo, question: &Question) -> Result<bool, kube::Error> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(question.path.clone()),
                    verb: Some(question.verb.clone()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let review: SubjectAccessReview = Api::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}

#[async_trait::async_trait]
impl Guard for Reviewer {
    async fn admit(&self, token: Option<&str>, method: &http::Method, path: &str) -> Answer {
        let Some(token) = token else {
            return Err(Refusal::Unknown);
        };
        let question = Question {
            token: ring::digest::digest(&ring::digest::SHA256, token.as_bytes())
                .as_ref()
                .to_vec(),
            verb: method.as_str().to_ascii_lowercase(),
            path: path.to_owned(),
        };
        if let Some(answer) = self.known(&question) {
            return answer;
        }
        let asked = async {
            // Never closed.
            let _permit = self.questions.acquire().await;
            self.ask(token, &question).await
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => {
                self.remember(question, answer);
                answer
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot ask the API server who may read the metrics");
                Err(Refusal::Unanswered)
            }
            Err(_) => {
                tracing::warn!("the API server did not say in time who may read the metrics");
                Err(Refusal::Unanswered)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_many_tokens_are_tried_few_answers_are_kept() {
        let reviewer = Reviewer::new(appwrapper_testkit::api_server::ApiServer::new().client());
        let question = |number: usize| Question {
            token: number.to_be_bytes().to_vec(),
            verb: "get".to_owned(),
            path: "/metrics".to_owned(),
        };
        reviewer.remember(question(0), Ok(()));
        for number in 1..2 * ANSWERS {
            reviewer.remember(question(number), Err(Refusal::Unknown));
        }
        assert_eq!(reviewer.answers.lock().unwrap().len(), ANSWERS);
        assert_eq!(
            reviewer.known(&question(0)),
            Some(Ok(())),
            "it lasts longer than any refusal"
        );
    }
}

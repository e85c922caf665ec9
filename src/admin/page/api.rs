//! The API, asked within this process in the name of an operator.

use axum::Router;
use axum::body::Body;
use http::header::CONTENT_TYPE;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::Service;

use super::fields::link;
use crate::admin::access::Operator;
use crate::admin::answer::Refused;
use crate::admin::reloads::CheckBody;

/// The API, whose roles and audit log apply.
pub(super) struct Api(Router);

/// The part of a problem (RFC 9457) that a page shows.
#[derive(Deserialize)]
struct ProblemDetail {
    detail: String,
}

impl Api {
    pub(super) fn new(router: Router) -> Self {
        Self(router)
    }

    /// Asks by GET.
    ///
    /// # Errors
    /// The status and the detail of a problem.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        operator: &Operator,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Refused> {
        self.ask(operator, Method::GET, &link(path, query), Body::empty()).await
    }

    /// Asks by POST with a JSON body.
    ///
    /// # Errors
    /// The status and the detail of a problem.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        operator: &Operator,
        path: &str,
        body: &Value,
    ) -> Result<T, Refused> {
        self.ask(operator, Method::POST, path, Body::from(body.to_string())).await
    }

    /// Checks a configuration.
    ///
    /// # Errors
    /// The status and the detail of a problem.
    pub(super) async fn check(
        &self,
        operator: &Operator,
        query: (&str, &str),
        text: &str,
    ) -> Result<CheckBody, Refused> {
        let target = link("/v1/config/check", &[query]);
        self.ask(operator, Method::POST, &target, Body::from(text.to_owned())).await
    }

    /// Asks by DELETE.
    ///
    /// # Errors
    /// The status and the detail of a problem.
    pub(super) async fn delete<T: DeserializeOwned>(
        &self,
        operator: &Operator,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, Refused> {
        self.ask(operator, Method::DELETE, &link(path, query), Body::empty()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        operator: &Operator,
        method: Method,
        target: &str,
        body: Body,
    ) -> Result<T, Refused> {
        let broken = |error: &dyn std::fmt::Display| Refused(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
        let request = Request::builder().method(method).uri(target).header(CONTENT_TYPE, "application/json");
        let mut request = request.body(body).map_err(|error| broken(&error))?;
        request.extensions_mut().insert(operator.clone());
        let answer = match self.0.clone().call(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| broken(&error))?.to_bytes();
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| broken(&error));
        }
        let problem = serde_json::from_slice::<ProblemDetail>(&body);
        Err(Refused(status, problem.map_or_else(|_| status.to_string(), |problem| problem.detail)))
    }
}

//! The configuration: the last reload, a check, a reload, the last reloads, and the options in force.

use askama::Template;
use http::StatusCode;
use serde_json::json;

use super::fields::FormFields;
use super::pages::{PageRequest, Pages};
use super::shell::{self, Shell, Shown, Visitor, page, see_other};
use crate::admin::answer::Refused;
use crate::admin::reloads::{CheckBody, ConfigBody, ReloadBody, SettingBody};

/// Most options of the page.
const SETTINGS_SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "configuration.html", config = "src/admin/page/askama.toml")]
struct ConfigurationPage {
    shell: Shell,
    entered: FormFields,
    /// The file, or the place of a remote configuration.
    name: String,
    checked: Option<CheckBody>,
    /// The newest first.
    reloads: Vec<ReloadBody>,
    settings: Vec<SettingBody>,
    /// Whether there are more options.
    more: bool,
}

/// The page.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest) -> Shown {
    view(&pages, &visitor, query, None, None).await
}

/// Checks the file of the configuration, or a text.
pub(super) async fn check(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let (query, text) = match fields.get("action") {
        "text" => (("name", "text"), fields.text("text")),
        _ => (("stored", "true"), ""),
    };
    match pages.api.check(&visitor.operator, query, text).await {
        Ok(checked) => view(&pages, &visitor, fields, Some(checked), None).await,
        Err(refused) => view(&pages, &visitor, fields, None, Some(refused)).await,
    }
}

/// Reloads the configuration.
pub(super) async fn reload(PageRequest { pages, visitor, fields }: PageRequest) -> Shown {
    let order = json!({ "reason": fields.filled("reason") });
    let refused = match pages.api.post::<ReloadBody>(&visitor.operator, "/v1/reload", &order).await {
        Ok(made) if made.outcome == "applied" => return Ok(see_other("/configuration?done=reloaded")),
        Ok(_) => Refused(StatusCode::UNPROCESSABLE_ENTITY, "The earlier configuration stays in force.".to_owned()),
        Err(refused) => refused,
    };
    view(&pages, &visitor, fields, None, Some(refused)).await
}

async fn view(
    pages: &Pages,
    visitor: &Visitor,
    entered: FormFields,
    checked: Option<CheckBody>,
    refused: Option<Refused>,
) -> Shown {
    let defaults = if entered.get("defaults").is_empty() { "false" } else { "true" };
    let asked = [("path", entered.get("path")), ("defaults", defaults)];
    let read = pages.api.get(&visitor.operator, "/v1/config", &asked).await;
    let ConfigBody { name, mut settings, more, .. } = read.map_err(shell::refused)?;
    let more = more || settings.len() > SETTINGS_SHOWN;
    settings.truncate(SETTINGS_SHOWN);
    let reloads = pages.api.get(&visitor.operator, "/v1/reloads", &[]).await.unwrap_or_default();
    let (status, error) = refused.map(|Refused(status, detail)| (status, detail)).unzip();
    let shell = Shell::new(visitor, "Configuration", &entered).with_error(error);
    let template = ConfigurationPage { shell, entered, name, checked, reloads, settings, more };
    Ok(page(status.unwrap_or(StatusCode::OK), &template))
}

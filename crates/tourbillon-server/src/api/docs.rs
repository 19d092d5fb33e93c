//! The description of the API, for programs and for people.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::Extension;
use axum::response::IntoResponse;
use http::header;
use serde_json::Value;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Description, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi};

use crate::problem::Problem;

/// The parts of the description that belong to no path.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tourbillon",
        description = "Durable timers: created, cancelled and moved by key or name, delivered at least once, never early. Times are RFC 3339. \
            Durations are a number with a unit (`1.5s`) or ISO 8601 (`PT1.5S`). Errors are problem details (RFC 9457) that say what to do.",
    ),
    components(schemas(Problem, super::list::ListedState)),
    modifiers(&BearerKey),
    security(("key" = [])),
)]
pub(super) struct ApiDescription;

/// The way in which a request presents its API key.
struct BearerKey;

impl Modify for BearerKey {
    fn modify(&self, description: &mut Description) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key (`tbk_…`), if the server has keys. `tourbillon key create` makes one."))
            .build();
        let components = description.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

/// The problems that every path can answer with.
pub(super) struct Problems;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let problems = [
            (400, "The request cannot be understood."),
            (401, "There is no valid API key."),
            (403, "The API key does not allow this."),
            (408, "The body took too long."),
            (413, "The body is too large."),
            (415, "The body is not JSON."),
            (422, "The request contradicts itself, or asks for what is not allowed."),
            (429, "There are too many requests: try again after the time in `Retry-After`."),
            (503, "The store cannot be used at the moment."),
        ];
        let response = |text: &str| {
            let content = Content::new(Some(Ref::from_schema_name("Problem")));
            ResponseBuilder::new().description(text).content("application/problem+json", content).build()
        };
        problems.into_iter().map(|(status, text)| (status.to_string(), response(text).into())).collect()
    }
}

/// The description as it is sent.
#[derive(Clone)]
pub(super) struct Documents {
    json: Arc<str>,
    page: Arc<str>,
}

impl Documents {
    pub(super) fn new(description: &Description) -> Documents {
        let json = serde_json::to_string(description).unwrap_or_default();
        let value: Value = serde_json::from_str(&json).unwrap_or_default();
        Documents { json: json.into(), page: render(&value).into() }
    }
}

/// Answers with the description for programs.
pub(super) async fn openapi(Extension(documents): Extension<Documents>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], documents.json.to_string())
}

/// Answers with the description for people.
pub(super) async fn page(Extension(documents): Extension<Documents>) -> impl IntoResponse {
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, documents.page.to_string())
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}html{color-scheme:light dark}\
code,pre{font-family:ui-monospace,monospace;font-size:.9em}h2{margin-top:2.5rem;border-top:1px solid #8886;padding-top:1rem}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8884}\
.m{font-weight:700;text-transform:uppercase}nav li{list-style:none}nav ul{padding:0}";

/// Renders the page from the description, without scripts.
fn render(description: &Value) -> String {
    let mut html = String::new();
    let title = text(&description["info"]["title"]);
    let _infallible = write!(
        html,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>{title} API</title>\
         <style>{STYLE}</style><h1>{title} API</h1><p>{}</p><p>For programs: <a href=/openapi.json>/openapi.json</a> (OpenAPI 3.1).</p>\
         <p>A first timer:</p><pre>curl -sX POST http://127.0.0.1:7117/v1/timers -H 'Content-Type: application/json' \\\n  \
         -d '{{\"after\": \"5s\", \"key\": \"tea\", \"deliver\": {{\"queue\": \"kitchen\"}}}}'</pre>",
        text(&description["info"]["description"])
    );
    let operations = operations(description);
    html.push_str("<nav><ul>");
    for (path, method, operation) in &operations {
        let anchor = text(&operation["operationId"]);
        let summary = text(&operation["summary"]);
        let _infallible = write!(
            html,
            "<li><a href='#{anchor}-{method}'><code><span class=m>{method}</span> {}</code></a> {summary}",
            escape(path)
        );
    }
    html.push_str("</ul></nav>");
    for (path, method, operation) in &operations {
        render_operation(&mut html, path, method, operation);
    }
    html.push_str("<h1>Bodies</h1>");
    for (name, schema) in description["components"]["schemas"].as_object().into_iter().flatten() {
        render_schema(&mut html, name, schema);
    }
    html
}

fn operations(description: &Value) -> Vec<(&String, &String, &Value)> {
    let paths = description["paths"].as_object().into_iter().flatten();
    let operations = paths.flat_map(|(path, methods)| {
        methods.as_object().into_iter().flatten().map(move |(method, operation)| (path, method, operation))
    });
    let mut operations: Vec<_> = operations.collect();
    // What a reader looks for first comes first; within a group the order of the description stays.
    const GROUPS: [&str; 6] = ["/v1/timers", "/v1/cancel", "/v1/queues", "/v1/dead-letters", "/v1/events", ""];
    operations.sort_by_key(|(path, ..)| GROUPS.iter().position(|group| path.starts_with(group)));
    operations
}

fn render_operation(html: &mut String, path: &str, method: &str, operation: &Value) {
    let _infallible = write!(
        html,
        "<h2 id='{}-{method}'><code><span class=m>{method}</span> {}</code></h2><p><b>{}.</b> {}</p>",
        text(&operation["operationId"]),
        escape(path),
        text(&operation["summary"]),
        text(&operation["description"])
    );
    if let Some(parameters) = operation["parameters"].as_array() {
        html.push_str("<table><tr><th>parameter<th>meaning");
        for parameter in parameters {
            let (name, meaning) = (text(&parameter["name"]), text(&parameter["description"]));
            let _infallible = write!(html, "<tr><td><code>{name}</code><td>{meaning}");
        }
        html.push_str("</table>");
    }
    if let Some(reference) = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].as_str() {
        let _infallible = write!(html, "<p>Body: {}</p>", link(reference));
    }
    html.push_str("<table><tr><th>answer<th>meaning");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let schema = response["content"].as_object().and_then(|content| content.values().next());
        let body = schema.and_then(|content| content["schema"]["$ref"].as_str()).map(link).unwrap_or_default();
        let _infallible = write!(html, "<tr><td>{} {body}<td>{}", escape(status), text(&response["description"]));
    }
    html.push_str("</table>");
}

fn render_schema(html: &mut String, name: &str, schema: &Value) {
    let _infallible =
        write!(html, "<h2 id='schema-{0}'>{0}</h2><p>{1}</p>", escape(name), text(&schema["description"]));
    let parts = schema["allOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
    for part in &parts {
        if let Some(reference) = part["$ref"].as_str() {
            let _infallible = write!(html, "<p>With all of {}</p>", link(reference));
        }
        let Some(properties) = part["properties"].as_object() else { continue };
        let required = part["required"].as_array();
        html.push_str("<table><tr><th>field<th>type<th>meaning");
        for (field, about) in properties {
            let is_required = required.is_some_and(|names| names.iter().any(|name| name == field));
            let mark = if is_required { " (required)" } else { "" };
            let _infallible = write!(
                html,
                "<tr><td><code>{}</code>{mark}<td>{}<td>{}",
                escape(field),
                type_of(about),
                text(&about["description"])
            );
        }
        html.push_str("</table>");
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        html.push_str("<p>One of:</p><ul>");
        for choice in choices {
            let _infallible = write!(html, "<li>{} {}", type_of(choice), text(&choice["description"]));
        }
        html.push_str("</ul>");
    }
}

/// Returns what kind of value a schema describes.
fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return link(reference);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choices: Vec<String> = choices.iter().map(type_of).filter(|kind| kind != "null").collect();
        return choices.join(" or ");
    }
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(|value| escape(&value.to_string())).collect::<Vec<_>>().join(", ");
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default(),
        kind => kind.as_str().unwrap_or("anything"),
    };
    match kind {
        "array" => format!("list of {}", type_of(&schema["items"])),
        "object" => match schema["properties"].as_object() {
            Some(fields) => {
                let fields =
                    fields.iter().map(|(name, field)| format!("<code>{}</code>: {}", escape(name), type_of(field)));
                format!("object with {}", fields.collect::<Vec<_>>().join(", "))
            }
            None => "object".to_owned(),
        },
        other => escape(other),
    }
}

fn link(reference: &str) -> String {
    let name = escape(reference.rsplit('/').next().unwrap_or_default());
    format!("<a href='#schema-{name}'>{name}</a>")
}

/// Returns a text with what is between backticks as code.
fn text(value: &Value) -> String {
    let parts = value.as_str().unwrap_or_default().split('`').map(escape).enumerate();
    parts.map(|(index, part)| if index % 2 == 1 { format!("<code>{part}</code>") } else { part }).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;").replace('"', "&quot;")
}

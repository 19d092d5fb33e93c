//! The form for a new timer.

use axum::extract::{Form, State};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::actions::{Refusal, call, utc_time};
use super::page::{Page, Place, message};
use super::viewer::{Sender, Viewer};
use crate::state::AppState;

/// The fields of the form, as they were typed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CreateForm {
    namespace: String,
    key: String,
    name: String,
    when: String,
    after: String,
    at: String,
    every: String,
    cron: String,
    zone: String,
    times: String,
    deliver: String,
    queue: String,
    url: String,
    payload: String,
    attempts: String,
    on_conflict: String,
}

pub(super) async fn page(viewer: Viewer) -> Response {
    show(&viewer, &CreateForm::default(), None)
}

pub(super) async fn create(
    State(state): State<AppState>,
    Sender(viewer): Sender,
    Form(form): Form<CreateForm>,
) -> Response {
    let request = match form.request() {
        Ok(request) => request,
        Err(detail) => {
            let title = "The timer was not created".to_owned();
            return show(&viewer, &form, Some(Refusal { status: StatusCode::UNPROCESSABLE_ENTITY, title, detail }));
        }
    };
    match call(&state, &viewer, Method::POST, "/v1/timers", Some(request)).await {
        Ok(created) => {
            let id = created["id"].as_str().unwrap_or_default();
            Redirect::to(&format!("/timers/{id}?done=created")).into_response()
        }
        Err(refusal) => show(&viewer, &form, Some(refusal)),
    }
}

fn show(viewer: &Viewer, form: &CreateForm, refusal: Option<Refusal>) -> Response {
    let status = refusal.as_ref().map_or(StatusCode::OK, |refusal| refusal.status);
    let body = html! {
        h1 { "New timer" }
        @if let Some(refusal) = &refusal { (message(&refusal.detail, true)) }
        section.card.narrow {
            form.form.body method="post" action="/new" { (form.fields(viewer)) }
        }
    };
    Page { title: "New timer", place: Place::New, viewer: Some(viewer), status, body }.into_response()
}

impl CreateForm {
    /// Returns the request to the API.
    ///
    /// # Errors
    /// A field cannot be understood. What else is wrong, the API says.
    fn request(&self) -> Result<Value, String> {
        let mut request = Map::new();
        let mut set = |name: &str, value: &str| {
            if !value.trim().is_empty() {
                request.insert(name.to_owned(), value.trim().into());
            }
        };
        set("namespace", &self.namespace);
        set("key", &self.key);
        set("name", &self.name);
        set("on_conflict", &self.on_conflict);
        match self.when.as_str() {
            "at" => set("at", &utc_time(&self.at)),
            "every" => set("every", &self.every),
            "cron" => {
                set("cron", &self.cron);
                set("zone", &self.zone);
            }
            _ => set("after", &self.after),
        }
        let number = |name: &str, text: &str| match text.trim() {
            "" => Ok(None),
            text => text.parse::<u64>().map(Some).map_err(|_| format!("{name} must be a whole number.")),
        };
        if let Some(times) = number("The number of occurrences", &self.times)?
            && matches!(self.when.as_str(), "every" | "cron")
        {
            request.insert("times".to_owned(), times.into());
        }
        if let Some(attempts) = number("The number of attempts", &self.attempts)? {
            request.insert("retry".to_owned(), json!({ "attempts": attempts }));
        }
        let deliver = match self.deliver.as_str() {
            "webhook" => json!({ "webhook": { "url": self.url.trim() } }),
            _ => json!({ "queue": self.queue.trim() }),
        };
        request.insert("deliver".to_owned(), deliver);
        if !self.payload.is_empty() {
            // JSON as it is, other text as text.
            match serde_json::from_str::<Value>(&self.payload) {
                Ok(value) => request.insert("payload".to_owned(), value),
                Err(_) => {
                    request.insert("content_type".to_owned(), "text/plain; charset=utf-8".into());
                    request.insert("payload_base64".to_owned(), STANDARD.encode(&self.payload).into())
                }
            };
        }
        Ok(Value::Object(request))
    }

    fn fields(&self, viewer: &Viewer) -> Markup {
        let choice = |name: &str, value: &str, is_first: bool, label: &str| {
            let chosen = if name == "when" { &self.when } else { &self.deliver };
            let is_chosen = chosen == value || (chosen.is_empty() && is_first);
            html! { label { input type="radio" name=(name) value=(value) checked[is_chosen]; (label) } }
        };
        html! {
            fieldset {
                legend.label { "When" }
                div.choices {
                    (choice("when", "after", true, "after a time"))
                    (choice("when", "at", false, "at a time"))
                    (choice("when", "every", false, "again and again"))
                    (choice("when", "cron", false, "by a cron line"))
                }
                div.row data-shown-for="when=after" { (text("after", "From now", &self.after, "30s, 15m, 2h, 7d", true)) }
                div.row data-shown-for="when=at" {
                    div {
                        label for="new-at" { "Date and time, UTC" }
                        input #new-at type="datetime-local" step="1" name="at" value=(self.at);
                    }
                }
                div.row data-shown-for="when=every" { (text("every", "Interval", &self.every, "1h", false)) }
                div.row data-shown-for="when=cron" {
                    (text("cron", "Cron line", &self.cron, "30 2 * * *", false))
                    (text("zone", "Time zone", &self.zone, "UTC", false))
                }
            }
            fieldset {
                legend.label { "Delivered to" }
                div.choices {
                    (choice("deliver", "queue", true, "workers that pull from a queue"))
                    (choice("deliver", "webhook", false, "a webhook"))
                }
                div data-shown-for="deliver=queue" { (text("queue", "Queue", &self.queue, "emails", false)) }
                div data-shown-for="deliver=webhook" { (text("url", "Address", &self.url, "https://example.com/hooks/timers", false)) }
            }
            div.row {
                (text("key", "Key", &self.key, "order 4711", false))
                (text("name", "Name", &self.name, "customer 7", false))
                @match viewer.namespaces() {
                    None => (text("namespace", "Namespace", &self.namespace, "default", false)),
                    Some(allowed) => div {
                        label for="new-namespace" { "Namespace" }
                        select #new-namespace name="namespace" {
                            @for namespace in allowed { option value=(namespace) selected[*namespace == self.namespace] { (namespace) } }
                        }
                    },
                }
            }
            p.hint { "At most one pending timer of a namespace has a key. Many can have a name, and are cancelled by it together." }
            div {
                label for="new-payload" { "Payload" }
                textarea #new-payload name="payload" spellcheck="false" placeholder="{\"order\": 4711}" { (self.payload) }
                p.hint { "JSON, or any other text." }
            }
            div.row {
                (text("attempts", "Attempts", &self.attempts, "10", false))
                (text("times", "Occurrences, if it repeats", &self.times, "no limit", false))
                div {
                    label for="new-on_conflict" { "If the key is taken" }
                    select #new-on_conflict name="on_conflict" {
                        @for (value, label) in [("", "refuse"), ("keep", "keep the other"), ("replace", "replace it"), ("earlier", "keep the earlier"), ("later", "keep the later")] {
                            option value=(value) selected[self.on_conflict == value] { (label) }
                        }
                    }
                }
            }
            div.actions {
                button.button.main type="submit" { "Create" }
                a.button href="/" { "Back" }
            }
        }
    }
}

fn text(name: &str, label: &str, value: &str, example: &str, is_first: bool) -> Markup {
    html! {
        div {
            label for={ "new-" (name) } { (label) }
            input id={ "new-" (name) } type="text" name=(name) value=(value) placeholder=(example) autocomplete="off" spellcheck="false" autofocus[is_first];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u1_the_form_becomes_a_request_without_what_is_empty() {
        let form = CreateForm {
            when: "after".into(),
            after: " 5m ".into(),
            key: "order 1".into(),
            deliver: "queue".into(),
            queue: "emails".into(),
            payload: "{\"a\":1}".into(),
            attempts: "3".into(),
            times: "4".into(),
            ..CreateForm::default()
        };
        let wanted = json!({
            "key": "order 1", "after": "5m", "deliver": { "queue": "emails" }, "payload": { "a": 1 },
            "retry": { "attempts": 3 },
        });
        assert_eq!(form.request(), Ok(wanted));
    }

    #[test]
    fn u8_a_payload_that_is_not_json_is_text() {
        let form = CreateForm {
            when: "cron".into(),
            cron: "* * * * *".into(),
            payload: "hello".into(),
            ..CreateForm::default()
        };
        let request = form.request().unwrap();
        assert_eq!((&request["payload_base64"], &request["cron"]), (&json!("aGVsbG8="), &json!("* * * * *")));
        assert!(CreateForm { attempts: "many".into(), ..CreateForm::default() }.request().is_err());
    }
}

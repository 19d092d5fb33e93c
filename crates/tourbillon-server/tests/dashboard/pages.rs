//! What the dashboard answers, without a browser.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::json;
use tourbillon_client::{ClientError, EventFilter, NewTimer};
use tourbillon_server::{NewKey, ServerConfig, key_store};

use crate::server::TestServer;

/// Sends requests as a browser does that has no cookie yet.
struct Visitor<'s> {
    server: &'s TestServer,
    http: reqwest::Client,
}

impl Visitor<'_> {
    fn of(server: &TestServer) -> Visitor<'_> {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        Visitor { server, http: http.expect("a client") }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.server.address))
    }

    fn send(&self, request: RequestBuilder) -> (StatusCode, HeaderMap, String) {
        self.server.runtime.block_on(async {
            let answer: Response = request.send().await.expect("an answer");
            let (status, headers) = (answer.status(), answer.headers().clone());
            (status, headers, answer.text().await.expect("a text"))
        })
    }

    fn get(&self, path: &str) -> (StatusCode, HeaderMap, String) {
        self.send(self.request(Method::GET, path))
    }

    /// Sends a form, as a page of this server does.
    fn form(&self, path: &str, fields: &str) -> RequestBuilder {
        let request = self.request(Method::POST, path).header("content-type", "application/x-www-form-urlencoded");
        request.header("sec-fetch-site", "same-origin").body(fields.to_owned())
    }
}

fn text(value: Option<&HeaderValue>) -> &str {
    value.and_then(|value| value.to_str().ok()).unwrap_or_default()
}

#[test]
fn o7_a_page_is_small_self_contained_and_protected() {
    let server = TestServer::start();
    for number in 0..100 {
        server.create(NewTimer::after("1h").queue("emails").key(format!("order {number}")));
    }
    let visitor = Visitor::of(&server);
    let (status, headers, page) = visitor.get("/");
    assert_eq!(status, StatusCode::OK);
    let policy = text(headers.get("content-security-policy"));
    for rule in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]
    {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(text(headers.get("x-content-type-options")), "nosniff");
    assert_eq!(text(headers.get("cache-control")), "no-store");
    for forbidden in [" style=", "<style", "javascript:", " onclick", "http://", "https://"] {
        assert!(!page.contains(forbidden), "the page has {forbidden}");
    }
    let mut size = page.len();
    let assets: Vec<&str> = page.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(assets.len() >= 3, "{assets:?}");
    for asset in assets {
        let (status, headers, body) = visitor.get(asset);
        assert_eq!(status, StatusCode::OK, "{asset}");
        assert!(text(headers.get("cache-control")).contains("immutable"), "{asset}");
        size += body.len();
    }
    assert!(size < 200_000, "{size} bytes");
    assert_eq!(visitor.get("/assets/../Cargo.toml").0, StatusCode::NOT_FOUND);
    assert_eq!(visitor.get("/assets/other.js").0, StatusCode::NOT_FOUND);
    assert_eq!(visitor.get("/timers/nobody").0, StatusCode::NOT_FOUND);
}

#[test]
fn o7_names_keys_payloads_and_searches_are_shown_as_text() {
    let server = TestServer::start();
    let nasty = "\"><script>alert('x')</script>";
    let id = server.create(NewTimer::after("1h").queue("emails").key(nasty).name(nasty).payload(json!({ "a": nasty })));
    let visitor = Visitor::of(&server);
    let search = "/?q=%22%3E%3Cscript%3E&namespace=%22%3E%3Cscript%3E&done=%3Cscript%3E";
    for path in ["/".to_owned(), format!("/timers/{id}"), search.to_owned()] {
        let (_, _, page) = visitor.get(&path);
        assert!(!page.contains("<script>"), "{path}: {page}");
    }
    let (status, _, page) = visitor.send(visitor.form("/new", "when=after&after=%3Cscript%3E&deliver=queue&queue=q"));
    assert!(status.is_client_error() && !page.contains("<script>"), "{status}: {page}");
    assert!(page.contains("&lt;script&gt;"), "the form keeps what was typed: {page}");
}

#[test]
fn o3_forms_of_other_sites_change_nothing() {
    let server = TestServer::start();
    let id = server.create(NewTimer::after("1h").queue("emails").key("mine"));
    let visitor = Visitor::of(&server);
    let cancel = format!("/timers/{id}/cancel");
    for (name, value) in [("sec-fetch-site", "cross-site"), ("origin", "http://evil.test"), ("accept", "*/*")] {
        for path in [&cancel, "/new", "/login", "/cancel-name"] {
            let request = visitor.request(Method::POST, path).header(name, value);
            let request = request.header("content-type", "application/x-www-form-urlencoded");
            let fields = "when=after&after=1h&deliver=queue&queue=q&namespace=default&name=n&key=k";
            let (status, ..) = visitor.send(request.body(fields));
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} from {name}: {value}");
        }
    }
    let (_, _, page) = visitor.get("/");
    assert!(page.contains("mine"), "{page}");
    let (status, headers, _) = visitor.send(visitor.form(&cancel, ""));
    assert_eq!(status, StatusCode::SEE_OTHER);
    assert_eq!(text(headers.get("location")), format!("/timers/{id}?done=cancelled&n=1"));
}

#[test]
fn o7_events_come_as_they_happen_with_filters_and_after_a_pause() {
    let server = TestServer::start();
    let client = server.client();
    server.runtime.block_on(async {
        let listen = |key: &str| EventFilter { key: Some(key.to_owned()), ..EventFilter::default() };
        let mut events = client.events(&listen("wanted"), None).await.expect("events");
        let timer = |key: &str| NewTimer::after("1h").queue("emails").key(key);
        client.create(&timer("unwanted")).await.expect("a timer");
        client.create(&timer("wanted")).await.expect("a timer");
        let created = next(&mut events).await;
        assert_eq!((created.what.as_str(), &created.data["key"]), ("created", &json!("wanted")));
        assert_eq!(created.data["namespace"], "default");
        drop(events);
        // What happened meanwhile comes after the id that was seen last.
        client.cancel_key("default", "wanted").await.expect("a cancel");
        let mut events = client.events(&listen("wanted"), created.id.as_deref()).await.expect("events");
        let cancelled = next(&mut events).await;
        assert_eq!((cancelled.what.as_str(), &cancelled.data["cancelled"]), ("cancelled", &json!(1)));
        let mut events = client.events(&EventFilter::default(), Some("1-7")).await.expect("events");
        assert_eq!(next(&mut events).await.what, "reset", "an id of another process");
        let wrong = EventFilter { types: Some("fired".into()), ..EventFilter::default() };
        assert!(client.events(&wrong, None).await.is_ok());
        let closed = client.get("0199f3a2-7c1e-7b5d-9c55-2f2f7a2f1a10").await;
        assert!(matches!(closed, Err(ClientError::Refused(problem)) if problem.status == 404));
    });
}

async fn next(events: &mut tourbillon_client::EventStream) -> tourbillon_client::TimerEvent {
    let event = tokio::time::timeout(Duration::from_secs(30), events.next()).await.expect("in time");
    event.expect("a connection").expect("an event")
}

#[test]
fn o3_with_keys_a_browser_has_to_sign_in_and_sees_only_what_its_key_allows() {
    let keys = tempfile::tempdir().expect("a directory");
    let path = keys.path().join("keys.json");
    let config = ServerConfig { keys_file: Some(path.clone()), ..ServerConfig::default() };
    let store = key_store(&config).expect("a place");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let key = |namespaces: Option<&str>, read_only| {
        let namespaces = namespaces.map(|one| vec![one.to_owned()]);
        let new = NewKey { name: "test".to_owned(), namespaces, read_only };
        runtime.block_on(store.create(new)).expect("a key")
    };
    let (admin, shop) = (key(None, false), key(Some("shop"), true));
    let server = TestServer::with(|config| config.keys_file = Some(path));
    let client = server.client().with_key(&admin);
    let create = |namespace: &str| {
        let timer = NewTimer::after("1h").queue("emails").key(format!("of {namespace}")).namespace(namespace);
        server.runtime.block_on(client.create(&timer)).expect("a timer").id
    };
    let (mine, other) = (create("shop"), create("bank"));
    let visitor = Visitor::of(&server);
    for path in ["/", "/new", &format!("/timers/{mine}")] {
        let (status, headers, _) = visitor.get(path);
        assert_eq!((status, text(headers.get("location"))), (StatusCode::SEE_OTHER, "/login"), "{path}");
    }
    assert_eq!(visitor.get("/login").0, StatusCode::OK);
    assert_eq!(visitor.get("/v1/events").0, StatusCode::UNAUTHORIZED);
    assert_eq!(visitor.send(visitor.form("/login", "key=tbk_wrong_key")).0, StatusCode::FORBIDDEN);

    let cookie_of = |key: &str| {
        let (status, headers, _) = visitor.send(visitor.form("/login", &format!("key={key}")));
        assert_eq!(status, StatusCode::SEE_OTHER);
        let cookie = text(headers.get("set-cookie")).to_owned();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        cookie.split(';').next().expect("a cookie").to_owned()
    };
    let shop = cookie_of(&shop);
    let with = |cookie: &str, request: RequestBuilder| visitor.send(request.header("cookie", cookie));
    let see = |cookie: &str, path: &str| with(cookie, visitor.request(Method::GET, path));
    let (status, _, page) = see(&shop, "/");
    assert!(status == StatusCode::OK && page.contains("of shop") && !page.contains("of bank"), "{page}");
    assert_eq!(see(&shop, "/?namespace=bank").0, StatusCode::FORBIDDEN);
    assert_eq!(see(&shop, &format!("/timers/{mine}")).0, StatusCode::OK);
    assert_eq!(see(&shop, &format!("/timers/{other}")).0, StatusCode::NOT_FOUND);
    assert_eq!(see(&shop, "/v1/events?namespace=bank").0, StatusCode::FORBIDDEN);
    let cancel = format!("/timers/{mine}/cancel");
    assert_eq!(with(&shop, visitor.form(&cancel, "")).0, StatusCode::FORBIDDEN, "the key can only read");

    let admin = cookie_of(&admin);
    let (_, _, page) = see(&admin, "/");
    assert!(page.contains("of shop") && page.contains("of bank") && page.contains("Sign out"), "{page}");
    let delete = visitor.request(Method::DELETE, &format!("/v1/timers/{mine}"));
    assert_eq!(with(&admin, delete).0, StatusCode::UNAUTHORIZED, "a cookie does not change anything through the API");
    assert_eq!(with(&admin, visitor.form(&cancel, "")).0, StatusCode::SEE_OTHER);
    let (_, headers, _) = with(&admin, visitor.form("/logout", ""));
    assert!(text(headers.get("set-cookie")).contains("Max-Age=0"));
}

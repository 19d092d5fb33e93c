//! Timers: create, get, list, reschedule, cancel.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::{TestServer, answer};

fn far(key: &str) -> Value {
    json!({"key": key, "after": "1h", "deliver": {"queue": "q"}})
}

#[tokio::test]
async fn u1_a_create_is_201_the_same_again_200_and_a_different_one_409() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let (status, first) = server.post("/v1/timers", far("a")).await;
    assert_eq!((status, &first["namespace"], &first["key"]), (201, &json!("default"), &json!("a")));
    let (status, again) = server.post("/v1/timers", far("a")).await;
    assert_eq!((status, &again["id"]), (200, &first["id"]));
    let mut other = far("a");
    other["after"] = json!("PT2H");
    let (status, conflict) = server.post("/v1/timers", other.clone()).await;
    assert_eq!((status, &conflict["id"]), (409, &first["id"]));
    for (mode, expected, is_first) in
        [("keep", 200, true), ("earlier", 200, true), ("refuse", 409, true), ("later", 201, false)]
    {
        other["on_conflict"] = json!(mode);
        let (status, answer) = server.post("/v1/timers", other.clone()).await;
        assert_eq!((status, answer["id"] == first["id"]), (expected, is_first), "{mode}: {answer}");
    }
    other["after"] = json!("3h");
    other["on_conflict"] = json!("replace");
    assert_eq!(server.post("/v1/timers", other).await.0, 201);
    server.stop().await;
}

#[tokio::test]
async fn u2_cancels_by_id_key_and_name_say_exactly_what_they_did() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let id = server.create(far("a")).await;
    let counts = |cancelled, in_flight, gone| json!({"cancelled": cancelled, "in_flight": in_flight, "gone": gone});
    assert_eq!(server.delete(&format!("/v1/timers/{id}")).await, (200, counts(1, 0, 0)));
    assert_eq!(server.delete(&format!("/v1/timers/{id}")).await, (200, counts(0, 0, 1)));
    server.create(far("b")).await;
    assert_eq!(server.post("/v1/cancel", json!({"key": "b"})).await, (200, counts(1, 0, 0)));
    for key in ["c", "d", "e"] {
        let mut timer = far(key);
        timer["name"] = json!("order 7");
        server.create(timer).await;
    }
    let due = json!({"name": "order 7", "after": "0s", "deliver": {"queue": "now"}});
    server.create(due).await;
    assert_eq!(server.pull("now", json!({"wait": "10s"})).await.len(), 1);
    assert_eq!(server.post("/v1/cancel", json!({"name": "order 7"})).await, (200, counts(3, 1, 0)));
    for bad in [json!({}), json!({"key": "a", "name": "b"})] {
        assert_eq!(server.post("/v1/cancel", bad).await.0, 422);
    }
    server.stop().await;
}

#[tokio::test]
async fn u3_a_timer_moves_only_if_it_has_the_expected_version() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let (_, created) = server.post("/v1/timers", far("a")).await;
    let path = format!("/v1/timers/{}", created["id"].as_str().unwrap());
    let (status, moved) = server.patch(&path, json!({"after": "2h", "if_version": created["version"]})).await;
    assert_eq!(status, 200);
    let (status, stale) = server.patch(&path, json!({"after": "3h", "if_version": created["version"]})).await;
    assert_eq!((status, &stale["version"]), (409, &moved["version"]));
    let (status, at) = server.patch(&path, json!({"at": "2100-01-01T00:00:00+01:00"})).await;
    assert_eq!((status, &at["due"]), (200, &json!("2099-12-31T23:00:00Z")));
    assert_eq!(server.patch(&path, json!({})).await.0, 422);
    assert_eq!(server.patch(&path, json!({"after": "3h", "if_version": 1_u64 << 63})).await.0, 422);
    assert_eq!(server.patch(&path, json!({"at": "1969-01-01T00:00:00Z"})).await.0, 422);
    let nobody = "/v1/timers/0199f3a2-7c1e-7b5d-9c55-2f2f7a2f1a10";
    assert_eq!(server.patch(nobody, json!({"after": "1s"})).await.0, 404);
    server.stop().await;
}

#[tokio::test]
async fn u4_lists_are_filtered_and_their_cursors_lead_through_all_pages() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let timers: Vec<Value> = (0..7)
        .map(|number| json!({"key": format!("k{number}"), "name": "n", "at": format!("2100-01-0{}T00:00:00Z", number + 1), "deliver": {"queue": "q"}}))
        .collect();
    let (status, batch) = server.post("/v1/timers/batch", json!({"timers": timers})).await;
    assert_eq!((status, batch["results"].as_array().unwrap().len()), (200, 7));
    let mut other = far("k9");
    other["namespace"] = json!("other");
    server.create(other).await;
    let mut found = Vec::new();
    let mut path = "/v1/timers?namespace=default&limit=3".to_owned();
    loop {
        let (status, page) = server.get(&path).await;
        assert_eq!(status, 200, "{page}");
        found.extend(page["timers"].as_array().unwrap().iter().map(|timer| timer["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/timers?namespace=default&limit=3&cursor={next}");
    }
    assert_eq!(found, ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
    for (query, count) in [
        ("", 8),
        ("key=k3", 1),
        ("name=n", 7),
        ("prefix=k", 8),
        ("state=armed&namespace=other", 1),
        ("state=dead", 0),
        ("due_after=2100-01-06T00:00:00Z&due_before=2100-01-07T00:00:00Z", 1),
    ] {
        let (status, page) = server.get(&format!("/v1/timers?{query}")).await;
        assert_eq!((status, page["timers"].as_array().map(Vec::len)), (200, Some(count)), "{query}: {page}");
    }
    for bad in ["limit=0", "limit=100000", "cursor=x", "due_after=yesterday", "state=gone", "what=1"] {
        assert!(matches!(server.get(&format!("/v1/timers?{bad}")).await.0, 400 | 422), "{bad}");
    }
    server.stop().await;
}

#[tokio::test]
async fn u4_a_timer_shows_what_was_asked_for_and_how_it_ended() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let asked = json!({
        "namespace": "shop", "key": "<script>alert(1)</script>", "name": "é \"quoted\"", "cron": "30 2 * * *", "zone": "Europe/Berlin",
        "times": 3, "payload": {"order": 4711}, "deliver": {"webhook": {"url": "https://example.com/hook", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "headers": {"x-a": "b"}}},
        "retry": {"attempts": 3}, "missed": {"skip": {"older_than": "1h"}},
    });
    let id = server.create(asked).await;
    let (status, timer) = server.get(&format!("/v1/timers/{id}")).await;
    assert_eq!(status, 200);
    let shown = &timer["occurrences"][0];
    assert_eq!(
        (&timer["state"], &shown["zone"], &shown["times_left"]),
        (&json!("armed"), &json!("Europe/Berlin"), &json!(3))
    );
    assert_eq!(shown["payload"], json!({"order": 4711}));
    assert_eq!(shown["deliver"]["webhook"]["url"], "https://example.com/hook");
    assert_eq!((&shown["retry"]["attempts"], &shown["missed"]), (&json!(3), &json!({"skip": {"older_than": "3600s"}})));
    assert!(!timer.to_string().contains("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "a secret is never shown");
    server.delete(&format!("/v1/timers/{id}")).await;
    let (status, ended) = server.get(&format!("/v1/timers/{id}")).await;
    assert_eq!(
        (status, &ended["state"], &ended["history"][0]["state"]),
        (200, &json!("cancelled"), &json!("cancelled"))
    );
    server.stop().await;
}

#[tokio::test]
async fn u8_payloads_are_json_or_bytes_and_have_a_limit() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| config.limits.payload = 100).await;
    for (payload, media) in [
        (json!({"payload": [1, 2.5, null, "ü"]}), "application/json"),
        (json!({"payload_base64": "AAEC/w==", "content_type": "image/x-test"}), "image/x-test"),
    ] {
        let mut timer = json!({"after": "0s", "deliver": {"queue": "q"}});
        timer.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
        server.create(timer).await;
        let pulled = server.pull("q", json!({"wait": "10s"})).await.remove(0);
        assert_eq!(pulled["content_type"], media);
        for (name, value) in payload.as_object().unwrap() {
            assert_eq!(&pulled[name], value);
        }
    }
    let mut large = far("a");
    large["payload"] = json!("x".repeat(200));
    let (status, problem) = server.post("/v1/timers", large).await;
    assert_eq!((status, problem["detail"].as_str().unwrap().contains("100")), (422, true));
    server.stop().await;
}

#[tokio::test]
async fn u6_a_repeating_timer_is_delivered_as_often_as_it_was_asked_for() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let id = server
        .create(json!({"every": "30ms", "times": 3, "missed": {"all": {"at_most": 100}}, "deliver": {"queue": "q"}}))
        .await;
    let mut occurrences = Vec::new();
    while occurrences.len() < 3 {
        for timer in server.pull("q", json!({"wait": "10s", "max": 10})).await {
            occurrences.push(timer["occurrence"].as_u64().unwrap());
            let (status, acked) = server.post("/v1/queues/q/ack", json!({"receipts": [timer["receipt"]]})).await;
            assert_eq!((status, &acked["accepted"]), (200, &json!(1)));
        }
    }
    assert_eq!(occurrences, [1, 2, 3]);
    let (_, ended) = server.get(&format!("/v1/timers/{id}")).await;
    assert_eq!((&ended["state"], ended["history"].as_array().unwrap().len()), (&json!("fired"), 3));
    server.stop().await;
}

#[tokio::test]
async fn requests_that_contradict_themselves_are_refused_with_a_reason() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let queue = json!({"queue": "q"});
    let hook = |url: &str| json!({"webhook": {"url": url}});
    for bad in [
        json!({"deliver": queue}),
        json!({"after": "1s", "at": "2100-01-01T00:00:00Z", "deliver": queue}),
        json!({"after": "-1s", "deliver": queue}),
        json!({"after": 5, "deliver": queue}),
        json!({"every": "0s", "deliver": queue}),
        json!({"cron": "61 * * * *", "deliver": queue}),
        json!({"cron": "0 0 30 2 *", "deliver": queue}),
        json!({"cron": "* * * * *", "zone": "Mars/Olympus", "deliver": queue}),
        json!({"after": "1s", "zone": "UTC", "deliver": queue}),
        json!({"after": "1s", "times": 2, "deliver": queue}),
        json!({"at": "9999-12-31T23:59:59Z", "deliver": queue}),
        json!({"after": "1s"}),
        json!({"after": "1s", "deliver": {}}),
        json!({"after": "1s", "deliver": {"queue": "a/b"}}),
        json!({"after": "1s", "deliver": {"queue": ""}}),
        json!({"after": "1s", "deliver": {"queue": "q"}, "kye": "a"}),
        json!({"after": "1s", "deliver": queue, "namespace": "a b"}),
        json!({"after": "1s", "deliver": queue, "key": "a\nb"}),
        json!({"after": "1s", "deliver": queue, "key": ""}),
        json!({"after": "1s", "deliver": queue, "payload": 1, "payload_base64": "AA=="}),
        json!({"after": "1s", "deliver": queue, "payload_base64": "%"}),
        json!({"after": "1s", "deliver": queue, "retry": {"attempts": 0}}),
        json!({"after": "1s", "deliver": queue, "retry": {"attempts": 1_u32 << 31}}),
        json!({"after": "1s", "deliver": queue, "retry": {"factor": 1_u32 << 31}}),
        json!({"every": "1s", "deliver": queue, "times": 1_u64 << 63}),
        json!({"every": "1s", "deliver": queue, "missed": {"all": {"at_most": 1_u64 << 63}}}),
        json!({"after": "1s", "deliver": hook("ftp://example.com/")}),
        json!({"after": "1s", "deliver": hook("/hook")}),
        json!({"after": "1s", "deliver": hook("https://user:pw@example.com/")}),
        json!({"after": "1s", "deliver": {"webhook": {"url": "https://example.com/", "headers": {"webhook-id": "x"}}}}),
        json!({"after": "1s", "deliver": {"webhook": {"url": "https://example.com/", "headers": {"x-a": "b\r\nx-b: c"}}}}),
        json!({"after": "1s", "deliver": {"webhook": {"url": "https://example.com/", "headers": {"a b": "c"}}}}),
        json!({"after": "1s", "deliver": {"webhook": {"url": "https://example.com/", "secret": "short"}}}),
    ] {
        let (status, problem) = server.post("/v1/timers", bad.clone()).await;
        assert!(matches!(status, 400 | 422), "{bad}: {problem}");
    }
    let good = far("good");
    let (status, problem) =
        server.post("/v1/timers/batch", json!({"timers": [good, {"cron": "x", "deliver": queue}]})).await;
    assert_eq!((status, problem["detail"].as_str().unwrap().starts_with("timers[1]: ")), (422, true), "{problem}");
    let (_, list) = server.get("/v1/timers").await;
    assert_eq!(list["timers"], json!([]), "nothing was created");
    server.stop().await;
}

#[tokio::test]
async fn o7_the_description_names_every_path_and_the_page_needs_nothing_from_elsewhere() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let (status, description) = server.get("/openapi.json").await;
    assert_eq!((status, description["openapi"].as_str().unwrap().starts_with("3.1")), (200, true));
    let paths = description["paths"].as_object().unwrap();
    for path in [
        "/v1/timers",
        "/v1/timers/batch",
        "/v1/timers/{id}",
        "/v1/cancel",
        "/v1/queues/{queue}/pull",
        "/v1/queues/{queue}/ack",
        "/v1/queues/{queue}/nack",
        "/v1/queues/{queue}/extend",
        "/v1/dead-letters",
        "/metrics",
        "/healthz",
        "/readyz",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
    let (status, page) = server.get("/docs").await;
    let page = page.as_str().unwrap();
    assert_eq!(status, 200);
    assert!(page.contains("/v1/queues/{queue}/pull") && !page.contains("<script") && !page.contains("src="));
    for (path, text) in [("/healthz", "ok"), ("/readyz", "ready"), ("/metrics", "tourbillon_timers{state=\"armed\"} 0")]
    {
        let (status, body) = answer(server.request(reqwest::Method::GET, path)).await;
        assert!(status == 200 && body.as_str().unwrap().contains(text), "{path}: {body}");
    }
    server.stop().await;
}

//! The dashboard in Chromium, through its driver.

use serde_json::{Value, json};
use tourbillon_client::NewTimer;
use tourbillon_tools::browser::{Browser, Window};

use crate::server::TestServer;

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";
const SPACE: &str = "\u{e00d}";

/// What would run if a page took a name for markup.
const SCRIPT: &str = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";

#[test]
fn o7_in_a_browser_a_timer_is_created_seen_to_fire_searched_and_cancelled() {
    let Some(browser) = Browser::start("the dashboard: create, fire, search, cancel") else { return };
    let server = TestServer::start();
    browser.go(&server.address);
    browser.wait_for_text("#list", "No timer is pending");
    browser.wait_until("the page is live", "return document.querySelector('.live').dataset.state === 'live'");

    browser.click("#new-timer");
    browser.write("#new-after", "1500ms");
    browser.write("#new-queue", "emails");
    browser.write("#new-key", "order 1");
    browser.write("#new-payload", "{\"order\": 1}");
    browser.click("button.main");
    browser.wait_for_text(".notice", "The timer was created");
    browser.wait_for_text("#now", "Due soon");
    browser.wait_until("it is live", "return document.querySelector('.live').dataset.state === 'live'");
    server.work("emails");
    // Nobody reloads the page.
    browser.wait_for_text("#history", "Fired");
    browser.wait_for_text("#now", "This timer has ended");

    let id = server.create(NewTimer::after("1h").queue("emails").key("order 2").name("customer 7"));
    server.create(NewTimer::after("2h").queue("emails").key("invoice 3"));
    browser.go(&server.address);
    browser.wait_for_text("#tile-pending b", "2");
    browser.write("#search-text", "order");
    browser.click("form.search button");
    browser.wait_until("the page shows what was found", "return location.search.includes('order')");
    browser.wait_for_text("#list", "order 2");
    assert!(!browser.text("#list").contains("invoice 3"), "{}", browser.text("#list"));
    browser.click(&format!("[id='row-{id}-1']"));
    browser.wait_for_text("h1", "order 2");
    browser.click(&format!("[id='cancel-{id}-1']"));
    browser.accept();
    browser.wait_for_text(".notice", "The timer was cancelled");
    browser.wait_for_text("#history", "Cancelled");
    browser.go(&server.address);
    browser.wait_for_text("#tile-pending b", "1");

    // A timer that another client creates appears by itself.
    server.create(NewTimer::after("20s").queue("emails").key("from elsewhere"));
    browser.wait_for_text("#list", "from elsewhere");
    // The colour of nothing comes from an inline style, and no request went elsewhere.
    assert_eq!(foreign_requests(&browser, &server.address), json!([]));
}

#[test]
fn o7_v4_in_a_browser_a_dead_letter_is_replayed_and_another_discarded() {
    let Some(browser) = Browser::start("the dashboard: dead letters") else { return };
    let server = TestServer::start();
    // Nobody listens at port 9 of this machine, or it does not answer as a webhook does.
    let dead = |key: &str| {
        NewTimer::after("1ms").webhook("http://127.0.0.1:9/").key(key).set("retry", json!({ "attempts": 1 }))
    };
    let replayed = server.create(dead("to replay"));
    let discarded = server.create(dead("to discard"));
    browser.go(&format!("{}/?view=dead", server.address));
    browser.wait_for_text("#tile-dead b", "2");
    browser.wait_for_text("#list", "to discard");
    browser.click(&format!("[id='discard-{discarded}-1']"));
    browser.accept();
    browser.wait_for_text(".notice", "The dead letter was discarded");
    browser.go(&format!("{}/?view=dead", server.address));
    browser.wait_for_text("#tile-dead b", "1");
    browser.click(&format!("[id='replay-{replayed}-1']"));
    browser.wait_for_text(".notice", "The dead letter is delivered once more");
    // It fails again, because still nobody listens.
    browser.wait_for_text("#now", "attempt 2 of 1");
    browser.wait_for_text("#now", "Dead");
}

#[test]
fn o7_in_a_browser_everything_can_be_done_by_keyboard() {
    let Some(browser) = Browser::start("the dashboard by keyboard") else { return };
    let server = TestServer::start();
    browser.go(&server.address);
    browser.press(TAB);
    assert_eq!(focused(&browser), "Skip to the content");
    // The letter n goes to the form, whose first field has the focus.
    browser.press("n");
    browser.wait_until("the form is there", "return document.activeElement.id === 'new-after'");
    browser.press("1h");
    tab_to(&browser, "new-queue");
    browser.press("emails");
    tab_to(&browser, "new-key");
    browser.press("typed");
    browser.press(ENTER);
    browser.wait_for_text("h1", "typed");
    browser.wait_for_text("#now", "Pending");

    // The slash goes to the search.
    browser.go(&server.address);
    browser.wait_for_text("#list", "typed");
    browser.press("/");
    browser.wait_until("the search has the focus", "return document.activeElement.id === 'search-text'");
    browser.press("typed");
    browser.press(ENTER);
    browser.wait_until("the page shows what was found", "return location.search.includes('typed')");
    browser.wait_for_text("#list", "typed");
    let id = browser.run("return document.querySelector('#list .what').id");
    let row = id.as_str().expect("a row").to_owned();
    tab_to(&browser, &row);
    // What is updated meanwhile does not take the focus away.
    server.create(NewTimer::after("1h").queue("emails").key("typed too"));
    browser.wait_for_text("#list", "typed too");
    assert_eq!(browser.run("return document.activeElement.id"), Value::String(row.clone()));
    tab_to(&browser, &row.replace("row-", "cancel-"));
    browser.press(SPACE);
    browser.accept();
    browser.wait_for_text(".notice", "The timer was cancelled");
}

#[test]
fn o7_in_a_browser_pages_fit_a_phone_have_dark_colours_and_show_script_as_text() {
    let Some(browser) = Browser::start("the dashboard on a phone, dark, and with script in names") else { return };
    let server = TestServer::start();
    let long = "a-word-without-any-space-".repeat(3);
    let timer = NewTimer::after("1h").queue("emails").key(SCRIPT).name(long.as_str());
    let id = server.create(timer.payload(json!({ "html": SCRIPT, "long": "x".repeat(500) })));
    let pages =
        ["/".to_owned(), "/?q=%3Cscript".to_owned(), "/new".to_owned(), format!("/timers/{id}"), "/login".to_owned()];
    for window in [Window::PHONE, Window { is_dark: true, ..Window::DESK }] {
        browser.set_window(window);
        for page in &pages {
            browser.go(&format!("{}{page}", server.address));
            let sizes = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
            assert!(sizes[0].as_u64() <= sizes[1].as_u64(), "{page} scrolls sideways: {sizes}");
            assert_ne!(browser.run("return document.title"), json!("owned"), "{page}");
            assert_eq!(
                browser.run("return document.querySelectorAll('main script, main img').length"),
                json!(0),
                "{page}"
            );
            let text = browser.run("return getComputedStyle(document.body).color");
            let ground = browser.run("return getComputedStyle(document.body).backgroundColor");
            let (text, ground) = (brightness(&text), brightness(&ground));
            assert_eq!(text > ground, window.is_dark, "{page}: text {text}, background {ground}");
            assert!(text.abs_diff(ground) > 120, "{page}: text {text}, background {ground}");
        }
        browser.go(&format!("{}/timers/{id}", server.address));
        assert_eq!(browser.text("h1"), SCRIPT);
        assert!(browser.text("pre").contains("<script>"), "{}", browser.text("pre"));
    }
}

/// Returns the text of the element that has the focus.
fn focused(browser: &Browser) -> String {
    browser.run("return document.activeElement.textContent").as_str().unwrap_or_default().to_owned()
}

/// Presses Tab until an element has the focus.
fn tab_to(browser: &Browser, id: &str) {
    for _ in 0..40 {
        if browser.run("return document.activeElement.id") == Value::String(id.to_owned()) {
            return;
        }
        browser.press(TAB);
    }
    panic!("the element {id} cannot be reached with the Tab key");
}

/// Returns the addresses outside of the server that the page has asked.
fn foreign_requests(browser: &Browser, address: &str) -> Value {
    let script = format!(
        "return performance.getEntriesByType('resource').map((entry) => entry.name).filter((name) => !name.startsWith({}));",
        json!(address)
    );
    browser.run(&script)
}

/// Returns how bright a colour such as `rgb(1, 2, 3)` is: the sum of its parts.
fn brightness(colour: &Value) -> u32 {
    let text = colour.as_str().unwrap_or_default();
    let numbers = text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    numbers.take(3).sum()
}

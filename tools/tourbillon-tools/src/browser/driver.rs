//! A client of WebDriver, as much of it as the tests of pages need: HTTP and JSON over a loopback connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{chromium, common_arguments, not_tested, program};

/// How long a page may take until it shows what a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the driver may take for one command; the machine may be busy.
const COMMAND: Duration = Duration::from_secs(240);

/// Tests take turns: browsers that start together are slower than one after the other.
static TURN: Mutex<()> = Mutex::new(());

/// What WebDriver calls an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// How large a window is, and which colours its reader prefers.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Width in CSS pixels.
    pub width: u32,
    /// Height in CSS pixels.
    pub height: u32,
    /// Whether it is a phone: with touch, and without scroll bars that take room.
    pub is_phone: bool,
    /// Whether the reader prefers dark colours.
    pub is_dark: bool,
}

impl Window {
    /// A window on a desk.
    pub const DESK: Window = Window { width: 1280, height: 900, is_phone: false, is_dark: false };
    /// A small phone.
    pub const PHONE: Window = Window { width: 360, height: 740, is_phone: true, is_dark: false };
}

/// A browser that a test drives. It ends with the value.
///
/// All methods panic with what the driver says if it refuses a command: in a test that is the failure.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Browser {
    /// Starts a browser; without Chromium or its driver, reports what is not tested.
    #[must_use]
    pub fn start(untested: &str) -> Option<Browser> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);

        let chromium = chromium(untested)?;
        let Some(chromedriver) = program(&["chromedriver"]) else {
            not_tested(untested, "no chromedriver (Debian's package chromium-driver)");
            return None;
        };
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tourbillon-driver-{}-{number}", std::process::id());
        let profile = std::env::temp_dir().join(name);
        let mut command = Command::new(chromedriver);
        let mut driver = command
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver can be started");
        let port = port_of(&mut driver);
        let mut browser = Browser { driver, port, session: String::new(), profile, _turn: turn };
        let options = json!({ "binary": chromium, "args": common_arguments(&browser.profile) });
        let capabilities = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.call("POST", "/session", Some(&capabilities));
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        browser.set_window(Window::DESK);
        Some(browser)
    }

    /// Sets the size and the colours of the window.
    pub fn set_window(&self, window: Window) {
        let size = json!({ "width": window.width, "height": window.height, "deviceScaleFactor": 1, "mobile": window.is_phone });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if window.is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", &media);
    }

    /// Sends a command of the developer tools.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Loads a page.
    pub fn go(&self, address: &str) {
        self.post("/url", &json!({ "url": address }));
    }

    /// Returns the address of the page.
    #[must_use]
    pub fn address(&self) -> String {
        self.run("return location.href").as_str().unwrap_or_default().to_owned()
    }

    /// Runs a script in the page, and returns what it returns.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until a script returns true, or panics with the text of the page.
    pub fn wait_until(&self, what: &str, script: &str) {
        let begin = Instant::now();
        // A script fails while the browser goes from one page to the next, and where what it looks at does not exist yet.
        let path = format!("/session/{}/execute/sync", self.session);
        let query = json!({ "script": script, "args": [] });
        while self.try_call("POST", &path, Some(&query)) != Ok(Value::Bool(true)) {
            if begin.elapsed() > PATIENCE {
                let page = self.run("return document.body.innerText");
                panic!("{what}: not within {PATIENCE:?}. The page at {}: {page}", self.address());
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// Waits until an element has a text.
    pub fn wait_for_text(&self, selector: &str, text: &str) {
        let script = format!(
            "const element = document.querySelector({}); return !!element && element.textContent.includes({});",
            json!(selector),
            json!(text)
        );
        self.wait_until(&format!("{selector} shows {text:?}"), &script);
    }

    /// Returns the visible text of an element.
    #[must_use]
    pub fn text(&self, selector: &str) -> String {
        self.on_element(selector, "GET", "text", None).as_str().unwrap_or_default().to_owned()
    }

    /// Clicks an element, as a mouse would.
    pub fn click(&self, selector: &str) {
        self.on_element(selector, "POST", "click", Some(&json!({})));
    }

    /// Types a text into an element.
    pub fn write(&self, selector: &str, text: &str) {
        self.on_element(selector, "POST", "clear", Some(&json!({})));
        self.on_element(selector, "POST", "value", Some(&json!({ "text": text })));
    }

    /// Presses keys, wherever the focus is. `\u{e004}` is Tab, `\u{e007}` Enter, `\u{e00d}` the space bar.
    pub fn press(&self, keys: &str) {
        let presses = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        });
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": presses.collect::<Vec<_>>() });
        self.post("/actions", &json!({ "actions": [keyboard] }));
    }

    /// Answers a question of the page with yes.
    pub fn accept(&self) {
        let path = format!("/session/{}/alert/accept", self.session);
        retry("accept", &["no such alert"], || self.try_call("POST", &path, Some(&json!({}))));
    }

    /// Sends a command to an element, as soon as the element exists. A live page may replace the element between the
    /// search and the command, and a page that is left has no elements at all: then the element is searched again.
    fn on_element(&self, selector: &str, method: &str, command: &str, body: Option<&Value>) -> Value {
        let session = format!("/session/{}", self.session);
        let query = json!({ "using": "css selector", "value": selector });
        retry(&format!("{command} of {selector}"), &["no such element", "stale element reference"], || {
            let element = self.try_call("POST", &format!("{session}/element"), Some(&query))?;
            let element = element[ELEMENT].as_str().expect("an element");
            self.try_call(method, &format!("{session}/element/{element}/{command}"), body)
        })
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}{path}", self.session), Some(body))
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {}", error["message"]))
    }

    /// Returns what the driver answers, or the error that it reports.
    fn try_call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Value> {
        let answer = self.exchange(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
        let mut value: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
        let value = value["value"].take();
        if head.split(' ').nth(1) == Some("200") { Ok(value) } else { Err(value) }
    }

    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<String> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(COMMAND))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        // The driver keeps the connection open, whatever it is asked for: the length says where the answer ends.
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while stream.read_line(&mut head)? > 2 {}
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<u64>().ok())?
        });
        stream.take(length.unwrap_or(0)).read_to_string(&mut head)?;
        Ok(head)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session, and is left behind if only its driver ends.
        if !self.session.is_empty() {
            let _ended = self.exchange("DELETE", &format!("/session/{}", self.session), None);
        }
        let _ended = self.driver.kill();
        let _ended = self.driver.wait();
        let _removed = std::fs::remove_dir_all(&self.profile);
    }
}

/// Repeats a command while it fails with one of the errors that pass by themselves.
fn retry(what: &str, passing: &[&str], command: impl Fn() -> Result<Value, Value>) -> Value {
    let begin = Instant::now();
    loop {
        match command() {
            Ok(value) => return value,
            Err(error) if passing.iter().any(|&name| error["error"] == name) && begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(25));
            }
            Err(error) => panic!("{what}: {}", error["message"]),
        }
    }
}

/// Reads the port that a driver has chosen.
fn port_of(driver: &mut Child) -> u16 {
    let output = BufReader::new(driver.stdout.take().expect("a pipe"));
    for line in output.lines().map_while(Result::ok) {
        let number = line.rsplit("on port ").next().filter(|_| line.contains("started successfully"));
        if let Some(port) = number.and_then(|number| number.trim_end_matches('.').parse().ok()) {
            return port;
        }
    }
    panic!("chromedriver does not say on which port it listens");
}

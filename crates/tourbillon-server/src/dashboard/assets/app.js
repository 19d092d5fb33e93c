// Keeps a page of the dashboard up to date: it listens to the events of timers, fetches the page again when something has happened, and
// replaces the parts that are marked as live. Everything works without it, by reloading.
"use strict";

(() => {
  const button = document.querySelector(".live");
  const shortestPause = 700;
  const longestPause = 10000;
  let source = null;
  let fetched = 0;
  let timer = 0;
  let isPaused = false;
  let isBusy = false;

  const show = (state, text) => {
    if (!button) return;
    button.hidden = false;
    button.dataset.state = state;
    button.textContent = text;
    button.setAttribute("aria-pressed", String(isPaused));
  };

  // Relative times are counted here; the server has written them as of the moment of its answer.
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const relative = (seconds) => {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const index = units.findIndex(([, length]) => size >= length);
    const [unit, length] = units[index];
    let text = `${Math.floor(size / length)} ${unit}`;
    const next = units[index + 1];
    if (next && unit !== "s" && size < 10 * length) {
      const rest = Math.floor((size % length) / next[1]);
      if (rest > 0) text += ` ${rest} ${next[0]}`;
    }
    return seconds < 0 ? `${text} ago` : `in ${text}`;
  };
  const tick = () => {
    const now = Date.now();
    for (const element of document.querySelectorAll("time[data-relative]")) {
      const text = relative((Date.parse(element.dateTime) - now) / 1000);
      if (element.textContent !== text) element.textContent = text;
    }
  };

  const replace = (fresh) => {
    const focused = document.activeElement && document.activeElement.id;
    for (const old of document.querySelectorAll("[data-live]")) {
      const part = fresh.getElementById(old.id);
      if (!part || part.isEqualNode(old)) continue;
      // A selection of text is not taken away from its reader.
      const selection = getSelection();
      if (selection && !selection.isCollapsed && old.contains(selection.anchorNode)) continue;
      old.replaceWith(part);
    }
    if (focused && (!document.activeElement || document.activeElement === document.body)) {
      const again = document.getElementById(focused);
      if (again) again.focus({ preventScroll: true });
    }
    tick();
  };

  const refresh = async () => {
    timer = 0;
    if (isPaused || isBusy || document.hidden) return;
    isBusy = true;
    fetched = Date.now();
    try {
      const answer = await fetch(location.href, { headers: { "x-dashboard-refresh": "1" }, credentials: "same-origin", cache: "no-store" });
      if (answer.redirected) {
        location.reload();
      } else if (answer.ok || answer.status === 404) {
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"));
      }
    } catch {
      // The connection of the events says that the server cannot be reached.
    } finally {
      isBusy = false;
    }
  };
  const refreshSoon = () => {
    if (timer || isPaused) return;
    timer = setTimeout(refresh, Math.max(60, fetched + shortestPause - Date.now()));
  };

  const listen = () => {
    source = new EventSource("/v1/events" + (document.body.dataset.events || ""));
    source.onopen = () => { show("live", "Live"); refreshSoon(); };
    source.onerror = () => show("lost", "Reconnecting");
    for (const name of ["created", "rescheduled", "cancelled", "claimed", "fired", "failed", "dead", "skipped", "replayed", "discarded", "lagged", "reset"]) {
      source.addEventListener(name, refreshSoon);
    }
  };
  const stop = () => { if (source) source.close(); source = null; };

  document.addEventListener("submit", (event) => {
    const question = event.target.dataset && event.target.dataset.confirm;
    if (question && !confirm(question)) event.preventDefault();
  });
  // A choice shows the fields that belong to it.
  const choose = () => {
    for (const field of document.querySelectorAll("[data-shown-for]")) {
      const [name, value] = field.dataset.shownFor.split("=");
      const chosen = document.querySelector(`input[name="${name}"]:checked`);
      field.hidden = !!chosen && chosen.value !== value;
    }
  };
  document.addEventListener("change", choose);
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = { "/": "search-text", n: "new-timer" }[event.key];
    const element = target && document.getElementById(target);
    if (!element) return;
    event.preventDefault();
    if (element.tagName === "A") element.click(); else element.focus();
  });

  choose();
  tick();
  setInterval(tick, 1000);
  if (!document.querySelector("[data-live]")) return;
  if (button) {
    button.addEventListener("click", () => {
      isPaused = !isPaused;
      if (isPaused) { stop(); show("paused", "Paused"); } else { listen(); refreshSoon(); }
    });
  }
  setInterval(() => { if (Date.now() - fetched > longestPause) refreshSoon(); }, 2500);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refreshSoon(); });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => { if (event.persisted && !isPaused) { stop(); listen(); } });
  show("waiting", "Connecting");
  listen();
})();

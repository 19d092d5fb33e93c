#!/usr/bin/env node
// Creates a timer, and reads the events of the server until it is delivered. Node 18 or newer, without packages.
const server = process.env.TOURBILLON_SERVER ?? "http://127.0.0.1:7117";
const headers = { "content-type": "application/json" };
if (process.env.TOURBILLON_API_KEY) headers.authorization = `Bearer ${process.env.TOURBILLON_API_KEY}`;

async function call(method, path, body) {
  const answer = await fetch(server + path, { method, headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(30_000) });
  const value = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${value.detail}`);
  return value;
}

// Yields server-sent events as objects.
async function* events(path, signal) {
  const answer = await fetch(server + path, { headers: { ...headers, accept: "text/event-stream" }, signal });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  let text = "";
  for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("");
      if (data) yield JSON.parse(data);
    }
  }
}

// A worker that acknowledges what it gets.
async function work(queue) {
  const { timers } = await call("POST", `/v1/queues/${queue}/pull`, { max: 1, wait: "10s", lease: "10s" });
  for (const timer of timers) await call("POST", `/v1/queues/${queue}/ack`, { receipts: [timer.receipt] });
}

const listening = new AbortController();
const timeout = setTimeout(() => { console.error("the timer did not fire within 20 seconds"); process.exit(1); }, 20_000);
const stream = events("/v1/events?key=node%20tea", listening.signal);
const first = stream.next();
await call("POST", "/v1/timers", { key: "node tea", after: "300ms", payload: { text: "pour the tea" }, deliver: { queue: "node" } });
const working = work("node");
const seen = [];
for (let next = await first; !next.done; next = await stream.next()) {
  console.log(next.value.at, next.value.type, next.value.key ?? next.value.id);
  seen.push(next.value.type);
  if (next.value.type === "fired") break;
}
await working;
clearTimeout(timeout);
listening.abort();
if (seen.join() !== "created,claimed,fired") throw new Error(`unexpected events: ${seen}`);

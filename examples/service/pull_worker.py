#!/usr/bin/env python3
"""A worker that pulls timers from a queue, with Python's standard library only.

Creates a few timers, works on them, and ends when all are done. Delivery is at least once: the pair of id and occurrence is the same for
every attempt, so the worker remembers it and does the work only once.
"""

import json
import os
import urllib.error
import urllib.request

SERVER = os.environ.get("TOURBILLON_SERVER", "http://127.0.0.1:7117")
API_KEY = os.environ.get("TOURBILLON_API_KEY")
QUEUE = "reminders"


def call(method, path, body=None, timeout=30):
    """Sends a request and returns the answer; an error of the server says what to do."""
    headers = {"content-type": "application/json"}
    if API_KEY:
        headers["authorization"] = f"Bearer {API_KEY}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(SERVER + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        problem = json.loads(error.read() or b"{}")
        raise SystemExit(f"{method} {path}: {error.code} {problem.get('detail')}") from None


def work(timer):
    """The work itself. It fails once, to show a second attempt."""
    if timer["payload"]["text"] == "water the plants" and timer["attempt"] == 1:
        raise RuntimeError("the can is empty")
    print(f"  {timer['payload']['text']} (attempt {timer['attempt']})")


def main():
    texts = ["pour the tea", "water the plants", "lock the door"]
    for text in texts:
        body = {
            "after": "200ms",
            "key": f"python {text}",
            "payload": {"text": text},
            "deliver": {"queue": QUEUE},
            "retry": {"attempts": 3, "first": "100ms"},
        }
        call("POST", "/v1/timers", body)

    done = set()
    while len(done) < len(texts):
        # Waits up to five seconds for timers that are due. Each is ours for ten seconds.
        pulled = call("POST", f"/v1/queues/{QUEUE}/pull", {"max": 10, "wait": "5s", "lease": "10s"})
        for timer in pulled["timers"]:
            identity = (timer["id"], timer["occurrence"])
            try:
                if identity not in done:
                    work(timer)
                done.add(identity)
                call("POST", f"/v1/queues/{QUEUE}/ack", {"receipts": [timer["receipt"]]})
            except RuntimeError as error:
                print(f"  {timer['payload']['text']}: {error}, to be tried again")
                call("POST", f"/v1/queues/{QUEUE}/nack", {"receipts": [timer["receipt"]], "error": str(error)})
    print(f"{len(done)} reminders are done")


if __name__ == "__main__":
    main()

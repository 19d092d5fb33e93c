#!/usr/bin/env python3
"""A receiver of webhooks that verifies their signatures (Standard Webhooks), with Python's standard library only.

Creates a timer whose webhook is this program, waits until it has been delivered, and ends. The server must be allowed to call this machine:
`tourbillon serve --set webhooks.allow_private=true`.
"""

import base64
import hashlib
import hmac
import http.server
import json
import os
import threading
import time
import urllib.request

SERVER = os.environ.get("TOURBILLON_SERVER", "http://127.0.0.1:7117")
API_KEY = os.environ.get("TOURBILLON_API_KEY")
SECRET = "whsec_" + base64.b64encode(b"a secret of 32 bytes for example").decode()
TOLERANCE_SECONDS = 300


def is_genuine(headers, body):
    """Returns whether the request was signed with the secret, and not long ago."""
    message_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
    if not message_id or not timestamp or abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    # There is one signature for each key while keys are being changed.
    signatures = [part.split(",", 1) for part in headers["webhook-signature"].split(" ")]
    return any(version == "v1" and hmac.compare_digest(given, expected) for version, given in signatures)


class Receiver(http.server.BaseHTTPRequestHandler):
    received = {}
    is_done = threading.Event()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if not is_genuine(self.headers, body):
            self.answer(401)
            return
        # The same id comes again if the answer was lost: the work is done only once.
        if self.headers["webhook-id"] not in self.received:
            self.received[self.headers["webhook-id"]] = body
        self.answer(204)
        self.is_done.set()

    def answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def post(url, body, headers):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"

    # A request without a valid signature is refused.
    forged = urllib.request.Request(address, b"{}", {"webhook-id": "1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,AAAA"})
    try:
        urllib.request.urlopen(forged, timeout=10)
        raise SystemExit("a forged request was accepted")
    except urllib.error.HTTPError as error:
        assert error.code == 401, error

    timer = {
        "after": "200ms",
        "key": "python webhook",
        "payload": {"order": 4711},
        "deliver": {"webhook": {"url": address, "secret": SECRET}},
    }
    authorization = {"authorization": f"Bearer {API_KEY}"} if API_KEY else {}
    created = post(f"{SERVER}/v1/timers", timer, authorization)
    print(f"created {created['id']}")
    if not Receiver.is_done.wait(timeout=20):
        raise SystemExit("no webhook came within 20 seconds; is the server allowed to call this machine (webhooks.allow_private)?")
    [(message_id, body)] = Receiver.received.items()
    print(f"received {message_id}: {body.decode()}")
    server.shutdown()


if __name__ == "__main__":
    main()

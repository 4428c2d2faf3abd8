"""Four stand-ins for language-model endpoints on this machine: they take time, fail at times, and cost.

    python examples/endpoints.py 8123

POST {"item": {...}} to /large, /tuned, /small or /tiny is answered by {"output": "...", "cost": 0.004}. One
call in twelve is refused with HTTP status 503. The answer to a question never changes.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# accuracy by language, seconds and price of a call
MODELS: dict[str, tuple[dict[str, float], float, float]] = {
    "large": ({"English": 0.95, "Swahili": 0.91}, 0.004, 0.0040),
    "tuned": ({"English": 0.98, "Swahili": 0.60}, 0.002, 0.0020),  # the best in English
    "small": ({"English": 0.88, "Swahili": 0.84}, 0.001, 0.0005),
    "tiny": ({"English": 0.55, "Swahili": 0.40}, 0.001, 0.0001),
}
WORDS = ("north", "south", "east", "west")
FAILURES = 12  # one call in so many is refused


def questions(count: int = 3000) -> list[dict[str, str]]:
    """Return questions in two languages, with the right answers."""
    return [
        {
            "id": f"question {n:04}",
            "language": "Swahili" if n % 3 == 0 else "English",
            "prompt": f"Which way is number {n}?",
            "answer": WORDS[n % 4],
        }
        for n in range(count)
    ]


def answer(model: str, item: dict[str, str]) -> str:
    """Return the answer of a model: right on easy questions, which are easy for all models."""
    difficulty = 0.85 * _draw(item["id"]) + 0.15 * _draw(model + item["id"])
    right = difficulty < 0.075 + 0.85 * MODELS[model][0][item["language"]]
    return item["answer"] if right else "up"


def serve(port: int = 0) -> ThreadingHTTPServer:
    """Return a running server; its port is `server_address[1]`, and `shutdown` ends it."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def write_study(folder: Path, port: int, count: int = 3000) -> Path:
    """Write the items and a study that evaluates the four endpoints; return its path."""
    lines = [json.dumps(item) for item in questions(count)]
    (folder / "items.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    path = folder / "endpoints.toml"
    path.write_text(STUDY.replace("PORT", str(port)), encoding="utf-8")
    return path


STUDY = """\
title = "Four endpoints"

[problem]
policies   = ["large", "tuned", "small", "tiny"]
groups     = { English = 0.6666666666666667, Swahili = 0.3333333333333333 }
family     = { name = "bernoulli" }
constraint = { kind = "floors", at_least = 0.75 }

[procedure]
delta = 0.05

[evaluate]
items  = "items.jsonl"
item   = "id"
group  = "language"
target = "answer"
concurrency = 8
timeout     = 10
retries     = 4
backoff     = 0.01

[evaluate.policies]
large = "http://127.0.0.1:PORT/large"
tuned = "http://127.0.0.1:PORT/tuned"
small = "http://127.0.0.1:PORT/small"
tiny  = "http://127.0.0.1:PORT/tiny"
"""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    calls = 0  # of all requests

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        model = self.path.strip("/")
        _Handler.calls += 1
        if model not in MODELS:
            self._send(404, {"error": "there is no such model"})
        elif _Handler.calls % FAILURES == 0:
            self._send(503, {"error": "too busy"})
        else:
            _, seconds, price = MODELS[model]
            time.sleep(seconds)
            self._send(200, {"output": answer(model, json.loads(body)["item"]), "cost": price})

    def _send(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write no line per request."""


def _draw(text: str) -> float:
    """Return a number between 0 and 1 that depends only on the text."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


def main(port: int = 8123) -> None:
    server = serve(port)
    print(f"serving {', '.join(MODELS)} at http://127.0.0.1:{server.server_address[1]}; Ctrl+C ends it")
    threading.Event().wait()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8123)

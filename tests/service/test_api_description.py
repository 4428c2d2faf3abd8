"""The OpenAPI description: every route has a type, a tag and an example, and the answers have those types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from litestar.testing import TestClient

from evenhand.service import response_bodies as bodies
from evenhand.service.api_examples import EXAMPLES, STUDY, TICKET, URL, Example
from evenhand.service.app import Settings, create_app
from evenhand.service.keys import Keys
from tests.service.peers import seen_from

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
TYPES: dict[tuple[str, str], Any] = {
    ("get", "/experiments"): list[bodies.Listed],
    ("post", "/experiments"): bodies.Created,
    ("get", "/experiments/{name}"): bodies.Status,
    ("post", "/experiments/{name}/ask"): list[bodies.Ticket],
    ("post", "/experiments/{name}/tell"): bodies.Receipt,
    ("post", "/experiments/{name}/tell-all"): list[bodies.Receipt],
    ("post", "/experiments/{name}/drop"): bodies.Dropped,
    ("post", "/experiments/{name}/amend"): bodies.Receipt,
    ("post", "/experiments/{name}/import"): bodies.Imported,
    ("post", "/experiments/{name}/pause"): bodies.Paused,
    ("post", "/experiments/{name}/resume"): bodies.Paused,
    ("post", "/experiments/{name}/finish"): bodies.Finished,
    ("post", "/experiments/{name}/add-policy"): bodies.PolicyChanged,
    ("post", "/experiments/{name}/withdraw"): bodies.PolicyChanged,
    ("get", "/experiments/{name}/shares"): bodies.Shares,
    ("post", "/experiments/{name}/publish-shares"): bodies.Shares,
    ("post", "/experiments/{name}/tell-counts"): bodies.IntervalReceipt,
    ("post", "/experiments/{name}/correct-counts"): bodies.IntervalReceipt,
    ("post", "/experiments/{name}/close-interval"): bodies.IntervalReceipt,
    ("get", "/experiments/{name}/bets"): bodies.Bets,
    ("get", "/experiments/{name}/events"): list[bodies.Event],
    ("post", "/plan"): bodies.Plan,
    ("post", "/simulate"): bodies.JobStarted,
    ("get", "/simulate"): list[bodies.ListedJob],
    ("get", "/simulate/{job}"): bodies.Job,
    ("post", "/simulate/{job}/cancel"): bodies.Job,
    ("get", "/webhooks"): list[bodies.Webhook],
    ("post", "/webhooks"): bodies.Webhook,
    ("get", "/webhooks/{webhook}/messages"): list[bodies.Message],
    ("post", "/webhooks/{webhook}/test"): bodies.Queued,
    ("post", "/webhooks/{webhook}/delete"): bodies.Deleted,
}

OF_INTERVALS = ("/shares", "/publish-shares", "/tell-counts", "/correct-counts", "/close-interval", "/bets")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    journal = str(tmp_path_factory.mktemp("api") / "t.db")
    app = create_app(Settings(journal, webhooks=("https://hooks.example.org",)))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as found:
        yield found


@pytest.fixture(scope="module")
def description(client: TestClient[Any]) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/docs/openapi.json").json()
    return found


def operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def test_every_route_has_a_tag_words_a_type_and_an_example(description: dict[str, Any]) -> None:
    seen = 0
    for method, path, operation in operations(description):
        assert operation["tags"], path
        assert operation["description"], path
        code, done = next((code, one) for code, one in operation["responses"].items() if code[0] == "2")
        content = next(iter(done["content"].items()))
        assert content[1]["schema"] not in ({}, {"type": "object"}), path
        if not path.startswith("/api/v1") or path.endswith(("/close", "/export")):
            continue
        seen += 1
        assert "example" in content[1], path
        assert "additionalProperties" not in content[1]["schema"], (path, code)
        assert set(operation["responses"]) >= {"400", "401", "403", "404", "409", "422", "429", "503"}
        if method == "post":
            assert "example" in operation["requestBody"]["content"]["application/json"], path
    assert seen == len(TYPES) == len(EXAMPLES) - 1  # an export is a file


def test_lists_say_how_many_there_are(description: dict[str, Any]) -> None:
    for path in ("/api/v1/experiments", "/api/v1/experiments/{name}/events"):
        headers = description["paths"][path]["get"]["responses"]["200"]["headers"]
        assert "X-Total-Count" in headers


def shape_fits(example: Any, answer: Any) -> bool:
    """Whether an example has the fields of a real answer, and no others."""
    if isinstance(example, dict) and isinstance(answer, dict):
        return set(example) <= set(answer)
    if isinstance(example, list) and isinstance(answer, list):
        return all(any(shape_fits(one, other) for other in answer) for one in example) if answer else True
    return type(example) is type(answer) or None in (example, answer)


def test_the_examples_are_sent_and_answered_with_what_they_show(client: TestClient[Any]) -> None:
    """In the order of a real experiment; ids and tickets of the examples are replaced by real ones."""
    real: dict[str, str] = {"{name}": "main"}

    def send(method: str, path: str, example: Example) -> Any:
        target = f"/api/v1{path}"
        for name, value in real.items():
            target = target.replace(name, value)
        text = msgspec.json.encode(example.request or {}).replace(
            TICKET.encode(), real.get("ticket", "").encode()
        )
        headers = {"Content-Type": "application/json"}
        if method == "get":
            return client.get(target)
        return client.post(target, content=text, headers=headers)

    room = STUDY | {"problem": STUDY["problem"] | {"max_policies": 3}}
    made = client.post("/api/v1/experiments", json={"id": "main", "seed": 7, "study": room})
    assert made.status_code == 201
    problem = STUDY["problem"] | {"mode": "proportional"}
    procedure = STUDY["procedure"] | {"evidence": "linear-bets", "interval": {"volume": 1000}}
    other = {"id": "counts", "seed": 7, "study": {"problem": problem, "procedure": procedure}}
    assert client.post("/api/v1/experiments", json=other).status_code == 201
    for key in sorted(TYPES, key=order):
        if key == ("post", "/experiments"):
            continue
        if key[1].endswith(("tell-all", "/drop")):  # each ends a ticket: a new one for each
            real["ticket"] = client.post("/api/v1/experiments/main/ask", json={}).json()[0]["ticket"]
        real["{name}"] = "counts" if key[1].endswith(OF_INTERVALS) else "main"
        answer = send(*key, EXAMPLES[key])
        assert answer.status_code in (200, 201, 202), (key, answer.text)
        msgspec.json.decode(answer.content, type=TYPES[key])
        msgspec.json.decode(msgspec.json.encode(EXAMPLES[key].response), type=TYPES[key])
        assert shape_fits(EXAMPLES[key].response, answer.json()), (key, answer.json())
        if key[1].endswith("/ask"):
            real["ticket"] = answer.json()[0]["ticket"]
        if key == ("post", "/simulate"):
            real["{job}"] = answer.json()["id"]
        if key == ("post", "/webhooks"):
            real["{webhook}"] = answer.json()["id"]


def order(key: tuple[str, str]) -> int:
    """The place of a route in an experiment."""
    first = (
        "/ask", "/tell", "/amend", "/tell-all", "/drop", "/import", "/pause", "/resume", "/add-policy",
        "/withdraw", "/tell-counts", "/correct-counts", "/publish-shares", "/close-interval", "/plan",
        "/simulate", "/webhooks",
    )  # fmt: skip
    last = ("/cancel", "/test", "/messages", "/delete", "/finish")
    for place, end in enumerate(first):
        if key[0] == "post" and key[1].endswith(end):
            return place
    for place, end in enumerate(last):
        if key[1].endswith(end):
            return 100 + place
    return 50


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/api/v1/experiments/nobody", None, "not_found"),
        ("GET", "/api/v1/nothing", None, "not_found"),
        ("DELETE", "/api/v1/experiments", None, "method_not_allowed"),
        ("POST", "/api/v1/experiments", {"id": "a b"}, "bad_input"),
        ("POST", "/api/v1/webhooks", {"url": "https://elsewhere.example/"}, "bad_input"),
        ("GET", "/api/v1/experiments/a%20b", None, "bad_request"),
    ],
)
def test_a_refusal_has_a_code(client: TestClient[Any], method: str, path: str, body: Any, code: str) -> None:
    answer = client.request(method, path, json=body)
    refusal = msgspec.json.decode(answer.content, type=bodies.Refusal)
    assert refusal.code == code
    assert refusal.error


def test_refusals_without_a_key_have_codes_too(tmp_path: Path) -> None:
    journal = str(tmp_path / "t.db")
    key = Keys(journal).create("operator", "me")
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:
        assert client.get("/api/v1/experiments").json()["code"] == "unauthorized"
        bearer = {"Authorization": f"Bearer {key}"}
        made = client.post(
            "/api/v1/experiments", json={"id": "main", "seed": 7, "study": STUDY}, headers=bearer
        )
        assert made.json()["code"] == "forbidden"


def test_the_reference_lists_every_code() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", REFERENCE.read_text(), re.M)
    assert sorted(listed) == sorted(get_args(bodies.ErrorCode))


def test_the_example_address_is_one_that_the_examples_may_call() -> None:
    assert URL.startswith("https://hooks.example.org/")

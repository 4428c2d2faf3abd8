"""The HTTP service: routes, keys and roles, limits, blinding, forged requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from evenhand.service.app import BODY_BYTES, Settings, create_app
from evenhand.service.keys import Keys
from tests.service.peers import seen_from

NAMES = ("steady", "bold")
STUDY: dict[str, Any] = {
    "problem": {
        "policies": list(NAMES),
        "groups": {"x": 0.5, "y": 0.5},
        "family": {"name": "bernoulli"},
        "constraint": {"kind": "floors", "at_least": 0.3},
    },
    "procedure": {"delta": 0.1},
}
MEANS = {"truth": {"means": [[0.8, 0.7], [0.5, 0.6]]}}


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "journal.db")


@pytest.fixture
def client(journal: str) -> Iterator[TestClient[Any]]:
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as found:
        yield found


def _create(client: TestClient[Any], name: str = "main", **headers: str) -> Any:
    return client.post("/api/v1/experiments", json={"id": name, "study": STUDY, "seed": 7}, headers=headers)


def _with_keys(journal: str) -> dict[str, dict[str, str]]:
    keys = Keys(journal)
    return {
        role: {"Authorization": f"Bearer {keys.create(role, role)}"}
        for role in ("operator", "analyst", "admin")
    }


def test_an_experiment_runs_over_http(client: TestClient[Any]) -> None:
    assert _create(client).status_code == 201
    [ticket] = client.post("/api/v1/experiments/main/ask", json={}).json()
    assert ticket["policy"] in NAMES
    body = {"ticket": ticket["ticket"], "outcome": 1}
    assert client.post("/api/v1/experiments/main/tell", json=body).status_code == 200
    status = client.get("/api/v1/experiments/main").json()
    assert status["samples"] == 1
    assert status["pending"] == 0


def test_the_same_idempotency_key_gets_the_same_tickets(client: TestClient[Any]) -> None:
    _create(client)
    answers = [
        client.post("/api/v1/experiments/main/ask", json={"n": 3}, headers={"Idempotency-Key": "one"}).json()
        for _ in range(3)
    ]
    assert answers[0] == answers[1] == answers[2]
    assert client.get("/api/v1/experiments/main").json()["pending"] == 3


def test_the_same_key_always_gets_the_same_answer_and_another_request_gets_a_409(
    client: TestClient[Any],
) -> None:
    def post(path: str, key: str, body: dict[str, Any]) -> Any:
        return client.post(f"/api{path}", json=body, headers={"Idempotency-Key": key})

    made = {"id": "main", "study": STUDY, "seed": 7}
    first = {"create": post("/experiments", "create", made)}
    tickets = [one["ticket"] for one in post("/experiments/main/ask", "six", {"n": 6}).json()]
    sent = {
        "ask": ("/experiments/main/ask", {"n": 2, "worker": "w"}, {"n": 3, "worker": "w"}),
        "tell": ("/experiments/main/tell", *({"ticket": tickets[0], "outcome": x} for x in (1, 0))),
        "amend": (
            "/experiments/main/amend", *({"ticket": tickets[0], "outcome": 1, "reason": r} for r in "rs"),
        ),
        "drop": ("/experiments/main/drop", *({"ticket": tickets[1], "reason": r} for r in "rs")),
        "plan": ("/plan", *({"study": STUDY | MEANS, "delta": delta} for delta in (0.1, 0.2))),
        "simulate": ("/simulate", *({"study": STUDY | MEANS, "replications": n} for n in (2, 3))),
        "close": ("/experiments/main/close", {"reason": "the end"}, {"reason": "another end"}),
    }  # fmt: skip
    client.post("/api/v1/experiments/main/ask", json={"worker": "w"})
    for name, (path, body, _) in sent.items():
        first[name] = post(path, name, body)
        assert first[name].status_code < 300, first[name].text
        client.post("/api/v1/experiments/main/tell", json={"ticket": tickets[2], "outcome": 1})
        client.post(
            "/api/v1/experiments/main/amend", json={"ticket": tickets[0], "outcome": 0, "reason": "x"}
        )
    sent["create"] = ("/experiments", made, made | {"id": "other"})
    for name, (path, body, other) in sent.items():
        again, refused = post(path, name, body), post(path, name, other)
        assert (again.status_code, again.json()) == (first[name].status_code, first[name].json()), name
        assert refused.status_code == 409, (name, refused.text)
        assert "was used for another request" in refused.json()["error"]
    for name in ("tell", "drop", "ask"):  # a key belongs to one request of whatever kind
        path, body, _ = sent[name]
        assert post(path, "amend", body).status_code == 409
    assert client.get("/api/v1/experiments/other").status_code == 404


def test_another_outcome_for_a_ticket_is_a_conflict_and_the_first_is_kept(client: TestClient[Any]) -> None:
    _create(client)
    [ticket] = client.post("/api/v1/experiments/main/ask", json={}).json()
    tell = "/api/v1/experiments/main/tell"
    assert client.post(tell, json={"ticket": ticket["ticket"], "outcome": 1}).status_code == 200
    assert client.post(tell, json={"ticket": ticket["ticket"], "outcome": 1}).status_code == 200
    refused = client.post(tell, json={"ticket": ticket["ticket"], "outcome": 0})
    assert refused.status_code == 409
    assert client.get("/api/v1/experiments/main").json()["samples"] == 1


@pytest.mark.parametrize("outcome", ["1", None, 2, -1, 0.5, 1e400, "NaN"])
def test_an_outcome_that_is_none_is_refused_and_nothing_is_written(
    client: TestClient[Any], outcome: Any
) -> None:
    _create(client)
    [ticket] = client.post("/api/v1/experiments/main/ask", json={}).json()
    before = _counts(client)
    number = "1e400" if outcome == 1e400 else json.dumps(outcome)
    text = f'{{"ticket": "{ticket["ticket"]}", "outcome": {number}}}'
    refused = client.post(
        "/api/v1/experiments/main/tell", content=text, headers={"Content-Type": "application/json"}
    )
    assert refused.status_code in (400, 422)
    assert "error" in refused.json()
    assert _counts(client) == before


def _counts(client: TestClient[Any]) -> dict[str, int]:
    """What the log holds, but for who looked at it."""
    counts: dict[str, int] = client.get("/api/v1/experiments/main").json()["counts"]
    return counts | {"viewed": 0}


def test_unknown_experiments_and_odd_ids_are_refused(client: TestClient[Any]) -> None:
    assert client.get("/api/v1/experiments/nobody").status_code == 404
    for odd in ("..", "%2e%2e", "a%00b", "a b", "x" * 65, "a;drop"):
        assert client.get(f"/api/v1/experiments/{odd}").status_code in (400, 404, 422), odd


def test_without_a_key_only_loopback_names_are_answered(client: TestClient[Any]) -> None:
    assert client.get("/api/v1/experiments").status_code == 200
    assert client.get("/api/v1/experiments", headers={"Host": "elsewhere.example"}).status_code == 400


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For", "Forwarded", "X-Real-IP", "Via", "X-Forwarded-Host", "X-Forwarded-Port",
        "X-Forwarded-Prefix", "CF-Connecting-IP",
    ],
)  # fmt: skip
def test_without_a_key_forwarded_requests_are_refused(client: TestClient[Any], header: str) -> None:
    answer = client.get("/api/v1/experiments", headers={header: "for=203.0.113.9"})
    assert answer.status_code == 401
    assert "keys" in answer.json()["error"]


@pytest.mark.parametrize("peer", ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::1", "", "localhost.example"])
def test_without_a_key_other_machines_are_refused(journal: str, peer: str) -> None:
    app = create_app(Settings(journal, hosts=("trials.example",)))
    with TestClient(seen_from(app, peer), base_url="http://127.0.0.1") as client:
        assert client.get("/api/v1/experiments").status_code == 401
        assert client.get("/healthz").status_code == 200


def test_without_a_key_only_a_loopback_host_is_answered(journal: str) -> None:
    app = create_app(Settings(journal, hosts=("trials.example",)))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        assert client.get("/api/v1/experiments").status_code == 200
        assert client.get("/api/v1/experiments", headers={"Host": "trials.example"}).status_code == 401


def test_the_addresses_of_version_0_1_still_answer(client: TestClient[Any]) -> None:
    assert client.get("/api/experiments").json() == client.get("/api/v1/experiments").json()


def test_a_service_that_cannot_write_is_alive_but_not_ready(client: TestClient[Any]) -> None:
    assert client.get("/readyz").json() == {"status": "ready"}
    client.app.dependencies["registry"].dependency().close()
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").status_code == 503


def test_once_a_key_exists_every_route_needs_one(journal: str) -> None:
    app = create_app(Settings(journal))
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as client:
        headers = _with_keys(journal)
        assert _create(client, **headers["admin"]).status_code == 201
        open_to_all = {"/healthz", "/readyz", "/login"}
        for route in app.routes:
            path = route.path.replace("{name:str}", "main").replace("{job:str}", "x")
            if path in open_to_all or path.startswith(("/docs", "/static")):
                continue
            for method in sorted(route.methods - {"OPTIONS", "HEAD"}):
                for wrong in ({}, {"Authorization": "Bearer eh_00000000_" + "a" * 43}):
                    answer = client.request(method, path, json={}, headers=wrong, follow_redirects=False)
                    assert answer.status_code in (401, 429), (method, path, answer.status_code)


def test_roles_may_do_what_they_may_and_no_more(journal: str) -> None:
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:
        headers = _with_keys(journal)
        assert _create(client, **headers["operator"]).status_code == 403
        assert _create(client, **headers["admin"]).status_code == 201
        assert client.get("/api/v1/experiments/main/events", headers=headers["operator"]).status_code == 403
        assert client.get("/api/v1/experiments/main/events", headers=headers["analyst"]).status_code == 200
        assert (
            client.post("/api/v1/experiments/main/close", json={}, headers=headers["analyst"]).status_code
            == 403
        )


def test_an_operator_sees_enrolment_and_no_outcomes_and_a_look_at_them_is_an_event(journal: str) -> None:
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:
        headers = _with_keys(journal)
        _create(client, **headers["admin"])
        blind = client.get("/api/v1/experiments/main", headers=headers["operator"]).json()
        assert not {"cells", "policies", "leader", "evidence", "sentence", "answer"} & set(blind)
        events = blind["events"]
        seen = client.get("/api/v1/experiments/main", headers=headers["analyst"]).json()
        assert "cells" in seen
        log = client.get("/api/v1/experiments/main/events", headers=headers["analyst"]).json()
        assert len(log) > events
        assert any(event["kind"] == "viewed" and event["by"] == "analyst" for event in log)


def test_a_revoked_or_expired_key_is_refused_and_only_hashes_are_kept(journal: str) -> None:
    keys = Keys(journal)
    good = keys.create("admin", "me")
    old = keys.create("admin", "then", expires="2020-01-01T00:00:00+00:00")
    assert keys.find(good) is not None
    assert keys.find(old) is None
    keys.revoke(good.split("_")[1])
    assert keys.find(good) is None
    assert good.split("_", 2)[2].encode() not in Path(journal).read_bytes()


def test_many_wrong_keys_are_slowed_down(journal: str) -> None:
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:
        _with_keys(journal)
        codes = [
            client.get(
                "/api/v1/experiments", headers={"Authorization": f"Bearer eh_00000000_{'a' * 43}"}
            ).status_code
            for _ in range(30)
        ]
    assert codes[0] == 401
    assert codes[-1] == 429


def test_a_session_cookie_alone_changes_nothing(journal: str) -> None:
    with TestClient(seen_from(create_app(Settings(journal))), base_url="http://127.0.0.1") as client:
        key = Keys(journal).create("admin", "me")
        assert client.post("/login", json={"key": key}).status_code == 200
        assert client.get("/").status_code == 200
        forged = client.post("/api/v1/experiments", json={"id": "main", "study": STUDY, "seed": 7})
        assert forged.status_code == 403
        own = {"Origin": "http://127.0.0.1", "X-Evenhand": "page"}
        assert _create(client, **own).status_code == 201


def test_a_body_that_is_too_large_is_refused(client: TestClient[Any]) -> None:
    huge = b'{"id": "' + b"x" * (BODY_BYTES + 1) + b'"}'
    answer = client.post("/api/v1/experiments", content=huge, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_a_study_that_is_too_large_or_opens_files_is_refused(client: TestClient[Any]) -> None:
    many = {**STUDY, "problem": {**STUDY["problem"], "policies": [f"p{k}" for k in range(6_000)]}}
    assert client.post("/api/v1/plan", json={"study": many}).status_code == 422
    file = {**STUDY, "truth": {"cells": "/etc/passwd"}}
    answer = client.post("/api/v1/plan", json={"study": file})
    assert answer.status_code == 422
    assert "opens no files" in answer.json()["error"]


def test_a_plan_over_http_is_the_plan(client: TestClient[Any]) -> None:
    answer = client.post("/api/v1/plan", json={"study": STUDY | MEANS})
    assert answer.status_code == 200, answer.text
    assert answer.json()["answer"] == "steady"


@pytest.mark.slow
def test_names_from_users_are_escaped_on_every_page(client: TestClient[Any]) -> None:
    evil = "<script>alert(1)</script>"
    study = {**STUDY, "title": evil, "problem": {**STUDY["problem"], "policies": [evil, "b"]}}
    assert client.post("/api/v1/experiments", json={"id": "x", "study": study, "seed": 1}).status_code == 201
    for page in ("/", "/experiments/x", "/experiments/x/panel", "/experiments/x/log", "/planner"):
        answer = client.get(page)
        assert answer.status_code == 200, page
        assert evil not in answer.text, page
        assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_the_openapi_page_lists_the_routes_of_the_contract(client: TestClient[Any]) -> None:
    schema = client.get("/docs/openapi.json").json()
    assert {"/api/v1/experiments", "/api/v1/plan", "/api/v1/simulate", "/healthz", "/metrics"} <= set(
        schema["paths"]
    )
    for verb in ("ask", "tell", "drop", "amend", "close", "events", "export"):
        assert f"/api/v1/experiments/{{name}}/{verb}" in schema["paths"]


def test_metrics_count_requests(client: TestClient[Any]) -> None:
    client.get("/healthz")
    assert (
        'evenhand_requests_total{method="GET",route="/healthz",status="200"}' in client.get("/metrics").text
    )

"""What no client must be able to do to the service: tests 27 to 31, 33 and 34 of the reliability list."""

from __future__ import annotations

import csv
import io
import itertools
import random
import secrets
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from scipy.stats import mannwhitneyu

from evenhand.cli.options import write_batch
from evenhand.cli.serve import serve
from evenhand.errors import BadInput
from evenhand.files import unescaped
from evenhand.live.journal import open_journal
from evenhand.live.tickets import Ask
from evenhand.service import experiments
from evenhand.service.app import Settings, create_app
from evenhand.service.auth import WRONG_KEYS
from evenhand.service.keys import Keys, KnownKeys
from tests.service.peers import seen_from
from tests.service.service_process import STUDY

ROLES = ("operator", "analyst", "admin")
GUESSES, CALLS = 250, 400  # wrong keys of each kind, and how often each is tried
OPEN = ("/healthz", "/readyz", "/login", "/docs", "/static")  # what every client may see


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("keyed") / "journal.db")


@pytest.fixture(scope="module")
def keys(journal: str) -> dict[str, str]:
    made = Keys(journal)
    return {role: made.create(role, role) for role in ROLES}


@pytest.fixture(scope="module")
def app(journal: str, keys: dict[str, str]) -> Litestar:
    """A service with keys."""
    return create_app(Settings(journal))


@pytest.fixture(scope="module")
def client(app: Litestar) -> Iterator[TestClient[Any]]:
    with TestClient(seen_from(app), base_url="http://127.0.0.1") as found:
        yield found


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[TestClient[Any]]:
    """A service without a key, on loopback."""
    with TestClient(
        seen_from(create_app(Settings(str(tmp_path / "bare.db")))), base_url="http://127.0.0.1"
    ) as found:
        yield found


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def guarded(app: Litestar, name: str = "main") -> Iterator[tuple[str, str]]:
    """Every route but those open to all, by the application's own list."""
    for route in app.routes:
        path = route.path.replace("{name:str}", name).replace("{job:str}", "x")
        if not path.startswith(OPEN):
            for method in sorted(route.methods - {"OPTIONS", "HEAD"}):
                yield method, path


def create(client: TestClient[Any], study: dict[str, Any] = STUDY, name: str = "main", **headers: str) -> Any:
    return client.post("/api/v1/experiments", json={"id": name, "study": study, "seed": 7}, headers=headers)


def test_every_route_refuses_every_wrong_key(
    app: Litestar, client: TestClient[Any], journal: str, keys: dict[str, str], tmp_path: Path
) -> None:
    known = Keys(journal)
    revoked = known.create("admin", "gone")
    known.revoke(revoked.split("_")[1])
    wrong = {
        "none": {},
        "made up": bearer(f"eh_00000000_{'a' * 43}"),
        "revoked": bearer(revoked),
        "expired": bearer(known.create("admin", "old", expires="2020-01-01T00:00:00+00:00")),
        "another journal's": bearer(Keys(str(tmp_path / "other.db")).create("admin", "them")),
        "cut short": bearer(keys["admin"][:-1]),
        "basic": {"Authorization": f"Basic {keys['admin']}"},
        "no session": {"Cookie": f"evenhand_session={secrets.token_urlsafe(32)}"},
    }
    assert create(client, **bearer(keys["admin"])).status_code == 201
    routes = list(guarded(app))
    assert len(routes) > 20
    for (method, path), (name, headers) in itertools.product(routes, wrong.items()):
        answer = client.request(method, path, json={}, headers=headers, follow_redirects=False)
        assert answer.status_code in (401, 429), (method, path, name, answer.status_code)


def test_a_role_may_not_do_what_is_above_it(
    app: Litestar, client: TestClient[Any], keys: dict[str, str]
) -> None:
    create(client, name="roles", **bearer(keys["admin"]))
    needed = {
        "/api/v1/experiments/roles/amend": "admin", "/api/v1/experiments/roles/close": "admin",
        "/api/v1/experiments/roles/events": "analyst", "/api/v1/experiments/roles/export": "analyst",
        "/experiments/roles/audit": "analyst", "/experiments/roles/report": "analyst",
    }  # fmt: skip
    found = {path: method for method, path in guarded(app, "roles")}
    for path, role in needed.items():
        for lower in ROLES[: ROLES.index(role)]:
            answer = client.request(found[path], path, json={}, headers=bearer(keys[lower]))
            assert answer.status_code == 403, (path, lower)
    assert create(client, name="other", **bearer(keys["analyst"])).status_code == 403


def test_without_a_key_the_service_listens_on_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="loopback only"):
        serve(str(tmp_path / "new.db"), "0.0.0.0", 0)


def test_only_hashes_are_stored(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal.db")
    good = Keys(journal).create("operator", "me")
    assert good.split("_", 2)[2].encode() not in Path(journal).read_bytes()
    assert good.split("_", 2)[1].encode() in Path(journal).read_bytes()


@pytest.mark.slow
def test_the_time_of_a_refusal_does_not_tell_how_much_of_a_key_fits(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Many guesses of each kind, each judged by its median: where one string lies in memory is not a leak.

    A leak would show every time; a busy machine shows something now and then.
    """
    keys = Keys(str(tmp_path / "journal.db"))
    _, identity, secret = keys.create("operator", "me").split("_", 2)
    journal = open_journal(str(tmp_path / "journal.db"))
    request.addfinalizer(journal.close)
    known = KnownKeys(journal)
    least = []
    for repeat in range(3):
        order = random.Random(repeat)
        kinds = [0, 21, 42] * GUESSES  # how many characters fit
        order.shuffle(kinds)  # made in random order: memory is allocated in order
        guesses = [f"eh_{identity}_{secret[:fits]}{secrets.token_urlsafe(32)[fits:43]}" for fits in kinds]
        medians = np.array(median_times(known, guesses, order))
        none, half, nearly = (medians[np.equal(kinds, fits)] for fits in (0, 21, 42))
        least.append(min(mannwhitneyu(none, some).pvalue for some in (half, nearly)))
    print(f"{9 * GUESSES * CALLS:,} refusals; least p-value of each repeat:", least)
    assert max(least) > 0.01


def median_times(known: KnownKeys, guesses: list[str], order: random.Random) -> list[float]:
    """Nanoseconds until each guess is refused, the guesses taken in turns."""
    times: list[list[int]] = [[] for _ in guesses]
    places = list(range(len(guesses)))
    for _ in range(CALLS):
        order.shuffle(places)
        for place in places:
            begun = time.perf_counter_ns()
            known.find(guesses[place])
            times[place].append(time.perf_counter_ns() - begun)
    return [statistics.median(mine) for mine in times]


def test_many_wrong_keys_wait_and_good_ones_do_not(bare: TestClient[Any], tmp_path: Path) -> None:
    client, good = bare, Keys(str(tmp_path / "bare.db")).create("operator", "ward")
    guess = bearer(f"eh_00000000_{'a' * 43}")
    codes = [client.get("/api/v1/experiments", headers=guess).status_code for _ in range(WRONG_KEYS + 5)]
    assert codes == [401] * WRONG_KEYS + [429] * 5
    assert client.get("/api/v1/experiments", headers=bearer(good)).status_code == 200


def test_an_operator_finds_no_outcome_anywhere_before_the_end(
    app: Litestar, client: TestClient[Any], keys: dict[str, str]
) -> None:
    problem = STUDY["problem"] | {"family": {"name": "gaussian", "sd": 1.0}}
    create(client, STUDY | {"problem": problem}, "blind", **bearer(keys["admin"]))
    operator, outcome = bearer(keys["operator"]), 7.318284590452
    tickets = client.post(
        "/api/v1/experiments/blind/ask", json={"n": 12}, headers=bearer(keys["admin"])
    ).json()
    for ticket in tickets[:-1]:
        body = {"ticket": ticket["ticket"], "outcome": outcome}
        client.post("/api/v1/experiments/blind/tell", json=body, headers=bearer(keys["admin"]))
    read = [
        client.get(path, headers=operator | {"Accept": "text/html"}).text
        for method, path in guarded(app, "blind")
        if method == "GET" and not path.endswith("/stream")
    ]
    other = {"ticket": tickets[0]["ticket"], "outcome": 1.0}
    refused = client.post("/api/v1/experiments/blind/tell", json=other, headers=operator)
    assert refused.status_code == 404  # the ticket of another key
    amend = {**other, "reason": "?"}
    read += [refused.text, client.post("/api/v1/experiments/blind/amend", json=amend, headers=operator).text]
    for text in read:
        assert "7.31" not in text
        assert "evidence" not in text.lower() or "/api/" in text  # the description of the API names the word


def test_every_unblinded_look_is_an_event(
    app: Litestar, client: TestClient[Any], keys: dict[str, str]
) -> None:
    create(client, name="looks", **bearer(keys["admin"]))
    analyst = bearer(keys["analyst"])
    looks = ("", "/events", "/export")
    for path in looks:
        assert client.get(f"/api/v1/experiments/looks{path}", headers=analyst).status_code == 200
    for path in ("", "/log", "/report"):
        assert client.get(f"/experiments/looks{path}", headers=analyst).status_code == 200
    log = client.get("/api/v1/experiments/looks/events", headers=analyst).json()
    seen = {event["what"] for event in log if event["kind"] == "viewed"}
    assert seen == {"status", "events", "export", "dashboard", "report"}


def test_a_decided_experiment_looked_at_exported_and_reported_keeps_its_head(
    app: Litestar, client: TestClient[Any], keys: dict[str, str]
) -> None:
    """Fault 57: nothing is blind any more, so no look is written down, and the published head stays."""
    admin, analyst = bearer(keys["admin"]), bearer(keys["analyst"])
    create(client, name="decided", **admin)
    while asks := client.post("/api/v1/experiments/decided/ask", json={"n": 20}, headers=admin).json():
        for ask in asks:
            told = {"ticket": ask["ticket"], "outcome": int(ask["policy"] == "bold")}
            client.post("/api/v1/experiments/decided/tell", json=told, headers=admin)
    status = client.get("/api/v1/experiments/decided", headers=analyst).json()
    assert status["decided"]
    for path in ("", "/events", "/export"):
        assert client.get(f"/api/v1/experiments/decided{path}", headers=analyst).status_code == 200
    for path in ("", "/log", "/report"):
        assert client.get(f"/experiments/decided{path}", headers=analyst).status_code == 200
    assert client.get("/api/v1/experiments/decided", headers=analyst).json()["head"] == status["head"]


def test_a_study_is_refused_above_the_limits_before_anything_is_made(bare: TestClient[Any]) -> None:
    problem = STUDY["problem"]
    shares = {f"g{number}": 1 / 2_000 for number in range(2_000)}
    wide = problem | {"policies": [f"p{number}" for number in range(5_000)], "groups": shares}
    long_name = problem | {"policies": ["x" * 201, "b"]}
    for odd, word in ((wide, "cells"), (long_name, "characters")):
        answer = create(bare, STUDY | {"problem": odd})
        assert answer.status_code == 422
        assert word in answer.json()["error"]
    assert create(bare, STUDY | {"title": "x" * 1_000_001}).status_code == 413
    assert bare.get("/api/v1/experiments").json() == []


def test_a_journal_takes_a_limited_number_of_experiments(
    bare: TestClient[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "MOST_EXPERIMENTS", 2)
    codes = [create(bare, name=f"e{number}").status_code for number in range(3)]
    assert codes == [201, 201, 422]


@pytest.mark.parametrize(
    "odd",
    [
        "%2e%2e", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..", "a%00b", "a%23b", "%2f%2fhost%2fshare",
        "%5c%5chost%5cshare", "C%3A%5Cx", "a'b", 'a"b', "a%3Bdrop%20table", "a%20b", "x" * 65, "%C3%A9",
        "1' or '1'='1",
    ],
)  # fmt: skip
def test_an_id_is_plain_or_refused(bare: TestClient[Any], odd: str) -> None:
    for path in (f"/api/v1/experiments/{odd}", f"/api/v1/experiments/{odd}/events", f"/experiments/{odd}"):
        answer = bare.get(path, follow_redirects=False)
        assert answer.status_code in (400, 404, 405), path
        assert "Traceback" not in answer.text
    assert create(bare, name=odd).status_code in (400, 422)


def test_a_foreign_host_or_page_reaches_nothing(bare: TestClient[Any]) -> None:
    create(bare)
    for method, path in (*guarded(bare.app), ("GET", "/docs"), ("GET", "/login"), ("GET", "/healthz")):
        answer = bare.request(method, path, json={}, headers={"Host": "evil.example"})
        assert answer.status_code == 400, (method, path)
    foreign = {"Origin": "https://evil.example"}
    assert create(bare, name="forged", **foreign).status_code == 403
    plain = {"Content-Type": "text/plain"}
    body = b'{"id": "forged", "study": {}, "seed": 1}'
    assert bare.post("/api/v1/experiments", content=body, headers=plain).status_code == 415
    assert [one["experiment"] for one in bare.get("/api/v1/experiments").json()] == ["main"]


@pytest.mark.slow
def test_no_get_changes_anything_but_the_list_of_who_looked(bare: TestClient[Any]) -> None:
    create(bare)
    before = bare.get("/api/v1/experiments/main").json()["counts"]
    for method, path in guarded(bare.app):
        if method == "GET" and not path.endswith("/stream"):
            bare.get(path)
    after = bare.get("/api/v1/experiments/main").json()
    assert after["counts"] | {"viewed": 0} == before | {"viewed": 0}
    assert after["state"] == "running"


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r", "\0"])
def test_a_name_is_no_formula_in_a_spreadsheet_and_comes_back_as_it_was(first: str) -> None:
    name = f"{first}1+cmd|' /C calc'!A0"
    file = io.StringIO()
    write_batch([Ask("1-abc", name, "-5")], file)
    [row] = csv.DictReader(io.StringIO(file.getvalue(), newline=""))
    assert row["policy"] == "'" + name
    assert unescaped(row["policy"]) == name


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[" * 100_000, 400),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, 400),
        (b'{"a":' * 101 + b"1" + b"}" * 101, 400),
        (b'{"a":' * 100 + b"1" + b"}" * 100, 422),
        (b'{"a": "' + b"[" * 200 + b'\\"[["}', 422),
        (b'{"n": 1, "n": 2}', 400),
        (b"\x1f\x8b\x08\x00bomb", 400),
        (b"\xff\xfe{}", 400),
        (b"", 400),
        (b'{"n": 1e400}', 422),
        (b'{"n": NaN}', 400),
        (b'{"unknown": 1}', 422),
        (b"{" + b",".join(b'"k%d":1' % number for number in range(100_000)) + b"}", 413),
    ],
)
def test_an_odd_body_is_refused_in_one_sentence(bare: TestClient[Any], body: bytes, code: int) -> None:
    create(bare)
    headers = {"Content-Type": "application/json"}
    answer = bare.post("/api/v1/experiments/main/ask", content=body, headers=headers)
    assert answer.status_code == code, answer.text
    assert set(answer.json()) == {"error", "code"}
    assert bare.get("/api/v1/experiments/main").json()["pending"] == 0

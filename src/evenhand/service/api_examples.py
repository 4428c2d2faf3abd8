"""Examples of requests and responses in the OpenAPI description; tests send them and compare the answers."""

from __future__ import annotations

from typing import Any, NamedTuple

STUDY: dict[str, Any] = {
    "title": "Two ads, two regions",
    "problem": {
        "policies": ["plain", "bold"],
        "groups": {"north": 0.5, "south": 0.5},
        "family": {"name": "bernoulli"},
        "constraint": {"kind": "floors", "at_least": 0.3},
    },
    "procedure": {"delta": 0.1},
}
WITH_MEANS = STUDY | {"truth": {"means": [[0.8, 0.7], [0.5, 0.6]]}}
TICKET = "t1-ufab3vbdepk1p822"
HEAD = "4d7e6a05d1b0814c82cbbc52c890da483fa43dffaec65d0e03773350ec0927e1"
COUNTS = {
    "asked": 3, "told": 1, "late": 0, "dropped": 0, "expired": 0, "amended": 0, "imported": 0, "refused": 0,
    "viewed": 1, "clock_back": 0,
}  # fmt: skip
HEALTH = {
    "well": True, "sample_ratio_p": 1.0, "starved": [], "oldest_pending": "t2-cqw8",
    "oldest_pending_seconds": 12.5, "pending_too_long": False, "clock_back": 0,
    "volume_ratio": None, "overdue": None,
}  # fmt: skip
LISTED = {
    "experiment": "main", "title": "Two ads, two regions", "state": "running", "samples": 1, "pending": 2,
    "late": 0, "events": 6, "counts": COUNTS, "head": HEAD, "health": HEALTH,
}  # fmt: skip
CELL = {
    "policy": "plain", "group": "north", "n": 1, "mean": 1.0, "verdict": "undecided", "floor": 0.3,
    "cap": None, "pending": 0.0,
}  # fmt: skip
STATUS = LISTED | {
    "sentence": "The start is under way: 1 outcome so far, no policy leads yet.",
    "answer": None, "decided": False, "allowed": [], "failed": [], "open": ["plain", "bold"], "leader": None,
    "evidence": 0.0, "needed": 3.0, "more": {"0.5": None, "0.7": None, "0.8": None, "0.9": None},
    "horizon": None, "unfinished": None, "forecast": None, "spent": None, "corrected": None,
    "policies": [{"policy": "plain", "mean": None, "verdict": "undecided", "place": 1, "leads": False}],
    "cells": [CELL], "joined": [], "withdrawn": [], "method": "order-free rule",
}  # fmt: skip
PLAN = {
    "answer": "plain", "answer_index": 0, "feasible": ["plain", "bold"], "acceptable": ["plain"],
    "easiest": "plain", "time_low": 44.4139, "time_high": 44.4140,
    "allocation": [[0.2485, 0.2626], [0.2542, 0.2347]], "delta": 0.1, "samples_at_least": 78.07,
    "binding": [{"piece": "beat", "policy": "bold", "group": None, "share": 1.0}], "why_none": None,
    "warnings": [],
}  # fmt: skip
SHARES = {
    "salt": "trial-2026", "version": 1, "valid_from": "2026-11-18T14:33:12.577591Z",
    "ranges": {"north": [["plain", 32768], ["bold", 65536]], "south": [["plain", 32768], ["bold", 65536]]},
}  # fmt: skip
COUNTED = [
    {"policy": policy, "group": group, "n": n, "sum": total}
    for policy, group, n, total in (
        ("plain", "north", 260, 200), ("plain", "south", 240, 180), ("bold", "north", 251, 130),
        ("bold", "south", 249, 150),
    )
]  # fmt: skip
RECEIPT = {"interval": 1, "outcomes": 1000, "counted": True, "closed": False, "why": None}
JOB = {"id": "f2affa80937d3f40", "state": "running", "done": 120, "total": 500}
URL = "https://hooks.example.org/evenhand"
WEBHOOK = {
    "id": "0f3a9c1be27d4456", "url": URL, "experiment": "main", "events": ["ended", "alarm"],
    "made": "2026-11-18T14:33:12.577591Z", "by": "Dr Osei",
}  # fmt: skip
MESSAGE = {
    "id": "msg_5b0c8e0f6f3b4a1d9e7c2a10", "event": "ended", "state": "delivered", "attempts": 1,
    "made": "2026-11-18T15:02:41.004512Z", "again": None, "answer": "status 204",
}  # fmt: skip


class Example(NamedTuple):
    """A request body, None for a GET, and the body of its response, None for a file."""

    request: Any
    response: Any


# routes that return a page of a list, and the length of the whole list in a header
WITH_TOTAL = (("get", "/experiments"), ("get", "/experiments/{name}/events"))

# by method and path below /api/v1
EXAMPLES: dict[tuple[str, str], Example] = {
    ("get", "/experiments"): Example(None, [LISTED]),
    ("post", "/experiments"): Example(
        {"id": "main", "seed": 7, "study": STUDY}, {"id": "main", "head": HEAD, "created": True}
    ),
    ("get", "/experiments/{name}"): Example(None, STATUS),
    ("post", "/experiments/{name}/ask"): Example(
        {"n": 1, "worker": "nurse 4"}, [{"ticket": TICKET, "policy": "plain", "group": "north"}]
    ),
    ("post", "/experiments/{name}/tell"): Example(
        {"ticket": TICKET, "outcome": 1}, {"ticket": TICKET, "outcome": 1.0, "counted": True, "why": None}
    ),
    ("post", "/experiments/{name}/tell-all"): Example(
        {"outcomes": [{"ticket": TICKET, "outcome": 1}]},
        [{"ticket": TICKET, "outcome": 1.0, "counted": True, "why": None}],
    ),
    ("post", "/experiments/{name}/drop"): Example(
        {"ticket": TICKET, "reason": "moved away"}, {"ticket": TICKET, "dropped": True}
    ),
    ("post", "/experiments/{name}/amend"): Example(
        {"ticket": TICKET, "outcome": 0, "reason": "misread", "by": "Dr Osei"},
        {"ticket": TICKET, "outcome": 0.0, "counted": True, "why": None},
    ),
    ("post", "/experiments/{name}/import"): Example(
        {"rows": [["plain", "north", 1], ["bold", "south", 0]], "source": "pilot"}, {"imported": 2}
    ),
    ("post", "/experiments/{name}/pause"): Example({"reason": "pharmacy audit"}, {"paused": True}),
    ("post", "/experiments/{name}/resume"): Example({"reason": "pharmacy open"}, {"paused": False}),
    ("post", "/experiments/{name}/finish"): Example(
        {"reason": "the season is over"},
        {
            "closed": True, "experiment": "main", "state": "closed", "decided": False, "answer": None,
            "allowed": [],
        },
    ),
    ("post", "/experiments/{name}/add-policy"): Example(
        {"policy": "video", "reason": "ready at last"}, {"policy": "video", "added": True}
    ),
    ("post", "/experiments/{name}/withdraw"): Example(
        {"policy": "video", "reason": "not licensed"}, {"policy": "video", "withdrawn": True}
    ),
    ("get", "/experiments/{name}/shares"): Example(None, SHARES),
    ("post", "/experiments/{name}/publish-shares"): Example({"after": 1}, SHARES | {"version": 2}),
    ("post", "/experiments/{name}/tell-counts"): Example({"interval": 1, "counts": COUNTED}, RECEIPT),
    ("post", "/experiments/{name}/correct-counts"): Example(
        {"interval": 1, "counts": COUNTED, "reason": "a server was missing"}, RECEIPT
    ),
    ("post", "/experiments/{name}/close-interval"): Example({"interval": 1}, RECEIPT | {"closed": True}),
    ("get", "/experiments/{name}/bets"): Example(
        None, {"interval": 1, "rows": [["plain", "north", 0, 0.005, 0.5]]}
    ),
    ("get", "/experiments/{name}/events"): Example(
        None,
        [{
            "seq": 5, "hash": HEAD, "kind": "told", "at": "2026-11-18T14:33:12.667392Z", "ticket": 1,
            "outcome": 1.0, "actor": {"id": "5f0c2a7e", "name": "ward 2"},
        }],
    ),
    ("get", "/experiments/{name}/export"): Example(None, None),
    ("post", "/plan"): Example({"study": WITH_MEANS}, PLAN),
    ("post", "/simulate"): Example({"study": WITH_MEANS, "replications": 500}, {"id": JOB["id"]}),
    ("get", "/simulate"): Example(None, [JOB]),
    ("get", "/simulate/{job}"): Example(None, JOB | {"result": None, "error": None}),
    ("post", "/simulate/{job}/cancel"): Example(
        {}, JOB | {"state": "cancelled", "result": None, "error": None}
    ),
    ("get", "/webhooks"): Example(None, [WEBHOOK]),
    ("post", "/webhooks"): Example(
        {"url": URL, "experiment": "main", "events": ["ended", "alarm"]},
        WEBHOOK | {"secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="},
    ),
    ("get", "/webhooks/{webhook}/messages"): Example(None, [MESSAGE]),
    ("post", "/webhooks/{webhook}/test"): Example({}, {"id": MESSAGE["id"], "event": "test"}),
    ("post", "/webhooks/{webhook}/delete"): Example({}, {"id": WEBHOOK["id"], "deleted": True}),
}  # fmt: skip

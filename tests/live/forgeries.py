"""Forgeries: one thing in one event of an honest log is changed, and all hashes are computed again to fit."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evenhand.live.hash_chain import canonical, extend, genesis
from tests.live.random_logs import COUNTING, Log, Table


class Forged(NamedTuple):
    """A log with one event changed."""

    events: list[Table]
    place: int  # of the changed event, from 0


def write_chain(path: Path, events: Sequence[Table | bytes]) -> Path:
    """These events as an export whose hashes fit."""
    records = extend(
        genesis("main"), [event if isinstance(event, bytes) else canonical(event) for event in events]
    )
    lines = [canonical({"evenhand": "export", "experiment": "main", "format": 1})]
    lines += [
        b'{"event":%b,"hash":"%b","seq":%d}' % (body, hash_.hex().encode(), seq)
        for seq, body, hash_ in records
    ]
    lines.append(canonical({"events": len(records), "head": records[-1].hash.hex()}))
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


Change = Callable[[Table, Log, random.Random], None]
Where = Callable[[Table], bool]


class Forgery(NamedTuple):
    """A kind of change: to which events, and what it does to one.

    A change of digits shows only where the build that audits is the one that wrote.
    """

    name: str
    kinds: tuple[str, ...]
    change: Change
    where: Where
    digits: bool = False

    def apply(self, log: Log, luck: random.Random) -> Forged | None:
        """The log with one event changed; None where it has no such event."""
        places = [place for place in log.of_kind(*self.kinds) if self.where(log.events[place])]
        if not places or (self.digits and log.builds):
            return None
        place = luck.choice(places)
        events = copy.deepcopy(log.events)
        self.change(events[place], log, luck)
        same = canonical(events[place]) == canonical(log.events[place])
        return None if same else Forged(events, place)


def put(**fields: Any) -> Change:
    """Set these fields; None takes one away."""

    def change(event: Table, _log: Log, _luck: random.Random) -> None:
        for name, value in fields.items():
            if value is None:
                event.pop(name, None)
            else:
                event[name] = value

    return change


def everywhere(_event: Table) -> bool:
    return True


def other_policy(event: Table, _log: Log, luck: random.Random) -> None:
    event["policy"] = luck.choice([name for name in "abc" if name != event["policy"]])


def other_group(event: Table, _log: Log, _luck: random.Random) -> None:
    event["group"] = "y" if event["group"] == "x" else "x"


def other_asked_group(event: Table, log: Log, luck: random.Random) -> None:
    """Where units come by themselves their group is given, and only the digits of the chances tell."""
    if log.mode == "active" or not log.builds:
        other_group(event, log, luck)


def other_digit(field: str) -> Change:
    def change(event: Table, _log: Log, luck: random.Random) -> None:
        place = luck.randrange(16)
        digit = luck.choice([d for d in "0123456789abcdef" if d != event[field][place]])
        event[field] = event[field][:place] + digit + event[field][place + 1 :]

    return change


def add(field: str, by: float) -> Change:
    def change(event: Table, _log: Log, _luck: random.Random) -> None:
        event[field] = event[field] + by

    return change


def in_outcome(field: str, change: Callable[[float, Log, random.Random], Any]) -> Change:
    """Change an outcome; on a shared item that of one policy that has one."""

    def changed(event: Table, log: Log, luck: random.Random) -> None:
        if isinstance(event[field], dict):
            name = luck.choice([name for name, x in event[field].items() if x is not None])
            event[field][name] = change(event[field][name], log, luck)
        else:
            event[field] = change(event[field], log, luck)

    return changed


def another(outcome: float, log: Log, luck: random.Random) -> float:
    """Another outcome that the family allows."""
    if log.family in COUNTING:
        most = 1 if log.family == "bernoulli" else 3
        return float(luck.choice([x for x in range(most + 1) if x != outcome]))
    return luck.uniform(-0.9, 1.9)


def impossible(_outcome: float, log: Log, luck: random.Random) -> float:
    worse = {"bernoulli": [2.0, 0.5, -1.0], "binomial": [4.0, 1.5, -1.0], "poisson": [-1.0, 0.5],
             "bounded": [2.5, -1.5]}  # fmt: skip
    return luck.choice([-0.0, 1e101, *worse.get(log.family, [])])


other_outcome, impossible_outcome = in_outcome("outcome", another), in_outcome("outcome", impossible)


def one_more(outcome: float, _log: Log, _luck: random.Random) -> float:
    return outcome + 1.0


def is_whole(event: Table) -> bool:
    """Whether an outcome, that of every policy on a shared item, is a whole number."""
    told = event["outcome"].values() if isinstance(event["outcome"], dict) else [event["outcome"]]
    return all(x is None or x == int(x) for x in told)


def is_item(event: Table) -> bool:
    return isinstance(event.get("outcome"), dict)


def fewer_policies(event: Table, _log: Log, luck: random.Random) -> None:
    """One policy less on a shared item, or one that was not asked."""
    names = list(event["policies"])
    if len(names) > 1:
        names.remove(luck.choice(names))
    else:
        names = ["b"] if names == ["a"] else ["a"]
    event["policies"] = names


def without_one_policy(event: Table, _log: Log, luck: random.Random) -> None:
    """The outcomes on a shared item without those of one policy that has one."""
    del event["outcome"][luck.choice([name for name, x in event["outcome"].items() if x is not None])]


def missing_outcome(event: Table, _log: Log, luck: random.Random) -> None:
    event["outcome"][luck.choice([name for name, x in event["outcome"].items() if x is not None])] = None


def first_import(event: Table, log: Log, _luck: random.Random) -> None:
    """The first ticket, if it is of an import."""
    if log.of_kind("imported"):
        event["ticket"] = 1


def one_outcome(event: Table, _log: Log, _luck: random.Random) -> None:
    event["outcome"] = 1.0


def moved_back(event: Table, log: Log, _luck: random.Random) -> None:
    """Ten days earlier than the log began, without a note."""
    event["at"] = "2023-11-04" + event["at"][10:]


def in_snapshot(change: Callable[[Table, random.Random], None]) -> Change:
    return lambda event, _log, luck: change(event["fold"], luck)


def other_number(table: Any, luck: random.Random) -> None:
    """One number of nested lists, a little larger."""
    while isinstance(table[0], list):
        table = luck.choice(table)
    place = luck.randrange(len(table))
    number = table[place]
    table[place] = 1.0 if isinstance(number, str) else number + (1 if isinstance(number, int) else 1e-3)


def state_table(name: str) -> Change:
    return in_snapshot(lambda fold, luck: other_number(fold["state"][name], luck))


def tally_table(name: str) -> Change:
    return in_snapshot(lambda fold, luck: other_number(fold["tally"][name], luck))


def becomes(kind: str, *keep: str, **fields: Any) -> Change:
    """An event of another kind in its place."""

    def change(event: Table, _log: Log, _luck: random.Random) -> None:
        kept = {name: event[name] for name in ("at", "back", *keep) if name in event}
        event.clear()
        event.update(kept, kind=kind, **fields)

    return change


def study_with(old: str, new: str) -> Change:
    def change(event: Table, _log: Log, _luck: random.Random) -> None:
        event["study"] = event["study"].replace(old, new)

    return change


def without(table: str, name: str) -> Change:
    def change(event: Table, _log: Log, _luck: random.Random) -> None:
        del event[table][name]

    return change


def in_answer(change: Callable[[list[Any], Log], object]) -> Change:
    """Change the first ticket of a recorded answer."""
    return lambda event, log, _luck: (change(event["answer"][0], log), None)[1]


def of(name: str, kinds: str, change: Change, where: Where = everywhere, digits: bool = False) -> Forgery:
    return Forgery(name, tuple(kinds.split()), change, where, digits)


def has(field: str) -> Where:
    return lambda event: field in event and event[field] is not None


OUTCOMES = "told imported amended late refused"
EVERY = (
    "asked told late dropped expired amended imported refused paused resumed closed viewed stopped snapshot "
    "build_changed answered"
)
ENDS = "told late refused amended dropped expired"
NEVER_ASKED = 987654

FORGERIES: tuple[Forgery, ...] = (
    # asks
    of("ask: another policy", "asked", other_policy),
    of("ask: another group", "asked", other_asked_group, has("group")),
    of("ask: an unknown policy", "asked", put(policy="d")),
    of("ask: an unknown group", "asked", put(group="z")),
    of("ask: another ticket", "asked", add("ticket", 1)),
    of("ask: another decision number", "asked", add("decision", 1)),
    of("ask: another digest of the state", "asked", other_digit("state")),
    of("ask: another digest of the chances", "asked", other_digit("chance"), digits=True),
    of("ask: a digest that is none", "asked", put(state="nonsense")),
    of("ask: a digest beyond 64 bits", "asked", put(state="1" * 17)),
    of("ask: a chance digest beyond 64 bits", "asked", put(chance="f" * 40)),
    of("ask: a digest in capitals", "asked", put(chance="ABCDEF0123456789")),
    of("ask: another chance", "asked", put(p=0.12345)),
    of("ask: a chance slightly higher", "asked", lambda e, _log, _luck: e.update(p=e["p"] * (1.0 + 1e-12)),
       digits=True),
    of("ask: an impossible chance", "asked", put(p=1.5)),
    of("ask: no chance", "asked", put(p=None)),
    of("ask: a lease of nothing", "asked", put(lease=0.0)),
    of("ask: a negative lease", "asked", put(lease=-5.0)),
    of("ask: a worker without a name", "asked", put(worker=" ")),
    of("ask: a worker with an endless name", "asked", put(worker="w" * 201)),
    # outcomes
    of("outcome: another that the family allows", "told imported", other_outcome),
    of("outcome: another that the family allows, in a correction", "amended", other_outcome,
       lambda e: e["counted"]),
    of("outcome: of another group", "told imported", other_group, has("group")),
    of("outcome: of another policy", "imported", other_policy),
    of("outcome: of the next ticket", "told amended imported", add("ticket", 1)),
    of("outcome: another digest of its sums", "told imported amended", other_digit("sums"), has("sums")),
    of("outcome: no digest of its sums", "told imported amended", put(sums=None), has("sums")),
    of("outcome: a digest beyond 64 bits", "told imported amended", put(sums="f" * 17), has("sums")),
    of("outcome: impossible in the family", OUTCOMES, impossible_outcome),
    of("outcome: of a ticket never asked", ENDS, put(ticket=NEVER_ASKED)),
    of("outcome: of ticket 0", ENDS, put(ticket=0)),
    of("outcome: of a negative ticket", ENDS, put(ticket=-1)),
    of("outcome: of an imported ticket", "told late dropped expired", first_import),
    of("told: an unknown group", "told late", put(group="z")),
    of("told: late without reason", "told", becomes("late", "ticket", "outcome", "group", why="expired")),
    of("late: counted", "late", becomes("told", "ticket", "outcome", "group")),
    of("late: because of nothing", "late", put(why="tired")),
    of("late: another reason", "late", lambda e, _log, _luck: e.update(
        why={"stopped": "closed", "closed": "stopped", "dropped": "expired", "expired": "dropped"}[e["why"]]
    )),
    of("refused: another outcome kept", "refused", in_outcome("kept", one_more)),
    of("amended: another old outcome", "amended", in_outcome("old", one_more)),
    of("amended: to what it was", "amended", lambda e, _log, _luck: e.update(outcome=e["old"])),
    of("amended: another policy", "amended", other_policy),
    of("amended: another group", "amended", other_group),
    of("amended: counts and does not", "amended", lambda e, _log, _luck: e.update(counted=not e["counted"])),
    of("amended: by nobody", "amended", put(by="")),
    of("amended: by somebody with an endless name", "amended", put(by="b" * 201)),
    of("a reason of blanks", "dropped amended paused resumed closed", put(reason="  ")),
    of("an endless reason", "dropped amended paused resumed closed", put(reason="r" * 2001)),
    # leases
    of("lease: expired before its end", "told", becomes("expired", "ticket")),
    of("lease: dropped turned into expired", "dropped", becomes("expired", "ticket")),
    of("lease: another time left", "expired", lambda e, _log, _luck: e.update(
        early=e.get("early", 0.0) + 1.0)),
    of("lease: no word about the time left", "expired", put(early=None), lambda e: e.get("early", 0.0) > 0.0),
    # imports
    of("import: row 1 of 1,000 alone", "imported", put(rows=1000), lambda e: e["rows"] == 1),
    of("import: another number of rows", "imported", put(rows=1000), lambda e: e["rows"] > 1),
    of("import: fewer rows", "imported", lambda e, _log, _luck: e.update(rows=e["rows"] - 1),
       lambda e: e["row"] < e["rows"]),
    of("import: another row", "imported", lambda e, _log, _luck: e.update(row=e["row"] % e["rows"] + 1),
       lambda e: e["rows"] > 1),
    of("import: row 0", "imported", put(row=0)),
    of("import: another source", "imported", put(source="elsewhere.csv"), lambda e: e["rows"] > 2),
    of("import: another ticket", "imported", add("ticket", 1)),
    of("import: an unknown policy", "imported", put(policy="d")),
    of("import: an unknown group", "imported", put(group="z")),
    of("import: no source", "imported", put(source=" ")),
    # times and keys
    of("time: earlier than the log, without a note", EVERY, moved_back),
    of("time: a note on a clock that was right", EVERY, put(back=5.0), lambda e: not e.get("back")),
    of("time: no note on a clock set back", EVERY, put(back=None), lambda e: e.get("back", 0.0) > 0.0),
    of("time: another note on a clock set back", EVERY, add("back", 1.0), lambda e: e.get("back", 0.0) > 0.0),
    of("time: the 30th of February", EVERY, lambda e, _log, _luck: e.update(at="2030-02-30" + e["at"][10:])),
    of("time: in words", EVERY, put(at="yesterday")),
    of("time: of another zone", EVERY, lambda e, _log, _luck: e.update(at=e["at"][:-1] + "+00:00")),
    of("key: none", "asked", put(key=""), has("key")),
    of("key: endless", "asked", put(key="k" * 201), has("key")),
    of("key: a part without a key", "asked told", put(part=1), lambda e: "key" not in e),
    of("key: a negative part", "asked", put(part=-1), has("key")),
    of("key: of an earlier request", "asked viewed told", lambda e, log, _luck: e.update(
        key=next(event["key"] for event in log.events if "key" in event), part=0)),
    of("key: a part without the one before", "asked", add("part", 5), lambda e: e.get("part", 0) > 0),
    of("key: a digest of the request in a later part", "asked", put(request="0" * 32),
       lambda e: e.get("part", 0) > 0),
    # recorded answers
    of("answer: of a ticket that does not exist", "answered", in_answer(lambda row, _log: row.__setitem__(
        0, "t987654-aaaa"))),
    of("answer: another policy", "answered", in_answer(lambda row, _log: row.__setitem__(
        1, "a" if row[1] != "a" else "b"))),
    of("answer: another group", "answered", in_answer(lambda row, _log: row.__setitem__(
        2, "x" if row[2] != "x" else "y"))),
    of("answer: of no known form", "answered", put(answer=["nonsense"])),
    of("answer: a list in place of a name", "answered", in_answer(lambda row, _log: row.__setitem__(
        1, [row[1]]))),
    # steering
    of("pause: of what is paused", "resumed", becomes("paused", "reason")),
    of("resume: of what runs", "paused", becomes("resumed", "reason")),
    of("viewed: by nobody", "viewed", put(by=" ")),
    of("created: again", "viewed told", lambda e, log, _luck: (e.clear(), e.update(log.events[0]))[1]),
    # the stop
    of("stop: another answer", "stopped", lambda e, _log, _luck: e.update(
        answer="a" if e["answer"] != "a" else "b")),
    of("stop: another number of samples", "stopped", add("samples", 1)),
    of("stop: slightly more evidence", "stopped", lambda e, _log, _luck: e.update(
        evidence=e["evidence"] * (1.0 + 1e-12)), has("evidence"), digits=True),
    of("stop: less needed", "stopped", add("needed", -0.5), has("needed")),
    of("stop: another weakest comparison", "stopped", add("weakest", 1), digits=True),
    of("stop: another reason", "stopped", lambda e, _log, _luck: e.update(
        why="exhausted" if e["why"] == "decided" else "decided")),
    of("stop: none", "stopped", becomes("viewed", by="b", what="w")),
    of("stop: where the rule does not", "viewed", becomes(
        "stopped", why="decided", answer="a", samples=9, evidence=9.0, needed=1.0, weakest=0)),
    # snapshots
    *(of(f"snapshot: another {name}", "snapshot", state_table(name))
      for name in ("n", "s", "ss", "out", "clock", "bets", "theta")),
    *(of(f"snapshot: another {name}", "snapshot", state_table(name), digits=True)
      for name in ("track", "w", "level")),
    of("snapshot: more draws", "snapshot", tally_table("drawn")),
    *(of(f"snapshot: another {name}", "snapshot", tally_table(name), digits=True)
      for name in ("expected", "spread")),
    of("snapshot: a whole number as a fraction", "snapshot", in_snapshot(
        lambda f, _luck: f.update(tickets=float(f["tickets"])))),
    of("snapshot: a whole number of a table as a fraction", "snapshot", in_snapshot(
        lambda f, _luck: f["state"]["clock"].__setitem__(0, float(f["state"]["clock"][0])))),
    of("snapshot: more tickets", "snapshot", in_snapshot(
        lambda f, _luck: f.update(tickets=f["tickets"] + 1))),
    of("snapshot: another latest time", "snapshot", in_snapshot(lambda f, _luck: f.update(latest="2030"))),
    of("snapshot: paused", "snapshot", in_snapshot(lambda f, _luck: f.update(paused=not f["paused"]))),
    of("snapshot: other counts", "snapshot", in_snapshot(lambda f, _luck: f["counts"].update(told=7))),
    of("snapshot: another ticket out", "snapshot", in_snapshot(
        lambda f, _luck: f["out"].append([NEVER_ASKED, 0, 0, None, "2023", None]))),
    of("snapshot: another build", "snapshot", in_snapshot(lambda f, _luck: f["build"].update(numpy="1"))),
    of("snapshot: something more", "snapshot", in_snapshot(lambda f, _luck: f.update(more=1))),
    of("snapshot: without its tally", "snapshot", in_snapshot(lambda f, _luck: f.pop("tally"))),
    of("snapshot: a state that is none", "snapshot", in_snapshot(lambda f, _luck: f.update(state=[1, 2]))),
    of("snapshot: a number beyond 64 bits", "snapshot", in_snapshot(
        lambda f, _luck: f["state"]["clock"].__setitem__(0, 2**70))),
    # the protocol
    of("protocol: a seed beyond 64 bits", "created", put(seed=2**64 + 1)),
    of("protocol: a seed of 64 bits", "created", put(seed=2**63)),
    of("protocol: a negative seed", "created", put(seed=-1)),
    of("protocol: a negative lease", "created", put(lease=-1.0)),
    of("protocol: a study that is none", "created", put(study="hello")),
    of("protocol: a study that cannot be run", "created", study_with("initial", "initials")),
    of("protocol: a later format", "created", put(format=99)),
    of("protocol: format 0", "created", put(format=0)),
    of("protocol: no limits", "created", put(limits={})),
    of("protocol: a negative limit", "created", lambda e, _log, _luck: e["limits"].update(tickets_out=-1)),
    of("protocol: no version of numpy", "created", without("versions", "numpy")),
    of("protocol: endless versions", "created", lambda e, _log, _luck: e["versions"].update(numpy="1" * 999)),
    of("protocol: a name that is none", "created", put(experiment="../main")),
    of("protocol: by nobody", "created", put(by="")),
    of("protocol: a time that is none", "created", put(at="long ago")),
    # builds
    of("build: the same again", "viewed", lambda e, log, _luck: becomes(
        "build_changed", versions=log.events[0]["versions"], format=2)(e, log, _luck), digits=True),
    of("build: without its versions", "build_changed", put(versions={})),
    of("build: an older format", "build_changed", put(format=1)),
    of("build: a later format", "build_changed", put(format=99)),
    # spelling
    of("a field that nobody knows", EVERY, put(surprise=1)),
    of("a field that is missing", EVERY, put(at=None)),
    of("a kind that nobody knows", EVERY, put(kind="wondered")),
    of("a number as text", OUTCOMES, in_outcome("outcome", lambda x, _log, _luck: str(x))),
    of("a whole number instead of a float", "told amended", in_outcome(
        "outcome", lambda x, _log, _luck: int(x)), is_whole),
    # shared items
    of("item: other policies", "asked", fewer_policies, has("policies")),
    of("item: no policy", "asked", put(policies=None), has("policies")),
    of("item: an unknown policy", "asked", put(policies=["a", "d"]), has("policies")),
    of("item: a policy twice", "asked", put(policies=["a", "a"]), has("policies")),
    of("item: policies in another order", "asked", put(policies=["b", "a"]), has("policies")),
    of("item: outcomes without those of a policy", OUTCOMES, without_one_policy, is_item),
    of("item: an outcome that becomes missing", "told amended", missing_outcome, is_item),
    of("item: one outcome in place of several", OUTCOMES, one_outcome, is_item),
    of("item: an ask for one policy", "asked", lambda e, _log, _luck: e.update(policies=[], policy="a"),
       has("policies")),
    of("item: a policy on an ordinary ticket", "asked", put(policies=["a", "b"]),
       lambda e: "policies" not in e),
)  # fmt: skip


def forgeries(log: Log, luck: random.Random) -> Iterator[tuple[str, Forged]]:
    """One forged log of each kind that this log allows."""
    for forgery in FORGERIES:
        forged = forgery.apply(log, luck)
        if forged is not None:
            yield forgery.name, forged

"""Honest logs in which everything happens."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import evenhand as eh
from evenhand.errors import EvenhandError
from evenhand.live import build
from evenhand.live.build import present_build
from evenhand.live.experiment import Experiment
from evenhand.live.tickets import Ask
from evenhand.model.families import Family
from evenhand.study import Study
from tests.live.example_experiments import SetClock, records

Table = dict[str, Any]  # one event
LEASE = 600.0
FAMILIES: tuple[Family, ...] = (
    eh.Bernoulli(), eh.Binomial(3), eh.Poisson(), eh.Gaussian(1.0), eh.GaussianUnknown(),
    eh.Bounded(-1.0, 2.0),
)  # fmt: skip
COUNTING = ("bernoulli", "binomial", "poisson")


class Log(NamedTuple):
    """An honest log as plain tables."""

    family: str
    mode: str
    builds: bool  # did more than one write it?
    events: list[Table]

    def of_kind(self, *kinds: str) -> list[int]:
        """Where events of these kinds stand, from 0."""
        return [place for place, event in enumerate(self.events) if event["kind"] in kinds]


def honest_log(
    path: Path,
    luck: random.Random,
    family: Family,
    mode: str,
    events: int,
    builds: bool = True,
    shared: bool = False,
) -> Log:
    """A log of about so many events of every kind.

    `builds`: by two builds in turn; `shared`: on shared items.
    """
    delta = luck.choice([1e-9, 0.3])
    rule = luck.choice(
        ["ts-ids", "uniform"] if shared else ["ts-ids", "uniform", "top-two", "track-and-stop"]
    )
    problem = eh.Problem(["a", "b", "c"], {"x": 0.6, "y": 0.4}, family, mode=mode)
    items = "shared" if shared else None
    study = Study(problem, eh.Procedure(rule, delta=delta, initial=luck.randint(1, 2), items=items))
    clock = SetClock(step=0.5)
    options: Any = {"seed": luck.getrandbits(40), "lease": LEASE, "clock": clock, "by": "the maker"}
    with Experiment.create(str(path), study, **options) as trial:
        actions = Actions(trial, clock, luck)
        actions.play(events // 2)
        with another_build() if builds else nullcontext():
            actions.play(3 * events // 4)
        actions.play(events)
        actions.end()
    with Experiment.open(str(path), write=False) as found:
        tables = [json.loads(record.body) for record in records(found)]
    return Log(family.name, mode, builds, tables)


@contextmanager
def another_build() -> Iterator[None]:
    """As if another version of a library had been installed."""
    with pytest.MonkeyPatch.context() as patch:
        other = present_build() | {"numpy": "0.0.1"}
        patch.setattr(build, "_present", lambda: other)
        yield


class Actions:
    """Random calls on one experiment."""

    def __init__(self, trial: Experiment, clock: SetClock, luck: random.Random) -> None:
        self.trial, self.clock, self.luck = trial, clock, luck
        self.problem = trial.protocol.problem
        self.out: list[tuple[Ask, str]] = []
        self.told: list[tuple[Ask, str]] = []
        self.keys = 0

    def play(self, events: int) -> None:
        """Whatever comes, until there are so many events."""
        if self.trial.status().state == "running":
            if self.trial.protocol.procedure.items is None:
                self.bring(self.luck.choice([1, 2, 3, 5]))
            self.pause()
        every = [self.ask, self.tell, self.tell, self.drop, self.expire, self.amend, self.again, self.look,
                 self.set_back, self.ask_again]  # fmt: skip
        while self.trial.head.seq < events and self.trial.status().state == "running":
            self.luck.choice([self.ask, self.tell, self.tell, self.tell, *every])()

    def end(self) -> None:
        """What may come after the stop, and the end."""
        for _ in range(3):
            self.tell_late()
        if self.luck.random() < 0.5:
            self.trial.finish("the end", by="sponsor")
            self.tell_late()
        self.amend()

    def outcome(self, policy: str) -> float:
        """Higher for policy a, so that some runs end with a decision."""
        name = self.problem.family.name
        if name in COUNTING:
            most, chance = 1 if name == "bernoulli" else 3, 0.9 if policy == "a" else 0.2
            return float(sum(self.luck.random() < chance for _ in range(most)))
        return self.luck.uniform(0.5, 1.9) if policy == "a" else self.luck.uniform(-0.9, 0.5)

    def told_for(self, ask: Ask, policy: str) -> Any:
        """The outcome of a ticket as that of a policy; on an item those of all, sometimes without one."""
        if not ask.policies:
            return self.outcome(policy)
        told: dict[str, float | None] = {name: self.outcome(name) for name in ask.policies}
        if len(told) > 1 and self.luck.random() < 0.1:
            told[self.luck.choice(ask.policies)] = None
        return told

    def bring(self, rows: int) -> None:
        cells = [(self.luck.choice("abc"), self.luck.choice("xy")) for _ in range(rows)]
        data = [(policy, group, self.outcome(policy)) for policy, group in cells]
        self.trial.import_data(data, source="before.csv", key=f"import {self.trial.head.seq}")

    def ask(self) -> None:
        group = self.luck.choice("xy")
        self.keys += 1
        asks = self.trial.ask(
            self.luck.randint(1, 4), group=group if self.problem.mode == "proportional" else None,
            worker=self.luck.choice([None, f"w{self.keys}"]), key=self.luck.choice([None, f"k{self.keys}"]),
            lease=self.luck.choice([None, None, 5000]),
        )  # fmt: skip
        self.out += [(ask, ask.group or self.luck.choice("xy")) for ask in asks]
        self.luck.shuffle(self.out)

    def ask_again(self) -> None:
        """Open tickets of a worker under another key: the answer is written, because no event holds it."""
        self.keys += 1
        group = self.luck.choice("xy") if self.problem.mode == "proportional" else None
        worker, key = f"twice {self.keys}", f"k{self.keys}"
        asks = self.trial.ask(2, group=group, worker=worker, key=key)
        again = self.trial.ask(2, group=group, worker=worker, key=f"{key} again")
        assert again == asks
        self.out += [(ask, ask.group or self.luck.choice("xy")) for ask in asks]

    def tell(self) -> None:
        if self.out:
            ask, group = self.out.pop()
            agnostic = self.problem.mode == "agnostic"
            self.trial.tell(ask, self.told_for(ask, ask.policy), group=group if agnostic else None)
            self.told.append((ask, group))

    def drop(self) -> None:
        if self.out and self.luck.random() < 0.3:
            ask, group = self.out.pop()
            self.trial.drop(ask, "withdrew", by="site 3")
            self.told.append((ask, group))

    def expire(self) -> None:
        """Sometimes the wall clock runs along, sometimes only the steady one."""
        if self.luck.random() < 0.15:
            self.clock.waited += LEASE + 1
            self.clock.wall += self.luck.choice([0.0, LEASE + 1])
            self.trial.sweep()
            self.told += self.out
            self.out.clear()

    def amend(self) -> None:
        if self.told and self.luck.random() < 0.5:
            ask, _ = self.luck.choice(self.told)
            with suppress(EvenhandError):  # it may have no outcome
                self.trial.amend(ask, self.told_for(ask, self.luck.choice("ab")), reason="typo", by="nurse 4")

    def again(self) -> None:
        """Another outcome for a ticket that has one, or a late one for a ticket given up."""
        if self.told and self.luck.random() < 0.5:
            ask, group = self.luck.choice(self.told)
            with suppress(EvenhandError):  # it is refused and written down
                agnostic = self.problem.mode == "agnostic"
                outcome = self.told_for(ask, self.luck.choice("ab"))
                self.trial.tell(ask, outcome, group=group if agnostic else None)

    def tell_late(self) -> None:
        if self.trial.status().state != "running":
            self.tell()
            self.again()

    def look(self) -> None:
        if self.luck.random() < 0.2:
            self.trial.view("board", "estimates")

    def pause(self) -> None:
        self.trial.pause("visit", by="board")
        self.trial.resume("all is well")

    def set_back(self) -> None:
        if self.luck.random() < 0.1:
            self.clock.wall -= self.luck.choice([0.3, 60.0, 3600.0])

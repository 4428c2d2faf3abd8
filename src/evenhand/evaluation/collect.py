"""Collect outcomes: make the calls that a sampling asks for, until it is finished.

Items are asked up to a fixed number ahead, and recorded in the order in which they were asked. What is asked
next is therefore a function of the seed and the outcomes, not of the speed of the answers. A call that failed
permanently is recorded once its candidate has answered an item after it: until then its service may be down.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenhand.errors import BadInput
from evenhand.evaluation.callers import CallSettings, Finished, Job, Workers, is_batched
from evenhand.evaluation.graders import Graded, Labels, handed_over, worst_outcomes
from evenhand.evaluation.journal import CallJournal, CallRecord, OutputCache, stored
from evenhand.evaluation.pool import Pool
from evenhand.evaluation.sampling import Asked, Cells, Sampling
from evenhand.model.problem import Problem


@dataclass
class Cost:
    """The calls of an evaluation so far, and the calls of evaluating everything."""

    everything: int
    calls: int = 0
    samples: int = 0
    evidence: float = 0.0
    needed: float = 0.0
    failed: int = 0  # calls that failed permanently
    last_error: str = ""  # of these
    attempts: int = 0  # with those that were tried again
    reused: int = 0  # outputs from the cache
    spent: float | None = None  # money for calls; None without prices
    labels: int = 0  # items that were graded; a label serves all policies
    label_price: float | None = None
    seconds: float = 0.0  # since the start of this process's part

    @property
    def saved(self) -> float:
        """Return the share of all calls that was not needed."""
        return max(1.0 - self.calls / self.everything, 0.0)

    @property
    def label_cost(self) -> float | None:
        """Return the money for labels; None if they have no price."""
        return None if self.label_price is None else self.labels * self.label_price

    @property
    def total(self) -> float | None:
        """Return the money for calls and labels; None without prices."""
        paid = [part for part in (self.spent, self.label_cost) if part is not None]
        return sum(paid) if paid else None

    @property
    def expected_calls(self) -> int | None:
        """Return the number of calls at which the evidence would suffice if it grew as so far."""
        if self.evidence <= 0.0 or self.needed <= 0.0:
            return None
        return min(math.ceil(self.calls * max(self.needed / self.evidence, 1.0)), self.everything)

    @property
    def seconds_left(self) -> float | None:
        """Return the expected time until the end; None without calls to compute it from."""
        total = self.expected_calls
        return None if total is None or not self.calls else self.seconds * (total / self.calls - 1.0)


@dataclass
class Calls:
    """The calls made and to be made, with what is known of each policy and item."""

    problem: Problem
    pool: Pool
    workers: Workers
    settings: CallSettings
    cost: Cost
    prices: Mapping[str, float]
    cache: OutputCache | None = None
    journal: CallJournal | None = None
    labels: Labels | None = None
    show: Callable[[Cost], None] | None = None
    known: dict[tuple[int, int], Graded | None] = field(default_factory=dict)  # None: failed, left out
    ungraded: dict[tuple[int, int], Any] = field(default_factory=dict)  # outputs without a label
    failing: dict[int, list[int]] = field(default_factory=dict)  # items since the last answer of a policy
    failed: set[tuple[int, int]] = field(default_factory=set)
    counted: set[tuple[int, int]] = field(default_factory=set)  # failures of the grader, before a resume
    errors: dict[int, str] = field(default_factory=dict)  # the last one of each policy
    requested: set[tuple[int, int]] = field(default_factory=set)
    backlog: deque[Job] = field(default_factory=deque)
    gathered: dict[int, list[int]] = field(default_factory=dict)
    labelled: set[str] = field(default_factory=set)  # names of graded items
    running: int = 0
    begun: float = field(default_factory=time.monotonic)

    def load(self) -> None:
        """Take over what the journal holds; failures without an answer after them are asked again."""
        numbers = {name: number for number, name in enumerate(self.pool.names)}
        for record in [] if self.journal is None else self.journal.records:
            k, item = self.problem.policy_index(record.policy), numbers[record.item]
            self._count(record)
            if record.outcome is not None:
                self.known[k, item] = self._graded(record)
                self.ungraded.pop((k, item), None)
                self._release(k)
                continue
            if record.output is not None:  # its label was missing, or the grader failed on it
                self.ungraded[k, item] = record.output
            if record.error:
                self._fail(k, item, record.error)
        self.failed -= {(k, item) for k, items in self.failing.items() for item in items}
        self.failing.clear()
        self.counted = {key for key in self.ungraded if key in self.known}
        for key in self.counted:  # the grader may be another one now
            del self.known[key]
            self.failed.discard(key)
        self.cost.failed = len(self.failed)

    def request(self, asked: Asked) -> None:
        """Ask for the outcomes on an item that are not known yet."""
        for k in asked.policies:
            key = k, asked.item
            if key in self.known or key in self.requested:
                continue
            self.requested.add(key)
            found = (self.ungraded[key],) if key in self.ungraded else self._cached(*key)
            if found:
                self.backlog.append(Job(k, (asked.item,), found))
            elif is_batched(self.workers.candidates[k]):
                self.gathered.setdefault(k, []).append(asked.item)
            else:
                self.backlog.append(Job(k, (asked.item,)))

    def start(self) -> None:
        """Start as many calls as may run at once."""
        for k, items in self.gathered.items():
            for first in range(0, len(items), self.settings.batch):
                self.backlog.append(Job(k, tuple(items[first : first + self.settings.batch])))
        self.gathered.clear()
        while self.backlog and self.running < self.settings.concurrency:
            self.workers.submit(self.backlog.popleft())
            self.running += 1

    def wait(self) -> None:
        """Wait until a call ends, and record its result and those of all others that ended."""
        ended = [self.workers.get(), *self.workers.get_more()]
        self.running -= len(ended)
        records = [record for one in ended for record in self._note(one)]
        if self.journal is not None:
            self.journal.append(records)
        # afterwards, so that a kill never loses more calls than may run at once
        self.start()
        self.cost.seconds = time.monotonic() - self.begun
        if self.show is not None:
            self.show(self.cost)

    def has(self, asked: Asked) -> bool:
        """Return whether all outcomes on an item are known."""
        return all((k, asked.item) in self.known for k in asked.policies)

    def outcomes(self, asked: Asked) -> dict[int, Graded | None]:
        """Return the outcomes on an item."""
        return {k: self.known[k, asked.item] for k in asked.policies}

    def release_all(self) -> None:
        """Count failures that no answer followed, when nothing is left to ask."""
        for k in list(self.failing):
            self._release(k)

    def finish(self) -> None:
        """Wait for the calls that run; calls that were not begun are not made."""
        self.backlog.clear()
        while self.running:
            self.wait()

    def finish_quietly(self, wait: bool) -> None:
        """Note calls that ended, or wait for those that run, after an error that is raised anyway."""
        self.backlog.clear()
        while self.running and (wait or not self.workers.done.empty()):
            self.wait()

    def _note(self, ended: Finished) -> list[CallRecord]:
        """Take over the result of a job, and return its lines of the journal."""
        job, records = ended.job, []
        name, reused = self.problem.policies[job.policy], job.outputs is not None
        for place, item in enumerate(job.items):
            key = job.policy, item
            graded = ended.outcomes[place] if place < len(ended.outcomes) else None
            output = ended.outputs[place] if place < len(ended.outputs) else None
            cost = ended.costs[place] if place < len(ended.costs) else None
            error = ended.errors[place]
            if cost is None and ended.outputs:
                cost = self.prices.get(name)
            outcome, rails = self._parts(graded)
            record = CallRecord(
                name,
                self.pool.names[item],
                outcome,
                stored(output),
                error=error,
                attempts=ended.attempts,
                seconds=round(ended.seconds, 6),
                cost=None if reused else cost,
                reused=reused,
                guardrails=rails,
            )
            if error:
                self._fail(job.policy, item, error)
            if graded is None and (key in self.ungraded or (output is None and not error)):
                continue  # nothing new: there is no output, or it still cannot be graded
            records.append(record)
            self._count(record)
            if graded is not None:
                self.known[key] = graded
                self.ungraded.pop(key, None)
            elif output is not None and not error:
                self.ungraded[key] = output
        if self.cache is not None and not reused and len(ended.outputs) == len(job.items):
            self.cache.put(
                (name, self.pool.item(item), output)
                for item, output in zip(job.items, ended.outputs, strict=True)
            )
        if "" in ended.errors:
            self._release(job.policy)
        return records

    def _parts(self, graded: Graded | None) -> tuple[float | None, dict[str, float] | None]:
        """Return the outcome, and the outcomes of the guard-rails by name, as the journal keeps them."""
        if not isinstance(graded, tuple):
            return graded, None
        names = [rail.name for rail in self.problem.guardrails]
        return graded[0], dict(zip(names, graded[1:], strict=True))

    def _graded(self, record: CallRecord) -> Graded:
        """Return what a line of the journal holds."""
        assert record.outcome is not None
        if not self.problem.guardrails:
            return record.outcome
        rails = record.guardrails or {}
        return (record.outcome, *(rails[rail.name] for rail in self.problem.guardrails))

    def _fail(self, k: int, item: int, error: str) -> None:
        """Note a call that failed permanently; it counts once its candidate has answered a later item."""
        self.failing.setdefault(k, []).append(item)
        if (k, item) in self.counted:
            self._release(k)
        self.failed.add((k, item))
        name = self.problem.policies[k]
        self.errors[k] = f"{name} on item {self.pool.names[item]}: {error.rstrip('.')}"
        self.cost.failed, self.cost.last_error = len(self.failed), self.errors[k]

    def _count(self, record: CallRecord) -> None:
        if record.outcome is not None:
            self.labelled.add(record.item)
            self.cost.labels = len(self.labelled)
        if record.reused:
            self.cost.reused += 1
            return
        self.cost.attempts += record.attempts
        self.cost.calls += record.error == "" or record.output is not None
        if record.cost is not None:
            self.cost.spent = (self.cost.spent or 0.0) + record.cost

    def _release(self, k: int) -> None:
        """Count the failures of a policy as the lowest outcome, or leave them out."""
        lowest = worst_outcomes(self.problem) if self.settings.failures == "lowest" else None
        for item in self.failing.pop(k, []):
            self.known[k, item] = lowest

    def _cached(self, k: int, item: int) -> tuple[Any, ...]:
        if self.cache is None:
            return ()
        return self.cache.get(self.problem.policies[k], self.pool.item(item))


def collect(sampling: Sampling, calls: Calls) -> str:
    """Run a sampling to its end; return why it ended without being finished, or an empty text."""
    ahead, chunk = _ahead(sampling, calls)
    window: deque[Asked] = deque()
    extra = 0  # further items asked because the first is held by a failure
    while not sampling.finished:
        if len(window) <= ahead + extra - chunk:
            while len(window) < ahead + extra and (asked := sampling.next()) is not None:
                window.append(asked)
                calls.request(asked)
        if not window:
            break
        calls.start()
        if calls.has(window[0]):
            first = window.popleft()
            outcomes = calls.outcomes(first)
            sampling.record(first, outcomes)
            calls.cost.samples += sum(outcome is not None for outcome in outcomes.values())
            calls.cost.evidence, calls.cost.needed = sampling.level
            extra = 0
        elif calls.running:
            calls.wait()
        elif broken := _broken(calls):
            return broken
        elif calls.failing and (asked := sampling.next()) is not None:
            extra += 1
            window.append(asked)
            calls.request(asked)
        elif calls.failing:
            calls.release_all()
        else:
            return _wait_for_labels(window, calls)
    calls.finish()
    return ""


def _ahead(sampling: Sampling, calls: Calls) -> tuple[int, int]:
    """Return how many items are asked ahead, and how many at once."""
    settings, policies = calls.settings, len(calls.problem.policies)
    if calls.labels is not None:
        return settings.batch, settings.batch
    shared = not isinstance(sampling, Cells)
    if shared and any(is_batched(candidate) for candidate in calls.workers.candidates):
        return settings.batch, settings.batch
    if settings.concurrency == 1:
        return 1, 1
    return 2 * math.ceil(settings.concurrency / (policies if shared else 1)), 1


def _broken(calls: Calls) -> str:
    """Return a sentence about a candidate that fails on item after item; empty where none does."""
    for k, items in calls.failing.items():
        if len(items) >= calls.settings.max_failures:
            calls.finish()
            return (
                f"{calls.problem.policies[k]} failed on {len(items)} items in a row, so the evaluation was "
                f"interrupted; these failures do not count. The last error: {calls.errors[k]}."
            )
    return ""


def _wait_for_labels(window: deque[Asked], calls: Calls) -> str:
    """Write the items that need a label to the hand-over file; return what people are to do."""
    if calls.labels is None:
        raise BadInput("the outcomes of some calls are not known; grade them by a function, or by labels.")
    wanted = {asked.item for asked in window if not calls.has(asked)}
    calls.labels.hand_over(handed_over(calls.pool, sorted(wanted)))
    return (
        f"{calls.labels.open:,} items wait for a label in {calls.labels.path}: fill in the column label, and "
        "run the same evaluation again."
    )

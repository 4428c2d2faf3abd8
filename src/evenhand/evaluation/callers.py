"""Calls of candidates on items: functions, coroutines, batched predictions and HTTP endpoints.

A call that raises, or returns what cannot be used, is tried again after a growing delay. At most
`concurrency` calls run at once, each in a thread; with one call at a time and without a time-out they run in
the thread of the caller.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import queue
import random
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from evenhand.errors import BadInput, shown
from evenhand.evaluation.graders import Grade, Graded, LabelMissing, Unusable
from evenhand.evaluation.journal import stored
from evenhand.evaluation.pool import Pool
from evenhand.model.argument_checks import is_number, whole_number

LONGEST_DELAY = 60.0  # seconds between two attempts
LONGEST_ERROR = 300  # characters of an error in the journal
TRY_AGAIN = (408, 425, 429)  # HTTP statuses below 500 after which a request is sent again


@dataclass(frozen=True)
class CallSettings:
    """How candidates are called."""

    concurrency: int = 1
    timeout: float | None = None  # seconds for one attempt
    retries: int = 2  # further attempts after the first
    backoff: float = 0.25  # seconds before the second attempt; doubled each time
    batch: int = 64  # items of one prediction, and of one round of labels
    failures: str = "lowest"  # what a call that fails permanently counts as: the lowest outcome, or "drop"
    max_failures: int = 10  # items in a row on which a candidate fails before the run ends

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("retries", 0), ("batch", 1), ("max_failures", 1)):
            whole_number(getattr(self, name), name, least)
        if self.timeout is not None and not (is_number(self.timeout) and self.timeout > 0):
            raise BadInput(f"timeout must be a positive number of seconds; it is {shown(self.timeout)}.")
        if not is_number(self.backoff) or self.backoff < 0:
            raise BadInput(f"backoff must be a number of seconds, at least 0; it is {shown(self.backoff)}.")
        if self.failures not in ("lowest", "drop"):
            raise BadInput(f"failures must be 'lowest' or 'drop'; it is {shown(self.failures)}.")


class Priced(NamedTuple):
    """An output together with what this call has cost."""

    output: Any
    cost: float


@dataclass(frozen=True)
class Job:
    """A candidate and the items to call it on; `outputs` where they are known and only graded."""

    policy: int
    items: tuple[int, ...]
    outputs: tuple[Any, ...] | None = None


@dataclass
class Finished:
    """The result of a job: outputs and outcomes, or the error of the last attempt."""

    job: Job
    outputs: Sequence[Any] = ()
    outcomes: list[Graded | None] = field(default_factory=list)  # None: failed, or the label is missing
    costs: list[float | None] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # of every item, empty where there is none
    attempts: int = 0
    seconds: float = 0.0


class Workers:
    """Threads that run jobs."""

    def __init__(
        self, candidates: Mapping[str, Any], pool: Pool, grade: Grade, settings: CallSettings
    ) -> None:  # fmt: skip
        self.candidates = list(candidates.values())
        self.pool, self.grade, self.settings = pool, grade, settings
        self.inline = settings.concurrency == 1 and settings.timeout is None
        self.waiting: deque[Job] = deque()  # of the calling thread
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[Finished] = queue.SimpleQueue()
        self.closing = threading.Event()
        self.threads = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.lock = threading.Lock()

    def submit(self, job: Job) -> None:
        """Start a job."""
        if self.inline:
            self.waiting.append(job)
            return
        self.jobs.put(job)
        if self.threads < self.settings.concurrency:
            self.threads += 1
            threading.Thread(target=self._work, daemon=True).start()

    def get(self) -> Finished:
        """Return a finished job; wait for one."""
        return self._carry_out(self.waiting.popleft()) if self.inline else self.done.get()

    def get_more(self) -> list[Finished]:
        """Return further finished jobs without waiting."""
        found: list[Finished] = []
        while not self.done.empty():
            found.append(self.done.get())
        return found

    def close(self) -> None:
        """End the threads that wait for jobs; calls that hang are left to end with the process."""
        self.closing.set()
        for _ in range(self.threads):
            self.jobs.put(None)
        with self.lock:
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self.loop.stop)

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                found = self._carry_out(job)
            except BaseException as problem:  # such as SystemExit: the run waits for an answer to every job
                found = Finished(job, errors=[_described(problem)] * len(job.items), attempts=1)
            self.done.put(found)

    def _carry_out(self, job: Job) -> Finished:
        """Call the candidate and grade its outputs; no exception of either leaves this function."""
        begun, found = time.monotonic(), Finished(job)
        outputs = job.outputs
        if outputs is None:
            outputs, found.attempts, error = self._with_retries(lambda: self._outputs(job))
            if error:
                found.errors = [error] * len(job.items)
        if outputs is not None:
            self._grade(found, outputs)
        found.seconds = time.monotonic() - begun
        return found

    def _grade(self, found: Finished, outputs: Sequence[Any]) -> None:
        job = found.job
        found.costs = [output.cost if isinstance(output, Priced) else None for output in outputs]
        found.outputs = [output.output if isinstance(output, Priced) else output for output in outputs]
        for item, output in zip(job.items, found.outputs, strict=True):
            outcome, _, error = self._with_retries(partial(self._graded, job.policy, item, output))
            found.outcomes.append(outcome)
            found.errors.append(error)

    def _graded(self, policy: int, item: int, output: Any) -> Graded | None:
        _refuse_unfinished(output)
        try:
            return self.grade(policy, item, output, self._settled)
        except LabelMissing:
            if stored(output) is None:  # it would be lost when the run ends
                raise Unusable(
                    "an output that waits for a label must be text, a number, a list or a mapping; it is "
                    f"{shown(output)}"
                ) from None
            return None

    def _with_retries(self, action: Callable[[], Any]) -> tuple[Any, int, str]:
        """Return the result, the number of attempts, and the error of the last one."""
        for attempt in range(self.settings.retries + 1):
            try:
                return action(), attempt + 1, ""
            except Exception as problem:
                last = _described(problem)
                is_permanent, least = _advice(problem)
                if attempt == self.settings.retries or is_permanent:
                    break
                delay = min(self.settings.backoff * 2.0**attempt, LONGEST_DELAY) * random.uniform(0.5, 1.0)
                if self.closing.wait(max(delay, least)):
                    break
        return None, attempt + 1, last

    def _outputs(self, job: Job) -> tuple[Any, ...]:
        """Return one output for each item of a job: one attempt."""
        candidate = self.candidates[job.policy]
        if not is_batched(candidate):
            return (self._settled(lambda: candidate(self.pool.item(job.items[0]))),)
        inputs = self.pool.inputs(job.items)
        found = self._settled(lambda: candidate.predict(inputs))
        if not hasattr(found, "__len__") or isinstance(found, (str, bytes, Mapping, Set)):
            raise Unusable(f"predict must return a list with one output an item; it returned {shown(found)}")
        outputs = tuple(found)
        if len(outputs) != len(job.items):
            raise Unusable(
                f"predict must give one output an item; it gave {len(outputs)} for {len(job.items)} items"
            )
        return outputs

    def _settled(self, action: Callable[[], Any]) -> Any:
        """Return the result of a function or coroutine, or raise TimeoutError."""
        timeout = self.settings.timeout
        found = action() if timeout is None else _within(timeout, action)
        if not inspect.isawaitable(found):
            return found
        future = asyncio.run_coroutine_threadsafe(_awaited(found), self._running_loop())
        try:
            return future.result(timeout)
        except TimeoutError:
            if timeout is None or future.done():  # raised by the coroutine itself
                raise
            future.cancel()
            raise TimeoutError(f"no answer within {timeout:g} seconds") from None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self.lock:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                threading.Thread(target=_run_loop, args=(self.loop,), daemon=True).start()
            return self.loop


class HttpEndpoint:
    """A candidate behind an address: POST {"item": ...} is answered by {"output": ...}.

    With `batched` it predicts several items: POST {"items": [...]} is answered by {"outputs": [...]}. The
    answer may also give the "cost" of the call.
    """

    def __init__(self, url: str, timeout: float | None = None, batched: bool = False) -> None:
        self.url, self.timeout = url, timeout
        if batched:
            self.predict = self._predict

    def __call__(self, item: Any) -> Any:
        answer = self._post({"item": item})
        if not isinstance(answer, Mapping) or "output" not in answer:
            raise Unusable(
                f"{self.url} must answer with a JSON object that has an output; it answered {shown(answer)}"
            )
        cost = answer.get("cost", math.nan)
        return Priced(answer["output"], float(cost)) if is_number(cost) else answer["output"]

    def _predict(self, items: Sequence[Any]) -> Any:
        answer = self._post({"items": list(items)})
        if not isinstance(answer, Mapping) or not isinstance(answer.get("outputs"), list):
            raise Unusable(
                f"{self.url} must answer with a JSON object that has outputs; it answered {shown(answer)}"
            )
        outputs, cost = answer["outputs"], answer.get("cost", math.nan)
        if is_number(cost) and outputs:
            return [Priced(output, float(cost) / len(outputs)) for output in outputs]
        return outputs

    def _post(self, body: Any) -> Any:
        content = json.dumps(body, default=str).encode()
        request = urllib.request.Request(self.url, content, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as answer:
            with answer:
                raise HttpFailure(answer.code, answer.headers.get("Retry-After")) from None


class HttpFailure(Exception):
    """An HTTP status that is not success."""

    def __init__(self, status: int, retry_after: str | None) -> None:
        super().__init__(f"HTTP status {status}")
        self.is_permanent = status < 500 and status not in TRY_AGAIN
        self.retry_after = float(retry_after) if retry_after and retry_after.isdigit() else 0.0


def _described(problem: BaseException) -> str:
    """Return an exception as text of limited length; a message of evenhand's own as it is."""
    try:
        words = str(problem)
    except Exception:  # an exception class of the user's
        words = "without a readable message"
    if isinstance(problem, Unusable):
        return words
    return ": ".join(filter(None, (type(problem).__name__, words)))[:LONGEST_ERROR]


def _advice(problem: Exception) -> tuple[bool, float]:
    """Return whether another attempt is of no use, and the least delay before it, as an HTTP failure says."""
    if not isinstance(problem, HttpFailure):
        return False, 0.0
    return problem.is_permanent, min(problem.retry_after, LONGEST_DELAY)


def _refuse_unfinished(output: Any) -> None:
    """Refuse what is no output yet, such as a generator: nothing would ever be equal to it."""
    if inspect.iscoroutine(output):
        output.close()
    if isinstance(output, Iterator) or inspect.isawaitable(output) or inspect.isasyncgen(output):
        raise Unusable(f"a candidate must return an output; it returned {shown(output)}")


def is_batched(candidate: Any) -> bool:
    """Return whether a candidate predicts several items at once."""
    return hasattr(candidate, "predict")


def named_candidates(candidates: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return candidates by name; those of a list by the names of their functions or classes."""
    if not isinstance(candidates, (Mapping, list, tuple)):
        raise BadInput(f"candidates must be a mapping from name to candidate; it is {shown(candidates)}.")
    if isinstance(candidates, Mapping):
        found = dict(candidates)
    else:
        found = {getattr(c, "__name__", type(c).__name__): c for c in candidates}
        if len(found) < len(candidates):
            raise BadInput("candidates need different names; pass a mapping from name to candidate.")
    for name, candidate in found.items():
        if not callable(candidate) and not is_batched(candidate):
            raise BadInput(f"a candidate must be callable or have predict; {name!r} is {shown(candidate)}.")
    return found


def _within(timeout: float, action: Callable[[], Any]) -> Any:
    """Return the result of an action in a separate thread, or raise TimeoutError and leave it alone."""
    done: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def carry_out() -> None:
        try:
            done.put((action(), None))
        except Exception as problem:
            done.put((None, problem))

    threading.Thread(target=carry_out, daemon=True).start()
    try:
        found, problem = done.get(timeout=timeout)
    except queue.Empty:
        raise TimeoutError(f"no answer within {timeout:g} seconds") from None
    if problem is not None:
        raise problem
    return found


async def _awaited(found: Any) -> Any:
    return await found


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()

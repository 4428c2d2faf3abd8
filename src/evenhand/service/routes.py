"""The routes under /api/v1 (alias: /api): experiments, plans and simulations. JSON only."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from litestar import MediaType, Response, Router, get
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream
from litestar.types import ASGIApp

from evenhand.errors import BadInput, Conflict, KeyReused, NotFound
from evenhand.live.events import LogEntry
from evenhand.service import interval_routes, responses, worker_processes
from evenhand.service import response_bodies as bodies
from evenhand.service.auth import key_of, role
from evenhand.service.experiments import Asked, Registry, blinded, caller_of, note_view, seen_by
from evenhand.service.jobs import PLAN_ENDED_SECONDS, PLAN_SECONDS, SIMULATION_SECONDS, Jobs, Progress
from evenhand.service.request_bodies import (
    AmendForm,
    AskForm,
    Create,
    DropForm,
    FinishForm,
    ImportForm,
    Nothing,
    PauseForm,
    PlanForm,
    PolicyForm,
    ResumeForm,
    SimulateForm,
    TellAllForm,
    TellForm,
    study_of,
)
from evenhand.service.route_parts import (
    BATCH_BYTES,
    PAGE,
    Id,
    IdempotencyKey,
    Limit,
    Only,
    Start,
    api_get,
    api_post,
    author,
    opened,
    trial_of,
)
from evenhand.service.webhook_routes import webhook_routes
from evenhand.service.worker_processes import WorkerProcesses

TICKETS, CONTROL, DATA, EXPERIMENTS, PLANNING, SERVICE = (
    "tickets", "control", "data", "experiments", "planning", "service",
)  # fmt: skip
Format = Annotated[Literal["jsonl", "csv", "parquet"], QueryParameter(name="format")]
EXPORTS = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
}
WHOLE_FILE = ResponseSpec(bytes, description="the file", media_type=EXPORTS["jsonl"], generate_examples=False)
METRICS = ResponseSpec(str, description="the metrics", media_type=MediaType.TEXT, generate_examples=False)
HEALTHY = {200: ResponseSpec(bodies.State, description="done", generate_examples=False)}


@api_get("/experiments", EXPERIMENTS, list[bodies.Listed], guards=[role("operator")])
def list_experiments(
    request: Asked,
    registry: NamedDependency[Registry],
    limit: Limit = 100,
    start: Start = 0,
    only: Only = None,
) -> Response[list[dict[str, Any]]]:
    """List experiments, newest first, or `only` one: id, state and enrolment, no outcomes.

    The header X-Total-Count says how many there are.
    """
    is_blind = not key_of(request).may("analyst")
    names = registry.names()
    responses.experiments.set(len(names))
    if only is not None:
        names = [only] if only in names else []
    found = [blinded(registry.get(name).status(), is_blind) for name in names[start : start + limit]]
    return Response(found, headers={"X-Total-Count": str(len(names))})


@api_post("/experiments", EXPERIMENTS, bodies.Created, guards=[role("admin")], status_code=201)
def create(
    data: JSONBody[Create],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Create an experiment from a study file as JSON; the study cannot change afterwards."""
    study, by = study_of(data.study), author(request, data.by)
    caller = caller_of(request)
    trial, made = registry.create(data.id, study, data.seed, data.lease, by, idempotency_key, caller)
    return {"id": data.id, "head": trial.protocol.hash.hex(), "created": made}


@api_get("/experiments/{name:str}", EXPERIMENTS, bodies.Status, guards=[role("operator")])
def status(name: Id, request: Asked, registry: NamedDependency[Registry]) -> dict[str, Any]:
    """Return the status; an operator sees enrolment, not outcomes, until the experiment ends."""
    return seen_by(request, registry.get(name), "status")


@api_post(
    "/experiments/{name:str}/ask",
    TICKETS,
    list[bodies.Ticket],
    guards=[role("operator")],
    sync_to_thread=None,
)
async def ask(
    name: Id,
    data: JSONBody[AskForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> ASGIApp:
    """Issue the next tickets; none after the stop.

    The same Idempotency-Key or worker of the same API key gets the same tickets again. Tickets belong to the
    API key that asked.
    """
    trial = await opened(request, registry, name)
    write = trial.prepared_ask(
        data.n, group=data.group, worker=data.worker, key=idempotency_key, lease=data.lease
    )
    asks = await registry.written(trial, write)
    responses.tickets.labels("asked").inc(len(asks))
    shown = [one.to_dict() | {"ticket": registry.ticket_shown(trial, one.ticket)} for one in asks]
    return responses.JsonAnswer(shown)


@api_post(
    "/experiments/{name:str}/tell", TICKETS, bodies.Receipt, guards=[role("operator")], sync_to_thread=None
)
async def tell(
    name: Id,
    data: JSONBody[TellForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> ASGIApp:
    """Record the outcome of a ticket.

    Repeating the same value has no effect; another value is refused with 409, and the refusal is recorded. An
    operator may repeat only what the same API key told.
    """
    trial = await opened(request, registry, name)
    with _blinded(request, "this one was refused and recorded"):
        ticket = registry.ticket_read(trial, data.ticket)
        write = trial.prepared_tell(ticket, data.outcome, group=data.group, key=idempotency_key)
        receipt = await registry.written(trial, write)
    responses.tickets.labels("told").inc()
    shown = receipt._asdict() | {"ticket": registry.ticket_shown(trial, receipt.ticket)}
    return responses.JsonAnswer(shown)


@api_post(
    "/experiments/{name:str}/tell-all",
    TICKETS,
    list[bodies.Receipt],
    guards=[role("operator")],
    request_max_body_size=BATCH_BYTES,
)
def tell_all(
    name: Id,
    data: JSONBody[TellAllForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> list[dict[str, Any]]:
    """Record many outcomes: all of them or none; the error names the first invalid one."""
    trial = trial_of(request, registry, name)
    with _blinded(request, "nothing was written"):
        outcomes = []
        for row, one in enumerate(data.outcomes, start=1):
            try:
                outcomes.append((registry.ticket_read(trial, one.ticket), one.outcome, one.group))
            except NotFound as problem:
                raise NotFound(f"row {row}: {problem}") from None
        receipts = trial.tell_all(outcomes, key=idempotency_key)
    responses.tickets.labels("told").inc(len(receipts))
    return [one._asdict() | {"ticket": registry.ticket_shown(trial, one.ticket)} for one in receipts]


@contextmanager
def _blinded(request: Asked, then: str) -> Iterator[None]:
    """Replace refusals that a blind caller would learn from by the same sentence for every outcome."""
    try:
        yield
    except (Conflict, NotFound) as refusal:
        if isinstance(refusal, KeyReused) or key_of(request).may("analyst"):
            raise
        row = re.match(r"row \d+: ", str(refusal))
        says = f"the ticket has an outcome already; {then}."
        if isinstance(refusal, NotFound):
            says = "this experiment has no such ticket for this key; copy it as `ask` gave it."
        kind = NotFound if isinstance(refusal, NotFound) else Conflict
        raise kind(f"{row[0] if row else ''}{says}") from None


@api_post("/experiments/{name:str}/drop", TICKETS, bodies.Dropped, guards=[role("operator")])
def drop(
    name: Id,
    data: JSONBody[DropForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Drop a ticket: it will have no outcome."""
    trial = trial_of(request, registry, name)
    with _blinded(request, "it cannot be dropped"):
        ticket = registry.ticket_read(trial, data.ticket)
        trial.drop(ticket, data.reason, by=author(request, data.by), key=idempotency_key)
    return {"ticket": data.ticket, "dropped": True}


@api_post("/experiments/{name:str}/amend", TICKETS, bodies.Receipt, guards=[role("admin")])
def amend(
    name: Id,
    data: JSONBody[AmendForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Correct an outcome; the old one stays in the log with the reason and the author."""
    trial, by = trial_of(request, registry, name), author(request, data.by)
    ticket = registry.ticket_read(trial, data.ticket)
    receipt = trial.amend(ticket, data.outcome, reason=data.reason, by=by, key=idempotency_key)
    return receipt._asdict() | {"ticket": registry.ticket_shown(trial, receipt.ticket)}


@api_post(
    "/experiments/{name:str}/import",
    DATA,
    bodies.Imported,
    guards=[role("admin")],
    request_max_body_size=BATCH_BYTES,
)
def import_data(
    name: Id,
    data: JSONBody[ImportForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Import outcomes collected before: all of them or none."""
    trial = trial_of(request, registry, name)
    return {"imported": trial.import_data(data.rows, source=data.source, key=idempotency_key)}


@api_post("/experiments/{name:str}/pause", CONTROL, bodies.Paused, guards=[role("admin")])
def pause(
    name: Id,
    data: JSONBody[PauseForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Issue no tickets until `resume`; outcomes are still accepted."""
    trial_of(request, registry, name).pause(data.reason, by=author(request, data.by), key=idempotency_key)
    return {"paused": True}


@api_post("/experiments/{name:str}/resume", CONTROL, bodies.Paused, guards=[role("admin")])
def resume(
    name: Id,
    data: JSONBody[ResumeForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Issue tickets again."""
    trial_of(request, registry, name).resume(data.reason, by=author(request, data.by), key=idempotency_key)
    return {"paused": False}


@api_post(
    ["/experiments/{name:str}/finish", "/experiments/{name:str}/close"],
    CONTROL,
    bodies.Finished,
    guards=[role("admin")],
)
def finish(
    name: Id,
    data: JSONBody[FinishForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """End the experiment; returns its final result."""
    trial = trial_of(request, registry, name)
    trial.finish(data.reason, by=author(request, data.by), key=idempotency_key)
    status = trial.status()
    return {"closed": True} | {
        part: getattr(status, part) for part in ("experiment", "state", "decided", "answer", "allowed")
    }


@api_post("/experiments/{name:str}/add-policy", CONTROL, bodies.PolicyChanged, guards=[role("admin")])
def add_policy(
    name: Id,
    data: JSONBody[PolicyForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Let a policy join the experiment; its study must have room for it (`max_policies`)."""
    trial, by = trial_of(request, registry, name), author(request, data.by)
    trial.add_policy(data.policy, reason=data.reason, by=by, key=idempotency_key)
    return {"policy": data.policy, "added": True}


@api_post("/experiments/{name:str}/withdraw", CONTROL, bodies.PolicyChanged, guards=[role("admin")])
def withdraw(
    name: Id,
    data: JSONBody[PolicyForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Remove a policy permanently: it is not sampled any more and cannot be the answer."""
    trial, by = trial_of(request, registry, name), author(request, data.by)
    trial.withdraw(data.policy, reason=data.reason, by=by, key=idempotency_key)
    return {"policy": data.policy, "withdrawn": True}


@api_get("/experiments/{name:str}/events", DATA, list[bodies.Event], guards=[role("analyst")])
def events(
    name: Id, request: Asked, registry: NamedDependency[Registry], after: Start = 0
) -> Response[list[dict[str, Any]]]:
    """Return a page of the log after this event; viewing outcomes is itself recorded.

    The header X-Total-Count says how many events the log has.
    """
    trial = registry.get(name)
    note_view(request, trial, "events")
    last = trial.head.seq
    rows = registry.journal.read(name, after, min(after + PAGE, last))
    found = [LogEntry.of(row.record).to_dict() for row in rows]
    return Response(found, headers={"X-Total-Count": str(last)})


@api_get("/experiments/{name:str}/export", DATA, WHOLE_FILE, guards=[role("analyst")])
def export(
    name: Id,
    request: Asked,
    registry: NamedDependency[Registry],
    workers: NamedDependency[WorkerProcesses],
    kind: Format = "jsonl",
) -> Stream:
    """Download the whole log as one file that `evenhand audit` accepts, or the outcomes as a table.

    `csv` and `parquet` have the outcomes that count, with their latest corrections, as `evenhand judge` reads
    them.
    """
    note_view(request, registry.get(name), "export")
    handle = _written_export(registry.address, name, workers, kind, key_of(request).id)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{kind}"'}
    return Stream(iter(_Parts(handle)), media_type=EXPORTS[kind], headers=headers)


def _written_export(address: str, name: str, workers: WorkerProcesses, kind: str, owner: str) -> int:
    """Return an open export whose file has no name any more: nothing remains if the client disconnects."""
    handle, path = tempfile.mkstemp(prefix="evenhand-export-")
    try:
        workers.long.do(worker_processes.export, address, name, path, kind, owner=owner)
    except BaseException:
        os.close(handle)
        os.unlink(path)
        raise
    if sys.platform == "win32":  # there an open file keeps its name; this one is removed when it is closed
        os.close(handle)
        return os.open(path, os.O_RDONLY | os.O_BINARY | os.O_TEMPORARY)
    os.unlink(path)
    return handle


class _Parts:
    """The bytes of an open file, which is closed after they are sent."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __iter__(self) -> Iterator[bytes]:
        while part := os.read(self._handle, 1 << 16):
            yield part

    def __del__(self) -> None:
        os.close(self._handle)


@api_post("/plan", PLANNING, bodies.Plan, guards=[role("operator")])
def plan(
    data: JSONBody[PlanForm],
    request: Asked,
    jobs: NamedDependency[Jobs],
    workers: NamedDependency[WorkerProcesses],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Return the lower bound on the cost and the allocation for the study's true means."""
    jobs.refuse_other_request(key_of(request), idempotency_key, "plan", data)
    study_of(data.study)

    def work() -> dict[str, Any]:
        with workers.own() as process:
            return process.run(
                worker_processes.plan_table, data.study, data.delta,
                progress=lambda _: None, seconds=PLAN_ENDED_SECONDS,
            )  # fmt: skip

    found: dict[str, Any] = jobs.within(PLAN_SECONDS, work, key_of(request))
    return found


@api_post("/simulate", PLANNING, bodies.JobStarted, guards=[role("operator")], status_code=202)
def simulate(
    data: JSONBody[SimulateForm],
    request: Asked,
    jobs: NamedDependency[Jobs],
    workers: NamedDependency[WorkerProcesses],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Queue a simulation; get its progress and result at /api/v1/simulate/{id}.

    A key may have 5 unfinished simulations, one of which runs; the queue takes turns between keys.
    """
    jobs.refuse_other_request(key_of(request), idempotency_key, "simulate", data)
    if study_of(data.study).truth is None:
        raise BadInput("a simulation needs a truth: put the means you expect into the study.")

    def work(progress: Progress) -> dict[str, Any]:
        with workers.own() as process:
            return process.run(
                worker_processes.simulation, data.study, data.replications, data.seed,
                progress=lambda done: progress(done, data.replications), seconds=SIMULATION_SECONDS,
            )  # fmt: skip

    return {"id": jobs.start(key_of(request), data.replications, work, data, idempotency_key)}


@api_get("/simulate", PLANNING, list[bodies.ListedJob], guards=[role("operator")])
def simulations(request: Asked, jobs: NamedDependency[Jobs]) -> list[dict[str, Any]]:
    """List the simulations of this key, newest first, without results; an admin sees those of all keys."""
    return jobs.list(key_of(request))


@api_post("/simulate/{job:str}/cancel", PLANNING, bodies.Job, guards=[role("operator")])
def cancel(job: Id, data: JSONBody[Nothing], request: Asked, jobs: NamedDependency[Jobs]) -> dict[str, Any]:
    """Cancel a simulation that waits or runs."""
    return jobs.cancel(key_of(request), job)


@api_get("/simulate/{job:str}", PLANNING, bodies.Job, guards=[role("operator")])
def simulation(job: Id, request: Asked, jobs: NamedDependency[Jobs]) -> dict[str, Any]:
    """Return a simulation's progress, and its result when it is done."""
    return jobs.look(key_of(request), job)


# on the event loop: answered even if all threads are busy
@get("/healthz", tags=[SERVICE], responses=HEALTHY, security=[{}], sync_to_thread=False)
def healthz() -> dict[str, str]:
    """Return that the service runs; it does not depend on the journal."""
    return {"status": "ok"}


@api_get("/readyz", SERVICE, bodies.State, security=[{}])
def readyz(registry: NamedDependency[Registry]) -> dict[str, str]:
    """Return whether the journal can be read and written; 503 where it cannot."""
    registry.check()
    return {"status": "ready"}


@api_get("/metrics", SERVICE, METRICS, guards=[role("operator")], media_type=MediaType.TEXT)
def prometheus(jobs: NamedDependency[Jobs]) -> Response[bytes]:
    """Return the metrics for Prometheus."""
    for state, number in jobs.counts().items():
        responses.simulations.labels(state).set(number)
    return Response(responses.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


_api: list[Any] = [
    list_experiments, create, status, ask, tell, tell_all, drop, amend, import_data, pause, resume, finish,
    add_policy, withdraw, *interval_routes.handlers, events, export, plan, simulate, simulations, simulation,
    cancel, *webhook_routes,
]  # fmt: skip
routers = (
    Router("/api/v1", route_handlers=_api),
    Router("/api", route_handlers=_api, include_in_schema=False),  # the addresses of version 0.1
    Router("/", route_handlers=[healthz, readyz, prometheus]),
)

"""The routes under /api/v1 (alias: /api): experiments, plans and simulations. JSON only."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, cast

from litestar import MediaType, Response, Router, get, post
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.response import Stream

from evenhand.errors import BadInput, Conflict, KeyReused
from evenhand.live.events import LogEntry
from evenhand.service import responses, worker_processes
from evenhand.service.auth import key_of, role
from evenhand.service.experiments import Asked, Registry, blinded, note_view, seen_by
from evenhand.service.jobs import PLAN_SECONDS, Jobs
from evenhand.service.request_bodies import (
    AmendForm,
    AskForm,
    Create,
    DropForm,
    FinishForm,
    ImportForm,
    PauseForm,
    PlanForm,
    Refusal,
    ResumeForm,
    SimulateForm,
    TellAllForm,
    TellForm,
    study_of,
)
from evenhand.service.worker_processes import WorkerProcesses

PAGE = 1_000  # events per response
BATCH_BYTES = 32_000_000  # of a request with many outcomes
ID = "^[A-Za-z0-9_-]{1,64}$"
IdempotencyKey = Annotated[
    str | None, HeaderParameter(name="Idempotency-Key", min_length=1, max_length=200, pattern="^[!-~]+$")
]
Id = Annotated[str, PathParameter(pattern=ID)]
Only = Annotated[str | None, QueryParameter(pattern=ID)]
Limit = Annotated[int, QueryParameter(ge=1, le=PAGE)]
Start = Annotated[int, QueryParameter(ge=0, le=10**12)]

MEANINGS = {
    400: "what came is no request of this kind; nothing was written",
    401: "no key, or a wrong one",
    403: "the key has not this role",
    404: "no such experiment, ticket or job",
    409: "another outcome was told before, the Idempotency-Key stands for another request, or the experiment "
    "is stopped, paused or closed",
    413: "the body is too large",
    415: "the body is no JSON",
    422: "what came cannot be used; nothing was written",
    429: "too many wrong keys",
    503: "the journal could not be written; send it again with the same key",
}
REFUSALS = {code: ResponseSpec(Refusal, description=says) for code, says in MEANINGS.items()}
F = TypeVar("F", bound=Callable[..., Any])


def _by(request: Asked, by: str | None) -> str:
    """Return the author of a change: the person in `by`, then the name of the key."""
    name = key_of(request).name
    return name if by is None else f"{by} ({name})"


def _get(path: str, **more: Any) -> Callable[[F], F]:
    route: Any = get(path, responses=REFUSALS, sync_to_thread=True, **more)
    return cast(Callable[[F], F], route)


def _post(path: str | list[str], status_code: int = 200, **more: Any) -> Callable[[F], F]:
    route: Any = post(path, responses=REFUSALS, sync_to_thread=True, status_code=status_code, **more)
    return cast(Callable[[F], F], route)


@_get("/experiments", guards=[role("operator")])
def list_experiments(
    registry: NamedDependency[Registry], limit: Limit = 100, start: Start = 0, only: Only = None
) -> list[dict[str, Any]]:
    """List experiments, newest first, or `only` one: id, state and enrolment, no outcomes."""
    names = registry.names()
    responses.experiments.set(len(names))
    if only is not None:
        names = [only] if only in names else []
    return [blinded(registry.get(name).status()) for name in names[start : start + limit]]


@_post("/experiments", guards=[role("admin")], status_code=201)
def create(
    data: JSONBody[Create],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Create an experiment from a study file as JSON; the study cannot change afterwards."""
    study, by = study_of(data.study), _by(request, data.by)
    trial, made = registry.create(data.id, study, data.seed, data.lease, by, idempotency_key)
    return {"id": data.id, "head": trial.protocol.hash.hex(), "created": made}


@_get("/experiments/{name:str}", guards=[role("operator")])
def status(name: Id, request: Asked, registry: NamedDependency[Registry]) -> dict[str, Any]:
    """Return the status; an operator sees enrolment, not outcomes, until the experiment ends."""
    return seen_by(request, registry.get(name), "status")


@_post("/experiments/{name:str}/ask", guards=[role("operator")])
def ask(
    name: Id,
    data: JSONBody[AskForm],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> list[dict[str, Any]]:
    """Issue the next tickets; none after the stop.

    The same Idempotency-Key or worker gets the same tickets again.
    """
    asks = registry.get(name).ask(
        data.n, group=data.group, worker=data.worker, key=idempotency_key, lease=data.lease
    )
    return [one._asdict() for one in asks]


@_post("/experiments/{name:str}/tell", guards=[role("operator")])
def tell(
    name: Id,
    data: JSONBody[TellForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Record the outcome of a ticket.

    Repeating the same value has no effect; another value is refused with 409, and the refusal is recorded.
    """
    trial = registry.get(name)
    try:
        return trial.tell(data.ticket, data.outcome, group=data.group, key=idempotency_key)._asdict()
    except Conflict as refusal:
        raise _blinded_conflict(request, refusal, "this one was refused and written down") from None


@_post("/experiments/{name:str}/tell-all", guards=[role("operator")], request_max_body_size=BATCH_BYTES)
def tell_all(
    name: Id,
    data: JSONBody[TellAllForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> list[dict[str, Any]]:
    """Record many outcomes: all of them or none; the error names the first invalid one."""
    outcomes = [(one.ticket, one.outcome, one.group) for one in data.outcomes]
    try:
        receipts = registry.get(name).tell_all(outcomes, key=idempotency_key)
    except Conflict as refusal:
        raise _blinded_conflict(request, refusal, "nothing was written") from None
    return [receipt._asdict() for receipt in receipts]


def _blinded_conflict(request: Asked, refusal: Conflict, then: str) -> Conflict:
    """Return the refusal; without the recorded outcome if the key may not see outcomes."""
    if isinstance(refusal, KeyReused) or key_of(request).may("analyst"):
        return refusal
    row = re.match(r"row \d+: ", str(refusal))
    return Conflict(f"{row[0] if row else ''}the ticket has another outcome already; {then}.")


@_post("/experiments/{name:str}/drop", guards=[role("operator")])
def drop(
    name: Id,
    data: JSONBody[DropForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Drop a ticket: it will have no outcome."""
    registry.get(name).drop(data.ticket, data.reason, by=_by(request, data.by), key=idempotency_key)
    return {"ticket": data.ticket, "dropped": True}


@_post("/experiments/{name:str}/amend", guards=[role("admin")])
def amend(
    name: Id,
    data: JSONBody[AmendForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Correct an outcome; the old one stays in the log with the reason and the author."""
    trial, by = registry.get(name), _by(request, data.by)
    return trial.amend(data.ticket, data.outcome, reason=data.reason, by=by, key=idempotency_key)._asdict()


@_post("/experiments/{name:str}/import", guards=[role("admin")], request_max_body_size=BATCH_BYTES)
def import_data(
    name: Id,
    data: JSONBody[ImportForm],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Import outcomes collected before: all of them or none."""
    return {"imported": registry.get(name).import_data(data.rows, source=data.source, key=idempotency_key)}


@_post("/experiments/{name:str}/pause", guards=[role("admin")])
def pause(
    name: Id,
    data: JSONBody[PauseForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Issue no tickets until `resume`; outcomes are still accepted."""
    registry.get(name).pause(data.reason, by=_by(request, data.by), key=idempotency_key)
    return {"paused": True}


@_post("/experiments/{name:str}/resume", guards=[role("admin")])
def resume(
    name: Id,
    data: JSONBody[ResumeForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Issue tickets again."""
    registry.get(name).resume(data.reason, by=_by(request, data.by), key=idempotency_key)
    return {"paused": False}


@_post(["/experiments/{name:str}/finish", "/experiments/{name:str}/close"], guards=[role("admin")])
def finish(
    name: Id,
    data: JSONBody[FinishForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """End the experiment; returns its final result."""
    trial = registry.get(name)
    trial.finish(data.reason, by=_by(request, data.by), key=idempotency_key)
    status = trial.status()
    return {"closed": True} | {
        part: getattr(status, part) for part in ("experiment", "state", "decided", "answer", "allowed")
    }


@_get("/experiments/{name:str}/events", guards=[role("analyst")])
def events(
    name: Id, request: Asked, registry: NamedDependency[Registry], after: Start = 0
) -> list[dict[str, Any]]:
    """Return a page of the log after this event; viewing outcomes is itself recorded."""
    trial = registry.get(name)
    note_view(request, trial, "events")
    until = min(after + PAGE, trial.head.seq)
    return [LogEntry.of(row.record).to_dict() for row in registry.journal.read(name, after, until)]


@_get("/experiments/{name:str}/export", guards=[role("analyst")], media_type="application/x-ndjson")
def export(
    name: Id, request: Asked, registry: NamedDependency[Registry], workers: NamedDependency[WorkerProcesses]
) -> Stream:
    """Download the whole log as one file that `evenhand audit` accepts."""
    note_view(request, registry.get(name), "export")
    handle, path = tempfile.mkstemp(prefix="evenhand-export-")
    os.close(handle)
    try:
        workers.long.do(worker_processes.export, registry.address, name, path)
    except BaseException:
        os.unlink(path)
        raise
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return Stream(_read_once(path), media_type="application/x-ndjson", headers=headers)


def _read_once(path: str) -> Iterator[bytes]:
    """Yield a file's bytes, then delete it, also if the download is aborted."""
    try:
        with open(path, "rb") as file:
            while part := file.read(1 << 16):
                yield part
    finally:
        os.unlink(path)


@_post("/plan", guards=[role("operator")])
def plan(
    data: JSONBody[PlanForm], jobs: NamedDependency[Jobs], idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """Return the lower bound on the cost and the allocation for the study's true means."""
    from evenhand.study.planned import plan_of

    jobs.refuse_other_request(idempotency_key, "plan", data)
    study = study_of(data.study)
    delta = data.delta or study.procedure.delta
    found: dict[str, Any] = jobs.within(PLAN_SECONDS, lambda: plan_of(study).to_dict(delta))
    return found


@_post("/simulate", guards=[role("operator")], status_code=202)
def simulate(
    data: JSONBody[SimulateForm], jobs: NamedDependency[Jobs], idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """Start a simulation; get its progress and result at /api/v1/simulate/{id}."""
    from evenhand.simulation.simulate import simulate as simulated

    jobs.refuse_other_request(idempotency_key, "simulate", data)
    study = study_of(data.study)
    truth = study.truth
    if truth is None:
        raise BadInput("a simulation needs a truth: put the means you expect into the study.")

    def work(progress: Any) -> Any:
        runs = simulated(
            study.problem, truth, study.procedure, data.replications, data.seed, workers=1, progress=progress
        )
        return runs.to_dict()

    return {"id": jobs.start(data.replications, work, idempotency_key)}


@_get("/simulate/{job:str}", guards=[role("operator")])
def simulation(job: Id, jobs: NamedDependency[Jobs]) -> dict[str, Any]:
    """Return a simulation's progress, and its result when it is done."""
    return jobs.look(job)


@_get("/healthz", security=[{}])
def healthz() -> dict[str, str]:
    """Return that the service runs; it does not depend on the journal."""
    return {"status": "ok"}


@_get("/readyz", security=[{}])
def readyz(registry: NamedDependency[Registry]) -> dict[str, str]:
    """Return whether the journal can be read and written; 503 where it cannot."""
    registry.check()
    return {"status": "ready"}


@_get("/metrics", guards=[role("operator")], media_type=MediaType.TEXT)
def prometheus() -> Response[bytes]:
    """Return the metrics for Prometheus."""
    return Response(responses.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


_api: list[Any] = [
    list_experiments, create, status, ask, tell, tell_all, drop, amend, import_data, pause, resume, finish,
    events, export, plan, simulate, simulation,
]  # fmt: skip
routers = (
    Router("/api/v1", route_handlers=_api),
    Router("/api", route_handlers=_api, include_in_schema=False),  # the addresses of version 0.1
    Router("/", route_handlers=[healthz, readyz, prometheus]),
)

"""The routes under /api: experiments, plans and simulations. JSON only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar, cast

import msgspec
from litestar import MediaType, Response, Router, get, post
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import HeaderParameter, JSONBody, PathParameter, QueryParameter
from litestar.response import Stream

from evenhand.errors import BadInput, Conflict, KeyReused
from evenhand.service import responses, worker_processes
from evenhand.service.auth import key_of, role
from evenhand.service.experiments import Registry, blinded
from evenhand.service.jobs import PLAN_SECONDS, Jobs
from evenhand.service.request_bodies import (
    AmendForm,
    AskForm,
    CloseForm,
    Create,
    DropForm,
    PlanForm,
    Refusal,
    SimulateForm,
    TellForm,
    study_of,
)
from evenhand.service.view_log import Asked, note_view, seen_by
from evenhand.service.worker_processes import Studio

PAGE = 1_000  # events in one answer
ID = "^[A-Za-z0-9_-]{1,64}$"
IdempotencyKey = Annotated[
    str | None, HeaderParameter(name="Idempotency-Key", min_length=1, max_length=200, pattern="^[!-~]+$")
]
Id = Annotated[str, PathParameter(pattern=ID)]
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


def _get(path: str, **more: Any) -> Callable[[F], F]:
    route: Any = get(path, responses=REFUSALS, sync_to_thread=True, **more)
    return cast(Callable[[F], F], route)


def _post(path: str, status_code: int = 200, **more: Any) -> Callable[[F], F]:
    route: Any = post(path, responses=REFUSALS, sync_to_thread=True, status_code=status_code, **more)
    return cast(Callable[[F], F], route)


@_get("/api/experiments", guards=[role("operator")])
def list_experiments(
    registry: NamedDependency[Registry], limit: Limit = 100, start: Start = 0
) -> list[dict[str, Any]]:
    """The experiments, newest first: id, state and enrolment."""
    names = registry.names()
    responses.experiments.set(len(names))
    return [blinded(registry.get(name).status()) for name in names[start : start + limit]]


@_post("/api/experiments", guards=[role("admin")], status_code=201)
def create(
    data: JSONBody[Create],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """A new experiment. The study is the study file as JSON; it is frozen from here on."""
    study, by = study_of(data.study), key_of(request).name
    made = registry.create(data.id, study, data.seed, data.lease, by, idempotency_key)
    return {"id": data.id, "head": made.protocol.hash.hex()}


@_get("/api/experiments/{name:str}", guards=[role("operator")])
def status(name: Id, request: Asked, registry: NamedDependency[Registry]) -> dict[str, Any]:
    """Where an experiment stands; an operator sees enrolment, not outcomes, until it ends."""
    return seen_by(request, registry.get(name), "status")


@_post("/api/experiments/{name:str}/ask", guards=[role("operator")])
def ask(
    name: Id,
    data: JSONBody[AskForm],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> list[dict[str, Any]]:
    """The next tickets; none after the stop.

    The same Idempotency-Key or worker gets the same tickets again.
    """
    asks = registry.get(name).ask(data.n, group=data.group, worker=data.worker, key=idempotency_key)
    return [one._asdict() for one in asks]


@_post("/api/experiments/{name:str}/tell", guards=[role("operator")])
def tell(
    name: Id,
    data: JSONBody[TellForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """The outcome of a ticket.

    The same again is no harm; another value is refused with 409 and written down.
    """
    trial = registry.get(name)
    try:
        return trial.tell(data.ticket, data.outcome, group=data.group, key=idempotency_key)._asdict()
    except Conflict as refusal:
        if isinstance(refusal, KeyReused) or key_of(request).may("analyst"):
            raise
        # the full sentence names the outcome that is kept, which an operator may not see
        raise Conflict(
            "the ticket has another outcome already; this one was refused and written down."
        ) from None


@_post("/api/experiments/{name:str}/drop", guards=[role("operator")])
def drop(
    name: Id,
    data: JSONBody[DropForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """A ticket that will have no outcome."""
    registry.get(name).drop(data.ticket, data.reason, by=key_of(request).name, key=idempotency_key)
    return {"ticket": data.ticket, "dropped": True}


@_post("/api/experiments/{name:str}/amend", guards=[role("admin")])
def amend(
    name: Id,
    data: JSONBody[AmendForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Correct an outcome; the old one stays in the log with the reason and who said so."""
    trial, by = registry.get(name), key_of(request).name
    return trial.amend(data.ticket, data.outcome, reason=data.reason, by=by, key=idempotency_key)._asdict()


@_post("/api/experiments/{name:str}/close", guards=[role("admin")])
def close(
    name: Id,
    data: JSONBody[CloseForm],
    request: Asked,
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """End the experiment for good; answers how it ended, which does not change any more."""
    trial = registry.get(name)
    trial.close(data.reason, by=key_of(request).name, key=idempotency_key)
    status = trial.status()
    return {"closed": True} | {part: status[part] for part in ("experiment", "state", "decided", "answer")}


@_get("/api/experiments/{name:str}/events", guards=[role("analyst")])
def events(
    name: Id, request: Asked, registry: NamedDependency[Registry], after: Start = 0
) -> list[dict[str, Any]]:
    """The log after this event, a page at a time; looking at outcomes is itself an event."""
    trial = registry.get(name)
    note_view(request, trial, "events")
    until = min(after + PAGE, trial.head.seq)
    return [
        msgspec.json.decode(row.record.body) | {"seq": row.record.seq, "hash": row.record.hash.hex()}
        for row in registry.journal.read(name, after, until)
    ]


@_get("/api/experiments/{name:str}/export", guards=[role("analyst")], media_type="application/x-ndjson")
def export(
    name: Id, request: Asked, registry: NamedDependency[Registry], studio: NamedDependency[Studio]
) -> Stream:
    """The whole log in one file that `evenhand audit` accepts alone."""
    note_view(request, registry.get(name), "export")
    handle, path = tempfile.mkstemp(prefix="evenhand-export-")
    os.close(handle)
    try:
        studio.long.do(worker_processes.export, registry.address, name, path)
    except BaseException:
        os.unlink(path)
        raise
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return Stream(_read_once(path), media_type="application/x-ndjson", headers=headers)


def _read_once(path: str) -> Iterator[bytes]:
    """A file's bytes; it is gone when they were read or nobody wants them any more."""
    try:
        with open(path, "rb") as file:
            while part := file.read(1 << 16):
                yield part
    finally:
        os.unlink(path)


@_post("/api/plan", guards=[role("operator")])
def plan(
    data: JSONBody[PlanForm], jobs: NamedDependency[Jobs], idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """What it must cost and where to sample, for the means in the study's truth."""
    from evenhand.study.planned import plan_of

    jobs.refuse_other_request(idempotency_key, "plan", data)
    study = study_of(data.study)
    delta = data.delta or study.procedure.delta
    found: dict[str, Any] = jobs.within(PLAN_SECONDS, lambda: plan_of(study).to_dict(delta))
    return found


@_post("/api/simulate", guards=[role("operator")], status_code=202)
def simulate(
    data: JSONBody[SimulateForm], jobs: NamedDependency[Jobs], idempotency_key: IdempotencyKey = None
) -> dict[str, Any]:
    """Begin a simulation; look at /api/simulate/{id} for its progress and result."""
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


@_get("/api/simulate/{job:str}", guards=[role("operator")])
def simulation(job: Id, jobs: NamedDependency[Jobs]) -> dict[str, Any]:
    """A simulation's progress, and its result when it is done."""
    return jobs.look(job)


@_get("/healthz", security=[{}])
def healthz(registry: NamedDependency[Registry]) -> dict[str, str]:
    """Is the service up, and can it read its journal?"""
    registry.names()
    return {"status": "ok"}


@_get("/metrics", guards=[role("operator")], media_type=MediaType.TEXT)
def prometheus() -> Response[bytes]:
    """Counters for Prometheus."""
    return Response(responses.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


_handlers: list[Any] = [
    list_experiments, create, status, ask, tell, drop, amend, close, events, export, plan, simulate,
    simulation, healthz, prometheus,
]  # fmt: skip
router = Router("/", route_handlers=_handlers)

"""The routes under /api: experiments, plans and simulations. JSON only."""

from __future__ import annotations

import io
from typing import Annotated, Any

import msgspec
from litestar import MediaType, Request, Response, Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, HeaderParameter, JSONBody, QueryParameter

from evenhand.app.service import metrics
from evenhand.app.service.access import key_of, role
from evenhand.app.service.forms import (
    AmendForm,
    AskForm,
    CloseForm,
    Create,
    DropForm,
    PlanForm,
    SimulateForm,
    TellForm,
)
from evenhand.app.service.jobs import MOST_CELLS, PLAN_SECONDS, Jobs
from evenhand.app.service.registry import Registry, blinded
from evenhand.errors import BadInput
from evenhand.live.experiment import Experiment
from evenhand.study import Study

IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key", max_length=200)]
PAGE = 1_000  # events in one answer


@get("/api/experiments", guards=[role("operator")], sync_to_thread=True)
def list_experiments(registry: NamedDependency[Registry]) -> list[dict[str, Any]]:
    """The experiments: id, state and enrolment."""
    names = registry.names()
    metrics.experiments.set(len(names))
    return [blinded(registry.get(name).status()) for name in names]


@post("/api/experiments", guards=[role("admin")], sync_to_thread=True)
def create(
    data: JSONBody[Create],
    request: Request[Any, Any, Any],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """A new experiment. The study is the study file as JSON; it is frozen from here on."""
    study = _study(data.study, MOST_CELLS)
    made = registry.create(data.id, study, data.seed, data.lease, key_of(request).name)
    return {"id": data.id, "head": str(made.head)}


@get("/api/experiments/{name:str}", guards=[role("operator")], sync_to_thread=True)
def status(
    name: FromPath[str], request: Request[Any, Any, Any], registry: NamedDependency[Registry]
) -> dict[str, Any]:
    """Where an experiment stands; an operator sees enrolment, not outcomes, until it ends."""
    trial = registry.get(name)
    return seen_by(request, trial, "status")


@post("/api/experiments/{name:str}/ask", guards=[role("operator")], status_code=200, sync_to_thread=True)
def ask(
    name: FromPath[str],
    data: JSONBody[AskForm],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> list[dict[str, Any]]:
    """The next tickets; none after the stop.

    The same Idempotency-Key or worker gets the same tickets again.
    """
    asks = registry.get(name).ask(data.n, group=data.group, worker=data.worker, key=idempotency_key)
    return [one._asdict() for one in asks]


@post("/api/experiments/{name:str}/tell", guards=[role("operator")], status_code=200, sync_to_thread=True)
def tell(
    name: FromPath[str],
    data: JSONBody[TellForm],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """The outcome of a ticket.

    The same again is no harm; another value is refused with 409 and written down.
    """
    return _receipt(registry.get(name).tell(data.ticket, data.outcome, group=data.group))


@post("/api/experiments/{name:str}/drop", guards=[role("operator")], status_code=200, sync_to_thread=True)
def drop(
    name: FromPath[str],
    data: JSONBody[DropForm],
    request: Request[Any, Any, Any],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """A ticket that will have no outcome."""
    registry.get(name).drop(data.ticket, data.reason, by=key_of(request).name)
    return {"ticket": data.ticket, "dropped": True}


@post("/api/experiments/{name:str}/amend", guards=[role("admin")], status_code=200, sync_to_thread=True)
def amend(
    name: FromPath[str],
    data: JSONBody[AmendForm],
    request: Request[Any, Any, Any],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Correct an outcome; the old one stays in the log with the reason and who said so."""
    by = key_of(request).name
    return _receipt(
        registry.get(name).amend(data.ticket, data.outcome, reason=data.reason, by=by, key=idempotency_key)
    )


@post("/api/experiments/{name:str}/close", guards=[role("admin")], status_code=200, sync_to_thread=True)
def close(
    name: FromPath[str],
    data: JSONBody[CloseForm],
    request: Request[Any, Any, Any],
    registry: NamedDependency[Registry],
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """End the experiment for good."""
    trial = registry.get(name)
    trial.close(data.reason, by=key_of(request).name)
    return seen_by(request, trial, "status")


@get("/api/experiments/{name:str}/events", guards=[role("analyst")], sync_to_thread=True)
def events(
    name: FromPath[str],
    request: Request[Any, Any, Any],
    registry: NamedDependency[Registry],
    after: Annotated[int, QueryParameter(ge=0)] = 0,
) -> list[dict[str, Any]]:
    """The log after this event, a page at a time; looking at outcomes is itself an event."""
    trial = registry.get(name)
    note_view(request, trial, "events")
    found = []
    for row in trial.events(after):
        found.append(
            msgspec.json.decode(row.record.body) | {"seq": row.record.seq, "hash": row.record.hash.hex()}
        )
        if len(found) == PAGE:
            break
    return found


@get(
    "/api/experiments/{name:str}/export",
    guards=[role("analyst")],
    media_type="application/x-ndjson",
    sync_to_thread=True,
)
def export(
    name: FromPath[str], request: Request[Any, Any, Any], registry: NamedDependency[Registry]
) -> Response[bytes]:
    """The whole log in one file that `evenhand audit` accepts alone."""
    from evenhand.live.export import write_export

    note_view(request, registry.get(name), "export")
    file = io.BytesIO()
    write_export(registry.journal, name, file)
    headers = {"Content-Disposition": f'attachment; filename="{name}.jsonl"'}
    return Response(file.getvalue(), media_type="application/x-ndjson", headers=headers)


@post("/api/plan", guards=[role("operator")], status_code=200, sync_to_thread=True)
def plan(data: JSONBody[PlanForm], jobs: NamedDependency[Jobs]) -> dict[str, Any]:
    """What it must cost and where to sample, for the means in the study's truth."""
    from evenhand.theory.plan import plan as planned

    study = _study(data.study, MOST_CELLS)
    delta = data.delta or study.procedure.delta
    found: dict[str, Any] = jobs.within(
        PLAN_SECONDS, lambda: planned(study.problem, study.means()).to_dict(delta)
    )
    return found


@post("/api/simulate", guards=[role("operator")], status_code=202, sync_to_thread=True)
def simulate(data: JSONBody[SimulateForm], jobs: NamedDependency[Jobs]) -> dict[str, Any]:
    """Begin a simulation; look at /api/simulate/{id} for its progress and result."""
    from evenhand.sim.simulate import simulate as simulated

    study = _study(data.study, MOST_CELLS)
    truth = study.truth
    if truth is None:
        raise BadInput("a simulation needs a truth: put the means you expect into the study.")

    def work(progress: Any) -> Any:
        runs = simulated(
            study.problem,
            truth,
            study.procedure,
            data.replications,
            data.seed,
            workers=1,
            progress=progress,
        )
        return runs.to_dict()

    return {"id": jobs.start(data.replications, work)}


@get("/api/simulate/{job:str}", guards=[role("operator")], sync_to_thread=False)
def simulation(job: FromPath[str], jobs: NamedDependency[Jobs]) -> dict[str, Any]:
    """A simulation's progress, and its result when it is done."""
    return jobs.look(job)


@get("/healthz", sync_to_thread=True)
def healthz(registry: NamedDependency[Registry]) -> dict[str, str]:
    """Is the service up, and can it read its journal?"""
    registry.names()
    return {"status": "ok"}


@get("/metrics", guards=[role("operator")], media_type=MediaType.TEXT, sync_to_thread=False)
def prometheus() -> Response[bytes]:
    """Counters for Prometheus."""
    return Response(metrics.exposition(), media_type="text/plain; version=0.0.4")


router = Router(
    "/",
    route_handlers=[
        list_experiments, create, status, ask, tell, drop, amend, close, events, export, plan, simulate,
        simulation, healthz, prometheus,
    ],
)  # fmt: skip


def seen_by(request: Request[Any, Any, Any], trial: Experiment, what: str) -> dict[str, Any]:
    """The status as this key may see it; an unblinded look is written down."""
    status = trial.status()
    if not key_of(request).may("analyst"):
        return blinded(status)
    note_view(request, trial, what)
    return status


def note_view(request: Request[Any, Any, Any], trial: Experiment, what: str) -> None:
    """Looking at outcomes before the end is an event; once a minute for each who looks at the same thing."""
    who = key_of(request)
    if request.app.state.views.is_new(trial.protocol.experiment, who.id, what):
        trial.view(who.name, what)


def _study(table: dict[str, Any], most_cells: int) -> Study:
    problem = table.get("problem")
    if isinstance(problem, dict):
        sizes = [
            len(problem.get(part) or ())
            for part in ("policies", "groups")
            if hasattr(problem.get(part), "__len__")
        ]
        if len(sizes) == 2 and sizes[0] * sizes[1] > most_cells:
            raise BadInput(
                f"the service takes at most {most_cells:,} cells; this has {sizes[0] * sizes[1]:,}."
            )
    truth = table.get("truth")
    if isinstance(truth, dict) and ("cells" in truth or "data" in truth):
        raise BadInput("the service opens no files: give the truth as means.")
    return Study.from_dict(table)


def _receipt(receipt: Any) -> dict[str, Any]:
    found: dict[str, Any] = receipt._asdict() if hasattr(receipt, "_asdict") else msgspec.to_builtins(receipt)
    return found

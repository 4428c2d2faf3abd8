"""Write small Inspect logs: two stand-ins for models answer the same questions in two languages."""

import inspect_ai
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import match
from inspect_ai.solver import solver

WRONG = {"large": {3, 11}, "small": {1, 3, 5, 7, 11, 15, 19}}


@solver
def answers(name):
    async def solve(state, generate):
        number = int(state.sample_id[1:])
        text = "no idea" if number in WRONG[name] else str(number + 1)
        state.output = ModelOutput.from_content(f"mockllm/{name}", text)
        return state

    return solve


@task
def sums(name):
    samples = [
        Sample(
            id=f"q{n}", input=f"{n} + 1?", target=str(n + 1), metadata={"language": "en" if n % 2 else "sw"}
        )
        for n in range(20)
    ]
    return Task(dataset=MemoryDataset(samples), solver=answers(name), scorer=match())


for name in WRONG:
    for form in ("json", "eval"):
        inspect_ai.eval(
            sums(name),
            model=f"mockllm/{name}",
            log_format=form,
            log_dir=f"logs_{form}",
            display="none",
            log_realtime=False,
        )

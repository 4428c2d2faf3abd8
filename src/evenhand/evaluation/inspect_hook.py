"""An extension of Inspect: at the end of a run, judge its logs and print which models may be deployed.

Set EVENHAND_STUDY to the study file, and EVENHAND_GROUP to the field of the samples' metadata that gives the
group (`group` unless set). EVENHAND_OUTCOME names the score, where a task has several. Inspect loads this
module by the entry point `inspect_ai`; nothing happens without EVENHAND_STUDY.
"""

from __future__ import annotations

import os
import sys

from inspect_ai.hooks import Hooks, RunEnd, hooks
from inspect_ai.log import EvalLog, read_eval_log


@hooks(name="evenhand", description="Judge the logs of a run: which models may be deployed.")
class EvenhandHooks(Hooks):  # type: ignore[misc]
    """Prints the verdict on the logs of a run."""

    def enabled(self) -> bool:
        """Return whether a study is set."""
        return "EVENHAND_STUDY" in os.environ

    async def on_run_end(self, data: RunEnd) -> None:
        """Judge the logs of the run that ended."""
        print(summary(list(data.logs)), file=sys.stderr)


def summary(logs: list[EvalLog]) -> str:
    """Return the verdict of the study on these logs, in sentences; or why there is none."""
    from evenhand.errors import EvenhandError
    from evenhand.study import load
    from evenhand.verdicts.deployment import deployment_sentence
    from evenhand.verdicts.judge import judge

    columns = {"group": os.environ.get("EVENHAND_GROUP", "group")}
    if "EVENHAND_OUTCOME" in os.environ:
        columns["outcome"] = os.environ["EVENHAND_OUTCOME"]
    try:
        whole = [log if log.samples else read_eval_log(log.location) for log in logs]
        verdict = judge(load(os.environ["EVENHAND_STUDY"]), whole, columns=columns, replications=0)
    except EvenhandError as problem:
        return f"evenhand: {problem}"
    first, *rest = verdict.words()
    return "\n".join(filter(None, [f"evenhand: {first}", deployment_sentence(verdict), *rest]))

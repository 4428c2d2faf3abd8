"""A sample of a log: its fields and its scores; and the columns that samples give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.errors import BadInput, nearest
from evenhand.model.phrases import listed
from evenhand.model.problem import Problem

SUCCESS, SCORE = "success", "score"


@dataclass(frozen=True)
class Sample:
    """One answer of a policy to an item: fields by name, among them policy and item, and scores by name."""

    fields: dict[str, Any]
    scores: dict[str, Any]


def columns_of(
    problem: Problem, samples: Sequence[Sample], names: Mapping[str, str]
) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the titles and the columns of samples; `names` maps our columns to fields and scores."""
    score = _score(samples, names["outcome"], SUCCESS if problem.family.name == "bernoulli" else SCORE)
    titles = list(dict.fromkeys(name for sample in samples for name in sample.fields))
    columns = {name: [_plain(sample.fields.get(name)) for sample in samples] for name in titles}
    if score is not None:
        if names["outcome"] not in columns:
            titles.append(names["outcome"])
        columns[names["outcome"]] = [_plain(sample.scores.get(score)) for sample in samples]
    if names["policy"] in columns:
        known = set(problem.policies)
        columns[names["policy"]] = [_policy(value, known) for value in columns[names["policy"]]]
    return titles, columns


def averaged(samples: Sequence[Sample]) -> list[Sample]:
    """Return samples with the mean score of each policy and item, where items were answered repeatedly."""
    found: dict[tuple[Any, Any], list[Sample]] = {}
    for sample in samples:
        found.setdefault((sample.fields["policy"], sample.fields["item"]), []).append(sample)
    return [
        same[0]
        if len(same) == 1
        else Sample(
            same[0].fields, {name: _mean([s.scores.get(name) for s in same]) for name in same[0].scores}
        )
        for same in found.values()
    ]


def number_or_none(value: Any) -> float | None:
    """Return a finite number, also for True and False; None for anything else."""
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value)
    return None


def _mean(values: Sequence[Any]) -> float | None:
    numbers = [number for value in values if (number := number_or_none(value)) is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else None


def _score(samples: Sequence[Sample], asked: str, preferred: str) -> str | None:
    """Return the name of the score that is the outcome; None where it is a field.

    Of success and score, which promptfoo gives both, it is the `preferred` one unless another was asked for.
    """
    names = list(dict.fromkeys(name for sample in samples for name in sample.scores))
    if asked in names:
        return asked
    if any(asked in sample.fields for sample in samples):
        return None
    if asked != "outcome":
        raise BadInput(f"the log has no score {asked!r}{nearest(asked, names)}")
    if {SUCCESS, SCORE} <= set(names):
        return preferred
    if len(names) > 1:
        raise BadInput(
            f"the log holds several scores, {listed(names)}; name the one that is the outcome, as the column "
            "'outcome'."
        )
    return names[0] if names else None


def _policy(value: Any, known: set[str]) -> Any:
    """Return the policy of a model: its name, or the last part of it where only that is a policy."""
    if not isinstance(value, str) or value in known:
        return value
    last = value.rsplit("/", 1)[-1]
    return last if last in known else value


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)

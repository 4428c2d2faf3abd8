"""Results of promptfoo: the JSON file that `promptfoo eval --output` writes.

Each entry of `results.results` has the provider, the prompt, the test case with its variables, a score and
whether all assertions passed (`success`). The policy is the provider, the prompt where there is one provider
and several prompts, or both. The item is the test case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.errors import BadInput
from evenhand.verdicts.readers.samples import SCORE, SUCCESS, Sample, averaged, number_or_none


def is_log(log: Any) -> bool:
    """Return whether a JSON document holds results of promptfoo."""
    return isinstance(log, Mapping) and isinstance(_results(log), list)


def read_log(log: Mapping[str, Any]) -> list[Sample]:
    """Return a sample for each result; repetitions of a test case are averaged."""
    results = [result for result in _results(log) if isinstance(result, Mapping)]
    if not results:
        raise BadInput("the results of promptfoo must hold at least one result; there is none.")
    providers = {_provider(result) for result in results}
    prompts = {_prompt(result) for result in results}
    found = []
    for result in results:
        provider, prompt = _provider(result), _prompt(result)
        policy = provider
        if len(prompts) > 1:
            policy = prompt if len(providers) == 1 else f"{provider} {prompt}"
        test = _mapping(result.get("testCase"))
        fields = {
            **_mapping(test.get("metadata")),
            **_mapping(test.get("vars")),
            **_mapping(result.get("vars")),
            "provider": provider,
            "prompt": prompt,
            "policy": policy,
            "item": f"test {result.get('testIdx', result.get('testCaseId'))}",
        }
        scores = {name: number_or_none(value) for name, value in _mapping(result.get("namedScores")).items()}
        scores |= {SUCCESS: number_or_none(result.get(SUCCESS)), SCORE: number_or_none(result.get(SCORE))}
        found.append(Sample(fields, scores))
    return averaged(found)


def _results(log: Mapping[str, Any]) -> Any:
    """Return the list of results, which older files hold one level higher."""
    inner = log.get("results")
    return inner.get("results") if isinstance(inner, Mapping) else inner


def _provider(result: Mapping[str, Any]) -> str:
    provider = result.get("provider")
    if isinstance(provider, Mapping):
        return str(provider.get("label") or provider.get("id"))
    return str(provider)


def _prompt(result: Mapping[str, Any]) -> str:
    prompt = result.get("prompt")
    label = str(prompt.get("label") or prompt.get("raw")) if isinstance(prompt, Mapping) else str(prompt)
    return str(result.get("promptIdx", "")) if len(label) > 200 else label


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}

"""Compare language models with a floor for every language, using few model calls.

The models here are simulated from a table of success rates, so that the example runs anywhere. A real model
is a function from an item to an answer; nothing else changes. The score is between 0 and 1, given by a person
or a program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import evenhand as eh

LANGUAGES = {"English": 600, "Swahili": 250, "Tamil": 150}
SUCCESS = {
    "large": {"English": 0.92, "Swahili": 0.86, "Tamil": 0.83},
    "tuned": {"English": 0.97, "Swahili": 0.90, "Tamil": 0.52},  # the best on average, but poor in Tamil
    "small": {"English": 0.80, "Swahili": 0.62, "Tamil": 0.58},
}


def main() -> eh.Verdict:
    pool = [
        {"language": language, "prompt": f"question {number} in {language}"}
        for language, count in LANGUAGES.items()
        for number in range(count)
    ]
    models = {name: _simulated_model(name) for name in SUCCESS}
    result = eh.evaluate(models, pool, score=rate, groups="language", at_least=0.7, delta=0.05, seed=11)
    print("\n".join(result.words()))
    return result.verdict


def rate(answer: str, item: dict[str, str]) -> float:
    """Return the score: 1 for a good answer, 0.5 for a partly good one, 0 otherwise."""
    return {"good": 1.0, "partly": 0.5}.get(answer, 0.0)


def _simulated_model(name: str) -> Callable[[dict[str, str]], str]:
    """Return a simulated model that always gives the same answer to the same prompt."""

    def answer(item: dict[str, str]) -> str:
        draw = int(hashlib.sha256(f"{name}:{item['prompt']}".encode()).hexdigest()[:8], 16) / 2**32
        success = SUCCESS[name][item["language"]]
        return "good" if draw < success - 0.05 else "partly" if draw < success + 0.05 else "wrong"

    return answer


if __name__ == "__main__":
    main()

"""Compare language models with a floor on every language, paying for as few calls as it takes.

The models here are stand-ins that answer from a table of skills, so that the example runs anywhere; a real
one is a function from a prompt to an answer, and nothing else changes. The score is between 0 and 1, given by
a person or a program.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import evenhand as eh

LANGUAGES = {"English": 600, "Swahili": 250, "Tamil": 150}
SKILL = {
    "large": {"English": 0.92, "Swahili": 0.86, "Tamil": 0.83},
    "tuned": {"English": 0.97, "Swahili": 0.90, "Tamil": 0.52},  # the best on average, and poor in Tamil
    "small": {"English": 0.80, "Swahili": 0.62, "Tamil": 0.58},
}


def main() -> eh.Verdict:
    pool = [
        {"language": language, "prompt": f"question {number} in {language}"}
        for language, count in LANGUAGES.items()
        for number in range(count)
    ]
    models = {name: _stand_in(name) for name in SKILL}
    result = eh.evaluate(models, pool, score=rate, groups="language", at_least=0.7, delta=0.05, seed=11)
    print("\n".join(result.words()))
    return result.verdict


def rate(answer: str, item: dict[str, str]) -> float:
    """The scorer: 1 for a good answer, 0.5 for half of one, 0 for none."""
    return {"good": 1.0, "partly": 0.5}.get(answer, 0.0)


def _stand_in(name: str) -> Callable[[dict[str, str]], str]:
    """A model that answers the same prompt the same way every time."""

    def answer(item: dict[str, str]) -> str:
        luck = int(hashlib.sha256(f"{name}:{item['prompt']}".encode()).hexdigest()[:8], 16) / 2**32
        skill = SKILL[name][item["language"]]
        return "good" if luck < skill - 0.05 else "partly" if luck < skill + 0.05 else "wrong"

    return answer


if __name__ == "__main__":
    main()

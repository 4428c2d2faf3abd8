"""A pytest plugin: the fixture `assert_meets`, and a report at the end of the test run.

    def test_the_model_is_good_enough_for_every_group(assert_meets):
        assert_meets(evaluate(...), "large")

`pytest --evenhand-summary FILE.md` also writes the report as Markdown, for a pull request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evenhand.evaluation.evaluate import Evaluation
    from evenhand.verdicts.judge import Verdict

PROPERTY = "evenhand"  # name of the test's property that holds the report; pytest-xdist carries it along


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the Markdown file."""
    parser.getgroup("evenhand").addoption(
        "--evenhand-summary", metavar="FILE", help="Write what assert_meets was given to a Markdown file."
    )


@pytest.fixture
def assert_meets(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Return a function that asserts that a policy is certified to meet the requirement, and reports it."""

    def check(result: Verdict | Evaluation, policy: str | None = None) -> None:
        from evenhand.evaluation.evaluate import assert_meets as certify
        from evenhand.verdicts.deployment import deployment_sentence, markdown_summary

        verdict: Any = getattr(result, "verdict", result)
        if hasattr(verdict, "policies"):
            words = result.words()
            lines = [words[0], deployment_sentence(verdict)]
            report = {
                "test": request.node.nodeid,
                "lines": list(filter(None, lines)),
                "markdown": markdown_summary(request.node.name, verdict, words),
            }
            request.node.user_properties.append((PROPERTY, report))
        certify(result, policy)

    return check


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print every verdict that `assert_meets` was given, and write them to the Markdown file."""
    found = list(_reports(terminalreporter))
    if found:
        terminalreporter.section("evenhand")
    for outcome, report in found:
        terminalreporter.write_line(f"{outcome.upper()} {report['test']}")
        for line in report["lines"]:
            terminalreporter.write_line(f"  {line}")
    target = config.getoption("--evenhand-summary")
    if target:
        Path(target).write_text("\n".join(report["markdown"] for _, report in found), encoding="utf-8")


def _reports(terminalreporter: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for outcome in ("passed", "failed"):
        for test in terminalreporter.stats.get(outcome, []):
            if getattr(test, "when", "") != "call":
                continue
            for name, report in test.user_properties:
                if name == PROPERTY:
                    yield outcome, report

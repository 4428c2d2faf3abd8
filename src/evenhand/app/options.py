"""Arguments and options that several commands share, so that they are spelled and explained alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
UNDECIDED = 3  # the exit code of a command that was asked for a decision and found none


def study_argument(function: F) -> F:
    """STUDY: the path of a study file."""
    return click.argument("study", type=click.Path())(function)


def json_option(function: F) -> F:
    """--json: print the result as JSON instead of tables."""
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(function)


def seed_option(function: F) -> F:
    """--seed S: the same seed gives the same numbers."""
    text = "The same seed gives the same numbers."
    return click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help=text)(
        function
    )


def print_json(result: Any) -> None:
    """The result as JSON; a number that is not finite is an error of ours, never printed."""
    click.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))

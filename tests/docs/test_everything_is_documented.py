"""Nothing a user can type or meet is missing from the documentation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import get_args

import click
import pytest
from click.shell_completion import ShellComplete, get_completion_class

import evenhand as eh
from evenhand.cli.main import group
from evenhand.live.events import AnyEvent
from evenhand.model.families import FAMILIES
from evenhand.model.problem import MODES
from evenhand.model.requirements import CONSTRAINTS
from evenhand.procedure.spec import SAMPLING, STOPPING, Procedure, TrackAndStop
from evenhand.service.responses import STATUS
from evenhand.study.problem_tables import FAMILY_KEYS, PROBLEM_KEYS
from evenhand.study.truth import Truth
from tests.docs.pages import PAGES, ROOT, blocks, name_of
from tools import reference


def commands(
    command: click.Command = group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if path:
        yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


COMMANDS = dict(commands())
CONSTRAINT_WORDS = ("floor", "cap", "gap", "ratio", "quota", "penalty")
each_command = pytest.mark.parametrize("path", COMMANDS, ids=" ".join)


@pytest.fixture(scope="module")
def command_page() -> str:
    return reference.commands()


@each_command
def test_a_command_and_its_options_are_on_the_reference_page(
    path: tuple[str, ...], command_page: str
) -> None:
    section = command_page.split(f"## `evenhand {' '.join(path)}`\n")[1].split("\n## ")[0]
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option):
            for name in option.opts:
                assert f"`{name}`" in section


@each_command
def test_a_command_and_its_options_say_what_they_are_for(path: tuple[str, ...]) -> None:
    assert COMMANDS[path].help
    options = [option for option in COMMANDS[path].params if isinstance(option, click.Option)]
    assert [option.opts for option in options if not option.help] == []


@each_command
def test_a_command_is_used_or_named_on_a_page_for_people(path: tuple[str, ...]) -> None:
    name = f"evenhand {' '.join(path)}" if len(path) == 1 else f"{path[-1]} "
    assert any(name in page.read_text(encoding="utf-8") for page in PAGES if page.parent.name != "decisions")


def test_the_glossary_has_every_symbol_of_the_paper_and_every_verdict_in_order() -> None:
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*)\| ([^|]+) \|$", page, re.M)[1:]
    terms = [row[0].lower() for row in rows]
    assert terms == sorted(terms)
    words = {word for term in terms for word in term.split(", ")}
    assert {"met", "failed", "undecided", "allowed", "open", *CONSTRAINT_WORDS} <= words
    notation = (ROOT / "docs/notation.md").read_text(encoding="utf-8")
    first = re.findall(r"^\| (\$[^|]*\$) \|", notation, re.M)
    symbols = {symbol for cell in first for symbol in re.findall(r"\$(.*?)\$", cell)}
    assert len(symbols) > 25
    shown = " ".join(row[1] for row in rows)
    assert [symbol for symbol in sorted(symbols) if symbol.split("(")[0] not in shown] == []


def study_keys() -> Iterator[str]:
    yield from PROBLEM_KEYS
    yield from (key for keys in FAMILY_KEYS.values() for key in keys)
    yield from (field.name for kind in CONSTRAINTS.values() for field in dataclasses.fields(kind))
    yield from (field.name for noun in (Procedure, TrackAndStop) for field in dataclasses.fields(noun))
    yield from (field.name for field in dataclasses.fields(Truth) if field.name != "folder")
    yield from (*FAMILIES, *CONSTRAINTS, *MODES, *SAMPLING)


def test_every_key_and_word_of_a_study_is_on_its_page() -> None:
    page = (ROOT / "docs/study-file.md").read_text(encoding="utf-8")
    assert [key for key in study_keys() if f"`{key}`" not in page] == []
    assert [rule for rule in STOPPING if rule not in page] == []


def test_every_environment_variable_is_among_the_settings() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    names = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", source))
    assert names
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_every_extra_is_among_the_settings() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = project.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    for extra in re.findall(r"^(\w+) = ", section, re.M):
        assert f"| `{extra}` |" in page


def test_every_kind_of_event_is_on_its_page_and_says_what_it_is() -> None:
    page = reference.events()
    for kind in get_args(AnyEvent):
        assert kind.__doc__
        section = page.split(f"## `{kind.__struct_config__.tag}`\n")[1].split("\n## ")[0]
        for field in set(kind.__annotations__):
            assert f"`{field}`" in section


def test_every_route_is_on_its_page_and_says_what_it_does() -> None:
    page = reference.http()
    for path in (
        "/api/v1/experiments/{name}/ask",
        "/api/v1/plan",
        "/api/v1/simulate",
        "/healthz",
        "/metrics",
    ):
        assert f" {path}`" in page
    for section in page.split("\n## ")[1:]:
        assert section.split("\n\n")[1].strip(), section


def test_every_status_of_the_service_is_on_its_page() -> None:
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    assert [status for _, status in STATUS if str(status) not in page] == []


def test_every_public_name_is_on_the_python_page() -> None:
    page = reference.python()
    assert [name for name in eh.__all__ if f"### `{name}`" not in page] == []


def mentions() -> Iterator[tuple[str, str]]:
    """What pages show as a command of ours, whether they run it or not."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        spans = re.findall(r"(?<!`)`(evenhand [^`\n]+)`", text)
        spans += [
            line.removeprefix("$ ")
            for block in blocks(page)
            if block.language in ("console", "sh")
            for line in block.text.splitlines()
            if line.removeprefix("$ ").startswith("evenhand ")
        ]
        yield from ((name_of(page), span) for span in spans)


def test_commands_that_pages_mention_exist_with_their_options() -> None:
    wrong = []
    for page, span in mentions():
        words = re.split(r"[|>&;#)]", span)[0].split()[1:]
        path: tuple[str, ...] = ()
        for word in words:
            if (*path, word) in COMMANDS:
                path = (*path, word)
        if not path and words and not words[0].startswith(("-", "X")):
            wrong.append((page, span))
        known = {name for end in range(len(path) + 1) for name in options_of(path[:end])}
        wrong += [(page, span) for word in words if word.startswith("--") and word.split("=")[0] not in known]
    assert wrong == []


def options_of(path: tuple[str, ...]) -> set[str]:
    command = COMMANDS.get(path, group)
    return {name for option in command.params for name in option.opts} | {"--help", "--version"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_documented_and_there(shell: str) -> None:
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert f"_EVENHAND_COMPLETE={shell}_source evenhand" in page
    assert get_completion_class(shell) is not None


def test_completion_offers_the_commands() -> None:
    complete = ShellComplete(group, {}, "evenhand", "_EVENHAND_COMPLETE")
    assert [item.value for item in complete.get_completions([], "pl")] == ["plan"]


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    explained = set(re.findall(r"^([a-z]+):.*## ", makefile, re.M))
    assert targets - explained == set()

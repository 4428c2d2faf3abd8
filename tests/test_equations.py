"""The page on the paper's labels is true: functions, tests, commands and files exist, and none is missing.

Every table of docs/equations.md has a form of its own: what is implemented, what a command makes, what is
stated, and where the subject of a section is implemented.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from evenhand.cli.main import group, main
from evenhand.cli.paper import paper_module

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "equations.md"
PAPER = ROOT.parent / "shared" / "paper.tex"

# three labels of the paper have a space after their colon
LABEL = re.compile(
    r"\b(?:(?:alg|cor|def|eq|example|lem|lemma|thm):[A-Za-z_0-9-]+|lemma: counter_set_calculation\w*)"
)
FROM_RUNS = re.compile(r"\b(?:fig|tab|table|example):\w+")
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")

IMPLEMENTED = "Equations, definitions, lemmas and algorithms"
MADE = "Tables, figures and examples"
STATED = "Statements, proofs and claims"
SUBJECTS = "Sections and appendices"
HOLDS = ("Yes", "No", "Partly")


class Implemented(NamedTuple):
    label: str
    what: str
    function: str
    test: str


class Made(NamedTuple):
    label: str
    what: str
    command: str
    made_by: str
    files: tuple[str, ...]


class Stated(NamedTuple):
    label: str
    says: str
    holds: str
    rests: str


class Subject(NamedTuple):
    label: str
    subject: str
    where: str


@cache
def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its two head lines."""
    section = INDEX.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> str:
    """The one piece of code that a cell holds, and nothing else."""
    found = re.fullmatch(r"`([^`]+)`", cell)
    assert found is not None, cell
    return found[1]


def implemented() -> list[Implemented]:
    return [
        Implemented(code(a), what, code(function), code(test))
        for a, what, function, test in rows(IMPLEMENTED)
    ]


def made() -> list[Made]:
    return [
        Made(code(a), what, code(command), code(by), tuple(code(file) for file in files.split(", ")))
        for a, what, command, by, files in rows(MADE)
    ]


def stated() -> list[Stated]:
    return [Stated(code(row[0]), *row[1:]) for row in rows(STATED)]


def subjects() -> list[Subject]:
    return [Subject(code(row[0]), *row[1:]) for row in rows(SUBJECTS)]


def listed() -> dict[str, list[str]]:
    """The labels of each table."""
    tables = {IMPLEMENTED: implemented(), MADE: made(), STATED: stated(), SUBJECTS: subjects()}
    return {heading: [row.label for row in table] for heading, table in tables.items()}


def definitions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield outer + child.name, child
            yield from definitions(child, f"{outer}{child.name}.")


@cache
def docstrings() -> dict[str, str]:
    """The docstring of every module, class and function of the package, by its dotted name."""
    found = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[module] = ""  # a module may explain labels that its functions carry
        for name, node in definitions(tree):
            found[f"{module}.{name}"] = ast.get_docstring(node) or ""
    return found


def tags() -> Iterator[tuple[str, str]]:
    """Every label in the first docstring line of a function or class, with its dotted name."""
    for name, docstring in docstrings().items():
        for label in LABEL.findall(docstring.split("\n")[0]):
            yield label, name


def test_every_tagged_function_is_listed_and_every_listed_one_is_tagged() -> None:
    assert {(row.label, row.function) for row in implemented()} == set(tags())


def test_a_label_in_a_docstring_is_written_as_in_the_paper_and_stands_in_its_first_line() -> None:
    anywhere = re.compile(LABEL.pattern, re.IGNORECASE)
    wrong = [
        (name, label)
        for name, docstring in docstrings().items()
        for label in set(anywhere.findall(docstring)) - set(LABEL.findall(docstring.split("\n")[0]))
    ]
    assert wrong == []


def test_every_row_is_understood_and_no_row_stands_twice() -> None:
    lines = [line for line in INDEX.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) == sum(map(len, listed().values())) > 0
    assert [row for row, count in Counter(lines).items() if count > 1] == []
    for heading in (MADE, STATED, SUBJECTS):
        assert [label for label, count in Counter(listed()[heading]).items() if count > 1] == []


@pytest.mark.parametrize("test", sorted({row.test for row in implemented()}))
def test_every_listed_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    names = {name for name, _ in definitions(ast.parse((ROOT / path).read_text(encoding="utf-8")))}
    assert name in names


def test_every_module_function_and_file_that_the_page_names_exists() -> None:
    wrong = []
    for name in CODE.findall(INDEX.read_text(encoding="utf-8")):
        if re.fullmatch(r"evenhand(\.\w+)+", name):
            wrong += [] if name in docstrings() else [name]
        elif re.fullmatch(r"(?:src|paper|tests|examples)/[\w./-]+", name):
            wrong += [] if (ROOT / name).is_file() else [name]
    assert wrong == []


def parsed(command: str) -> click.Context:
    """The command's arguments as the command line takes them; refused where it would refuse them."""
    name, *arguments = shlex.split(command)[1:]
    found = group.get_command(click.Context(group), name)
    assert found is not None, command
    return found.make_context(name, arguments)


@pytest.fixture(scope="module")
def room() -> Any:
    return paper_module()


@pytest.mark.parametrize("command", sorted({row.command for row in made()}))
def test_every_listed_command_is_accepted(command: str, room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert command.startswith("evenhand ")
    context = parsed(command)
    if context.info_name == "paper":
        assert room.chosen(context.params["only"])


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `evenhand paper` writes with two runs of everything."""
    folder = tmp_path_factory.mktemp("paper")
    assert main(["paper", "--replications", "2", "-o", str(folder), "--json"]) == 0
    return folder


@pytest.mark.parametrize("row", made(), ids=lambda row: row.label)
def test_every_listed_file_is_written_by_its_command_and_made_where_the_row_says(
    row: Made, room: Any, outputs: Path
) -> None:
    source = ROOT / row.made_by
    assert row.label in FROM_RUNS.findall(source.read_text(encoding="utf-8"))
    parameters = parsed_here(row.command)
    if parameters.info_name == "paper":
        (experiment,) = room.chosen(parameters.params["only"])
        module = Path(room.EXPERIMENTS[experiment].__file__).name
        assert source.name in (module, "instances.py")
        folder = outputs
    else:
        folder = ROOT
    for file in row.files:
        assert (folder / file).stat().st_size > 0


def parsed_here(command: str) -> click.Context:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return parsed(command)


def test_the_page_lists_every_table_and_figure_that_the_experiments_name() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "paper").glob("*.py"))
    assert set(FROM_RUNS.findall(sources)) == set(listed()[MADE])


def test_every_statement_says_whether_it_holds_and_why_not() -> None:
    for row in stated():
        verdict = re.match(r"\w+", row.holds)
        assert verdict is not None
        assert verdict[0] in HOLDS
        assert verdict[0] == "Yes" or row.holds.startswith(f"{verdict[0]}: "), row
        assert row.says, row
        assert row.rests.endswith("."), row


def test_every_subject_has_a_sentence_that_names_a_place() -> None:
    for row in subjects():
        assert row.where.endswith("."), row
        assert "`" in row.where or "](" in row.where or row.where == "No code depends on them.", row


def test_make_where_finds_labels_with_a_function_and_labels_without_one() -> None:
    bash = shutil.which("bash")
    assert bash is not None
    for label, expected in {
        "f_mu_opt": ("src/evenhand/theory/regions/box.py", "docs/equations.md"),
        "eq:stopping_statistics": ("src/evenhand/procedure/alternatives.py", "docs/equations.md"),
        "lemma: counter_set_calculation": ("src/evenhand/theory/alternatives.py", "docs/equations.md"),
        "table:ist_pcs": ("paper/stroke_trial.py", "docs/equations.md"),
        "sec: algorithm": ("docs/equations.md",),
    }.items():
        done = subprocess.run([bash, ROOT / "tools/where.sh", label], capture_output=True, text=True)
        assert done.returncode == 0, (label, done.stderr)
        assert all(f"{file}:" in done.stdout for file in expected), (label, done.stdout)
    refused = subprocess.run([bash, ROOT / "tools/where.sh", "f_mu"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "docs/equations.md does not list" in refused.stderr


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not on this machine")
def test_the_page_lists_exactly_the_labels_of_the_paper() -> None:
    labels = re.findall(r"\\label\{([^}]+)\}", PAPER.read_text(encoding="utf-8"))
    assert len(labels) == len(set(labels)) == 127
    assert {label for table in listed().values() for label in table} == set(labels)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not on this machine")
def test_every_label_stands_in_the_table_of_its_kind() -> None:
    # steps of a proof: nothing to implement
    steps = {"eq:appendix_hint", "eq:appendix_first_result", "lemma:continuity_f_mu"}
    kinds = {
        IMPLEMENTED: r"(?:alg|def|eq|lemma):",
        MADE: r"(?:fig|tab|table):",
        STATED: r"(?:cor|lem|lemma|thm):|.*proof$",
        SUBJECTS: r"(?:appendix|sec|subsec|subsect|subsubsec):(?!.*proof)",
    }
    labels = re.findall(r"\\label\{([^}]+)\}", PAPER.read_text(encoding="utf-8"))
    for heading, pattern in kinds.items():
        wanted = {label for label in labels if re.match(pattern, label)}
        assert wanted - set(listed()[heading]) == (steps if heading == IMPLEMENTED else set())

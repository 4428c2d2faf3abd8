"""Report: one page about a plan, simulations, an experiment, a verdict, or several of them.

report(plan, runs, trial).save("trial.html")     # .html, .md or .json by the name
"""

from __future__ import annotations

import base64
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from evenhand import __version__
from evenhand.errors import BadInput, shown
from evenhand.files import file_path
from evenhand.model.phrases import listed
from evenhand.reports.guarantees import SOURCES, Methods, methods
from evenhand.reports.page_parts import Picture, Section, text
from evenhand.result import Result
from evenhand.study import Study, dumps
from evenhand.versions import version_of

# the section that opens the page: the state of things first, then what was expected, then the lower bound
ORDER = ("experiment", "verdict", "dossier", "runs", "scan", "plan")
GLOSSARY = {
    "met, failed, undecided": (
        "The evidence shows that the mean reaches its bound; that it does not; neither, so far."
    ),
    "leads": "Has the best overall mean among the policies whose estimates meet the requirement.",
    "evidence": (
        "How strong the evidence is against the weakest of the ways in which the answer could be wrong, in "
        "nats: one nat more is a factor of 2.7 in odds."
    ),
    "interval": "The means that the data do not exclude at the stated risk.",
    "share": "The part of the population that a group makes up, or of the samples that a cell received.",
}


@dataclass(frozen=True, repr=False)
class Report(Result):
    """A page: sections in the order they were given, and the studies they belong to.

    `report` returns one.

    Attributes
    ----------
    sections : tuple
        What the page says about every source.
    studies : tuple of Study
        The studies that the sources belong to.
    title : str
        The title of the page.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    >>> eh.report(eh.plan(problem, [[0.8], [0.6]])).to_dict()["summary"]
    'At the assumed means a is the answer. Any procedure with risk 5% needs at least 110 samples ...'
    """

    sections: tuple[Section, ...]
    studies: tuple[Study, ...]
    title: str
    brand: str = "report"
    recipe: str = ""  # the input from which a dossier can be made again

    @cached_property
    def opening(self) -> Section:
        """Return the section whose sentence opens the page."""
        return min(self.sections, key=lambda section: ORDER.index(section.kind))

    @cached_property
    def methods(self) -> tuple[Methods, ...]:
        """Return what is guaranteed, once for every different procedure or way of judging."""
        own = [section.methods for section in self.sections if section.methods is not None]
        by_rule = [methods(study.problem, study.procedure) for study in self.studies]
        return tuple(dict.fromkeys(own if len(own) == len(self.sections) else [*by_rule, *own]))

    def covered_by(self, method: Methods) -> str:
        """Return the titles of the sections that a guarantee is about."""
        return listed([section.title for section in self.sections if section.methods == method])

    @property
    def sources(self) -> list[str]:
        """Return the publications that the methods rest on, each once."""
        return [
            SOURCES[key] for key in dict.fromkeys(key for method in self.methods for key in method.sources)
        ]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Return seeds, hashes and versions."""
        found = [fact for section in self.sections for fact in section.facts]
        found += [
            (f"study {_label(study, number, self.studies)}".strip(), study.content_hash)
            for number, study in enumerate(self.studies)
        ]
        return list(dict.fromkeys([*found, *versions()]))

    @property
    def protocols(self) -> list[tuple[str, str]]:
        """Return the studies as TOML."""
        return [
            (f"Study {_label(study, number, self.studies)}".strip(), dumps(study))
            for number, study in enumerate(self.studies)
        ]

    @property
    def code(self) -> str:
        """Return the commands that make this page again."""
        return "\n".join(dict.fromkeys(section.code for section in self.sections if section.code))

    def to_dict(self) -> dict[str, Any]:
        """Return every number on the page, for JSON."""
        return {
            "title": self.title,
            "summary": text(self.opening.lead),
            "sections": [
                {"kind": s.kind, "title": s.title, "summary": text(s.lead), "notes": list(map(text, s.notes))}
                | dict(s.numbers)
                for s in self.sections
            ],
            "guarantees": [method.guarantee for method in self.methods],
            "assumptions": [list(method.assumptions) for method in self.methods],
            "studies": [study.to_dict() for study in self.studies],
            "facts": dict(self.facts),
        }  # fmt: skip

    def json(self) -> str:
        """Return the numbers as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def html(self) -> str:
        """Return the page as one self-contained HTML file."""
        from evenhand.reports.render import render_html

        return render_html(self)

    def summary(self) -> str:
        """Return one printed page for those who decide, as one self-contained HTML file.

        It has the question, the result, the main numbers, the guarantee with every assumption, the names and
        hashes of what was judged, and lines to sign. Every number on it is also in the whole report.
        """
        from evenhand.reports.render import render_summary

        return render_summary(self)

    def markdown(self) -> str:
        """Return the page as Markdown."""
        from evenhand.reports.render import render_markdown

        return render_markdown(self)

    def save(self, path: str | Path, summary: bool = False) -> Path:
        """Write the page as HTML, Markdown or JSON, by the suffix of the name.

        Parameters
        ----------
        path : str or Path
            The file: NAME.html, NAME.md or NAME.json.
        summary : bool
            Write the summary on one page instead, as HTML.

        Returns
        -------
        Path
            The file.
        """
        path = page_path(path, summary)
        html = self.summary if summary else self.html
        forms = {".html": html, ".htm": html, ".md": self.markdown, ".json": self.json}
        content = forms[path.suffix.lower()]()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except OSError as problem:
            raise BadInput(f"the report cannot be written to {path}: {problem.strerror}.") from None
        return path

    def save_figures(self, folder: str | Path) -> list[Path]:
        """Write every figure as SVG and PNG, and its table as CSV; return the paths."""
        from evenhand.reports.captioned_figures import save_picture

        folder = file_path(folder, "the path of a folder")
        folder.mkdir(parents=True, exist_ok=True)
        return [path for name, picture in self.pictures() for path in save_picture(picture, folder, name)]

    def pictures(self) -> list[tuple[str, Picture]]:
        """Return every figure with a name of its own."""
        many = len(self.sections) > 1
        return [
            (f"{number}-{section.kind}-{picture.name}" if many else picture.name, picture)
            for number, section in enumerate(self.sections, start=1)
            for picture in section.pictures
        ]

    def download(self) -> str:
        """Return the JSON as a data address, which needs no network."""
        return "data:application/json;base64," + base64.b64encode(self.json().encode()).decode()


def report(*sources: Any, title: str | None = None) -> Report:
    """Return a page about results, in any number and order.

    Parameters
    ----------
    *sources : Plan, Runs, Comparison, Scan, Experiment, Verdict, Evaluation or Study
        What the page is about; a study is planned.
    title : str, optional
        The title; that of the first study that has one unless given.

    Returns
    -------
    Report
        The page: `save("report.html")` writes it.

    Raises
    ------
    BadInput
        If there is no source, or one of another kind.

    Examples
    --------
    >>> import evenhand as eh
    >>> problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.3))
    >>> page = eh.report(eh.plan(problem, [[0.8], [0.6]]), title="Two policies")
    >>> page.title, [section.kind for section in page.sections]
    ('Two policies', ['plan'])
    """
    from evenhand.reports.sections import sections_of

    if title is not None and not isinstance(title, str):
        raise BadInput(f"title must be text; it is {shown(title)}.")

    if not sources:
        raise BadInput("a report needs at least one plan, runs, experiment or verdict; it got none.")
    found = [
        (replace(section, methods=section.methods or methods(study.problem, study.procedure)), study)
        for source in sources
        for section, study in sections_of(source)
    ]
    studies = _each_once([study for _, study in found])
    named = (
        title
        or next((study.title for study in studies if study.title), "")
        or "Choosing one policy for everyone"
    )
    return Report(tuple(section for section, _ in found), studies, named)


def _each_once(studies: Sequence[Study]) -> tuple[Study, ...]:
    """Return the different studies; one without a truth is left out where the same one has a truth."""
    distinct = tuple({study.content_hash: study for study in studies}.values())
    with_truth = {replace(study, truth=None).content_hash for study in distinct if study.truth is not None}
    return tuple(s for s in distinct if s.truth is not None or s.content_hash not in with_truth)


def page_path(name: str | Path, summary: bool = False) -> Path:
    """Return the path of a page, refused unless its suffix is known; checked before the work begins."""
    path = file_path(name)
    if path.suffix.lower() not in (".html", ".htm", ".md", ".json"):
        raise BadInput(f"a report is saved as .html, .md or .json; got {path.name!r}.")
    if summary and path.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"a summary is one printed page, saved as .html; got {path.name!r}.")
    return path


def versions() -> list[tuple[str, str]]:
    """Return the versions of the programs that made the numbers."""
    own = [("evenhand", __version__), ("python", platform.python_version())]
    return own + [(name, version_of(name) or "not installed") for name in ("numpy", "llvmlite", "scipy")]


def _label(study: Study, number: int, studies: Sequence[Study]) -> str:
    if len(studies) == 1:
        return ""
    title = study.title or str(number + 1)
    if [other.title for other in studies].count(study.title) == 1 or not study.title:
        return title
    return f"{title} ({number + 1} of {len(studies)})"

"""Generate the reference pages from the code: commands, HTTP, events, Python.

Each public function returns Markdown, which docs/conf.py includes in the documentation.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

import evenhand as eh

VALUES = {
    "integer": "N",
    "integer range": "N",
    "float": "X",
    "path": "PATH",
}  # type of an option -> placeholder in its description
MAX_SIGNATURE = 80  # characters; a longer one has a line for each argument
WITH_MEMBERS = (
    "Problem", "Study", "Truth", "Plan", "Runs", "Comparison", "Calibration", "BoxCalibration", "Scan",
    "Experiment", "Status", "LogEntry", "Verdict", "CellRow", "Evaluation", "Report",
)  # fmt: skip


def commands() -> str:
    """Return every command with its usage, description and options."""
    from evenhand.cli.main import group

    context = click.Context(group, info_name="evenhand", **group.context_settings)
    parts = []
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        parts += _command(found, click.Context(found, info_name=name, parent=context))
    return "\n".join(parts)


def http() -> str:
    """Return every route with its required role and parameters."""
    from evenhand.service.app import Settings, create_app

    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(str(Path(folder) / "journal.db")))
        schema = app.openapi_schema.to_schema()
    roles = {
        (str(method).lower(), route.path_format): _role(handler)
        for route in app.routes
        for method, (handler, _) in getattr(route, "route_handler_map", {}).items()
    }
    forms = schema["components"]["schemas"]
    parts = []
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            parts += _route(method, path, operation, forms, roles.get((method, path)))
    return "\n".join(parts)


def events() -> str:
    """Return every kind of event with its fields."""
    from evenhand.live.events import AnyEvent, Event

    parts = ["Every event carries:", "", *_fields(Event)]
    for kind in get_args(AnyEvent):
        parts += [f"## `{kind.__struct_config__.tag}`", "", inspect.getdoc(kind) or "", "", *_fields(kind)]
    return "\n".join(parts)


def python() -> str:
    """Return every public name with its signature and docstring."""
    parts = []
    for title, chosen in _public_names().items():
        parts += [f"## {title}", ""]
        for name in chosen:
            parts += _name(name, getattr(eh, name))
    return "\n".join(parts)


def _command(command: click.Command, context: click.Context) -> list[str]:
    path = context.command_path
    anchor = path.replace(" ", "-")
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [
        f"({anchor})=",
        "",
        f"## `{path}`",
        "",
        "```text",
        usage,
        "```",
        "",
        _prose(command.help or ""),
        "",
    ]
    options = [_option(option) for option in command.params if isinstance(option, click.Option)]
    if options:
        parts += _table(("option", ""), options)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            parts += _command(found, click.Context(found, info_name=name, parent=context))
    return parts


def _option(option: click.Option) -> tuple[str, str]:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" {option.metavar or VALUES.get(option.type.name, 'TEXT')}"
    if isinstance(option.type, click.Choice):
        value = " " + " or ".join(option.type.choices)
    default = f" Default: `{option.default}`." if option.show_default and option.default else ""
    required = " Required." if option.required else ""
    return names + value, f"{option.help or ''}{default}{required}"


def _prose(help_text: str) -> str:
    """Return a command's help as Markdown; a block that starts with \\b keeps its line breaks."""
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(help_text))
    return "\n\n".join(
        f"```text\n{block.lstrip(chr(8)).strip(chr(10))}\n```" if block.startswith("\b") else block
        for block in blocks
    )


def _route(
    method: str, path: str, operation: dict[str, Any], forms: dict[str, Any], role: str | None
) -> list[str]:
    who = f"Role: {role}." if role else "No key needed."
    parts = [f"## `{method.upper()} {path}`", "", operation.get("description", ""), "", who, ""]
    rows = [
        (f"`{one['name']}`", one["in"], _kind(one["schema"], one.get("required", False)))
        for one in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    form = forms.get(body.get("$ref", "").rpartition("/")[2], {})
    required = form.get("required", ())
    rows += [
        (f"`{name}`", "body", _kind(schema, name in required))
        for name, schema in form.get("properties", {}).items()
    ]
    return parts + (_table(("name", "in", "what"), rows) if rows else [])


def _kind(schema: dict[str, Any], required: bool) -> str:
    """Describe a schema briefly: integer, 1 to 1000; 1 unless given."""
    kinds = [one["type"] for one in schema.get("oneOf", [schema]) if one.get("type") not in (None, "null")]
    words = " or ".join(kinds) or "anything"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None and most < 1e6:
        words += f", {least:g} to {most:g}"
    if "pattern" in schema:
        words += f" like `{schema['pattern']}`"
    if schema.get("default") is not None:
        return f"{words}; {schema['default']} unless given"
    return words if required else f"{words}; may be left out"


def _role(handler: Any) -> str | None:
    """Return the role that a route's guard requires."""
    for guard in handler.guards or ():
        found = inspect.getclosurevars(guard).nonlocals.get("needed")
        if isinstance(found, str):
            return found
    return None


def _fields(kind: type) -> list[str]:
    """Return a table of an event's fields, with the comments from the source."""
    line = re.compile(r"    (\w+): ([^=#]+?)(?: = ([^#]+?))?(?:  # (.*))?$")
    found = [line.match(text) for text in inspect.getsource(kind).splitlines()]
    rows = [(f"`{m[1]}`", f"`{m[2]}`", m[4] or "") for m in found if m]
    return _table(("field", "type", ""), rows) if rows else []


def _public_names() -> dict[str, list[str]]:
    """Return the public names of each section of the Python page."""
    titles = {
        "Problem and study": ("model.problem", "model.guardrails", "study"),
        "Outcome families": ("model.families",),
        "Requirements": ("model.requirements",),
        "Procedures": ("procedure.spec",),
        "Plans": ("theory.plan",),
        "Simulations": (
            "simulation.simulate",
            "simulation.runs",
            "simulation.calibrate",
            "simulation.box_calibration",
            "simulation.scan",
        ),
        "Live experiments": (
            "live.experiment",
            "live.tickets",
            "live.status",
            "live.events",
            "service.client",
        ),
        "Verdicts and evaluation": (
            "verdicts.judge",
            "model.result_rows",
            "evaluation.evaluate",
            "evaluation.item_plan",
        ),
        "Shares, assignment and intervals": (
            "procedure.assignment",
            "procedure.interval_settings",
            "live.intervals",
            "live.interval_bets",
            "live.interval_pairs",
            "verdicts.next_shares",
            "verdicts.paired_intervals",
        ),
        "Reports": ("reports.document",),
        "Errors": ("errors",),
    }
    return {
        title: [name for module in modules for name in eh._NAMES_BY_MODULE[module]]
        for title, modules in titles.items()
    }


def _name(name: str, found: Any) -> list[str]:
    doc = inspect.getdoc(found) or ""
    parts = [f"### `{name}`", "", "```python", f"{name}{_signature(found)}", "```", "", *_markdown(doc), ""]
    if name in WITH_MEMBERS:
        rows = [
            (f"`{member}{_one_line(_signature(value))}`", _plain(_summary(inspect.getdoc(value) or "")))
            for member, value in _members(found).items()
            if not member.startswith("_") and (callable(value) or isinstance(value, (classmethod, property)))
        ]
        parts += _table(("member", ""), [row for row in rows if row[1]])
    return parts


def _members(found: type) -> dict[str, Any]:
    """The members of a class, and those of its base classes in evenhand."""
    members: dict[str, Any] = {}
    for kind in found.__mro__:
        if kind.__module__.startswith("evenhand"):
            members = {
                **members,
                **{name: value for name, value in vars(kind).items() if name not in members},
            }
    return members


def _markdown(doc: str) -> list[str]:
    """A numpydoc docstring as Markdown: a list of parameters, examples as code."""
    parts, title, body = [], "", []  # type: ignore[var-annotated]
    lines = doc.splitlines()
    for number, line in enumerate(lines):
        rule = lines[number + 1] if number + 1 < len(lines) else ""
        if rule and set(rule) == {"-"}:
            parts += _section(title, body)
            title, body = line, []
        elif not (line and set(line) == {"-"} and title):
            body.append(line)
    return [*parts, *_section(title, body)]


def _section(title: str, body: list[str]) -> list[str]:
    text = "\n".join(body).strip("\n")
    if not title:
        return [paragraph + "\n" for paragraph in map(_plain, re.split(r"\n\s*\n", text)) if paragraph]
    if title == "Examples":
        return ["Examples:", "", "```pycon", text, "```", ""]
    entries = re.split(r"\n(?=\S)", text)
    return [f"{title}:", "", *(f"- {_entry(entry)}" for entry in entries), ""]


def _entry(entry: str) -> str:
    """A parameter, or what is returned or raised: its name and kind, then what it is."""
    head, _, rest = entry.partition("\n")
    name, _, kind = head.partition(" : ")
    kind = re.sub(r"\{(.*)\}", r"one of \1", kind)  # numpydoc lists the possible values in braces
    return f"`{name}`{f' ({kind})' if kind else ''}: {_plain(rest)}"


def _summary(doc: str) -> str:
    """The part of a docstring before its first section."""
    return re.split(r"\n\n\w+\n---", doc)[0]


def _signature(found: Any) -> str:
    """Return the signature without type annotations."""
    if isinstance(found, property):
        return ""
    if inspect.isclass(found) and issubclass(found, Exception):
        return ""
    target = found.__func__ if isinstance(found, classmethod) else found
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in inspect.signature(target).parameters.values()
        if one.name not in ("self", "cls")
    ]
    signature = str(inspect.Signature(parameters))
    if len(signature) <= MAX_SIGNATURE:
        return signature
    return "(\n" + "".join(f"    {part},\n" for part in _arguments(parameters)) + ")"


def _arguments(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the arguments as a signature has them, with a star before those that need their name."""
    kinds = [one.kind for one in parameters]
    parts = [str(one) for one in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return parts


def _one_line(signature: str) -> str:
    return re.sub(r",\n\)$", ")", signature).replace("(\n    ", "(").replace("\n    ", " ")


def _plain(doc: str) -> str:
    return " ".join(doc.split())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [*("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines), ""]

"""Convert a problem to and from the [problem] table of a study file; write TOML."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from evenhand.errors import BadInput, nearest
from evenhand.model.families import FAMILIES, Family
from evenhand.model.guardrails import Guardrail
from evenhand.model.labels import written
from evenhand.model.problem import ONE_FAMILY, Problem
from evenhand.model.requirements import CONSTRAINTS, All, Constraint

LARGEST = 1e100  # largest number in a study; squares of larger numbers overflow
PROBLEM_KEYS = (
    "policies", "groups", "family", "constraint", "mode", "arrivals", "costs",
    "guardrails", "goal", "max_policies", "by",
)  # fmt: skip
GUARDRAIL_KEYS = ("name", "family", "constraint")
PER_GROUP = ("margin", "ratio")  # numbers of a requirement that are kept as a table by group
BY_NAME = (*PER_GROUP, "at_least", "at_most", "floor", "gamma")  # numbers that may come by name

# family -> {key in the file: attribute of the class}
FAMILY_KEYS: dict[str, dict[str, str]] = {
    "gaussian": {"sd": "sd"},
    "binomial": {"trials": "trials"},
    "gamma": {"shape": "shape"},
    "bounded": {"low": "low", "high": "high"},
}


def problem_from_dict(table: Any) -> Problem:
    """Return the problem that a [problem] table describes."""
    known_keys(table, PROBLEM_KEYS, "[problem]")
    for key in ("policies", "groups", "family"):
        if key not in table:
            raise BadInput(f"[problem] needs {key}; it has {', '.join(table) or 'nothing'}.")
    policies = table["policies"]
    if not isinstance(policies, list):
        raise BadInput(f"policies must be a list of names; it is {policies!r}.")
    mode = table.get("mode", "active")
    arrivals = table.get("arrivals")
    if arrivals is not None and isinstance(table["groups"], Mapping):
        known_keys(arrivals, tuple(table["groups"]), "arrivals")
    constraint = table.get("constraint", {"kind": "none"})
    return Problem(
        policies,
        table["groups"],
        family_from_dict(table["family"]),
        constraint_from_dict(constraint),
        mode=mode,
        arrivals=arrivals,
        costs=by_name(table["costs"], "costs") if "costs" in table else None,
        guardrails=_guardrails_from(table.get("guardrails", [])),
        goal=table.get("goal", "best"),
        max_policies=table.get("max_policies"),
        by=table.get("by", ()),
    )


def problem_to_dict(problem: Problem) -> dict[str, Any]:
    """Return the [problem] table of a problem."""
    table: dict[str, Any] = {
        "policies": list(problem.policies),
        "groups": dict(problem.groups),
        "family": family_to_dict(problem.family),
        "constraint": constraint_to_dict(problem.constraint),
        "mode": problem.mode,
    }
    if problem.arrivals is not None:
        table["arrivals"] = dict(problem.arrivals)
    if problem.costs is not None:
        table["costs"] = _plain(problem.costs)
    if problem.guardrails:
        table["guardrails"] = [
            {
                "name": rail.name,
                "family": family_to_dict(rail.family),
                "constraint": constraint_to_dict(rail.constraint),
            }
            for rail in problem.guardrails
        ]
    # keys added to the format later are written only if they are set, so that older hashes stay the same
    if problem.goal != "best":
        table["goal"] = problem.goal
    if problem.max_policies is not None:
        table["max_policies"] = problem.max_policies
    if problem.by:
        table["by"] = list(problem.by)
    return table


def family_from_dict(table: Any) -> Family:
    """Return the family in a table such as { name = "gaussian", sd = 0.5 }."""
    if isinstance(table, Mapping) and table and all(isinstance(part, Mapping) for part in table.values()):
        raise BadInput(
            f"family must be one table with a name; it has one for each of {', '.join(table)}. {ONE_FAMILY}"
        )
    if isinstance(table, (list, tuple)):
        raise BadInput(f"family must be one table with a name; it is a list of {len(table)}. {ONE_FAMILY}")
    name = _name_in_table(table, "name", FAMILIES, "family")
    keys = FAMILY_KEYS.get(name, {})
    known_keys(table, ("name", *keys), f"the {name} family")
    return FAMILIES[name](**{key: by_name(table[key], key) for key in keys if key in table})


def family_to_dict(family: Family) -> dict[str, Any]:
    keys = FAMILY_KEYS.get(family.name, {})
    return {"name": family.name} | {
        key: _plain(getattr(family, attribute)) for key, attribute in keys.items()
    }


def constraint_from_dict(table: Any) -> Constraint:
    """Return the requirement in a table such as { kind = "floors", at_least = 0.8 }."""
    kind = _name_in_table(table, "kind", CONSTRAINTS, "constraint")
    constraint = CONSTRAINTS[kind]
    fields = dataclasses.fields(constraint)
    known_keys(table, ("kind", *(part.name for part in fields)), f"the {kind!r} constraint")
    missing = [part.name for part in fields if part.default is dataclasses.MISSING and part.name not in table]
    if missing:
        raise BadInput(f"the {kind!r} constraint needs {missing[0]}; it has {', '.join(table)}.")
    if constraint is All:
        if not isinstance(table["of"], list):
            raise BadInput(f"'of' must be a list of constraints; it is {table['of']!r}.")
        return All(tuple(constraint_from_dict(part) for part in table["of"]))
    return constraint(**{key: _constraint_value(value, key) for key, value in table.items() if key != "kind"})


def _constraint_value(value: Any, key: str) -> Any:
    if key in ("weighted", "relative_to"):
        return value  # checked by the requirement itself
    return by_name(value, key) if key in BY_NAME else numeric(value, key)


def constraint_to_dict(constraint: Constraint) -> dict[str, Any]:
    if constraint.kind not in CONSTRAINTS:
        raise BadInput("a custom convex set is Python code and cannot be written to a study file.")
    table: dict[str, Any] = {"kind": constraint.kind}
    if isinstance(constraint, All):
        return table | {"of": [constraint_to_dict(part) for part in constraint.of]}
    for part in dataclasses.fields(constraint):
        value = getattr(constraint, part.name)
        if value is None:
            continue
        if part.name in PER_GROUP:
            table[part.name] = written(value)
        elif isinstance(value, (bool, str)) or part.name == "groups":
            table[part.name] = value
        else:
            table[part.name] = _plain(value)
    return table


def known_keys(table: Any, known: Iterable[str], where: str) -> None:
    """Raise BadInput unless `table` is a table with known keys; suggest the nearest key."""
    if not isinstance(table, Mapping):
        raise BadInput(f"{where} must be a table; it is {table!r}.")
    known = tuple(known)
    for key in table:
        if key not in known:
            raise BadInput(f"unknown key {key!r} in {where}{nearest(str(key), known)}")


def numeric(value: Any, what: str) -> Any:
    """Return the value if it is a number or nested lists of numbers; refuse text and booleans."""
    if isinstance(value, (list, tuple)):
        return [numeric(part, what) for part in value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInput(f"{what} must be a number or a table of numbers; it holds {value!r}.")
    if LARGEST < abs(value) < math.inf:
        raise BadInput(f"{what} must hold numbers up to {LARGEST:g}; one is larger.")
    return value


def by_name(value: Any, what: str) -> Any:
    """Return numbers checked by `numeric`, or a (nested) table of such numbers by name."""
    if isinstance(value, Mapping):
        return {name: by_name(part, what) for name, part in value.items()}
    return numeric(value, what)


def _guardrails_from(rows: Any) -> list[Guardrail]:
    """Return the guard-rails in the [[problem.guardrails]] tables."""
    if not isinstance(rows, list):
        raise BadInput(f"guardrails must be a list of tables, [[problem.guardrails]]; they are {rows!r}.")
    found = []
    for row in rows:
        known_keys(row, GUARDRAIL_KEYS, "[[problem.guardrails]]")
        missing = [key for key in GUARDRAIL_KEYS if key not in row]
        if missing:
            raise BadInput(
                f"[[problem.guardrails]] needs {missing[0]}; it has {', '.join(row) or 'nothing'}."
            )
        found.append(
            Guardrail(row["name"], family_from_dict(row["family"]), constraint_from_dict(row["constraint"]))
        )
    return found


def _name_in_table(table: Any, key: str, known: Mapping[str, Any], what: str) -> str:
    if not isinstance(table, Mapping) or key not in table:
        raise BadInput(
            f'{what} must be a table such as {{ {key} = "{next(iter(known))}" }}; it is {table!r}.'
        )
    name = table[key]
    if not isinstance(name, str) or name not in known:
        raise BadInput(
            f"{what} {key} must be one of {', '.join(known)}; it is {name!r}{nearest(str(name), known)}"
        )
    return str(name)


def _plain(value: Any) -> Any:
    """Convert tuples to lists and numbers to floats, as JSON and TOML would return them."""
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return float(value)


BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def write(study: Mapping[str, Any]) -> str:
    """Return TOML text: plain values first, then one section per table."""
    plain = {key: value for key, value in study.items() if not isinstance(value, Mapping)}
    sections = {key: value for key, value in study.items() if isinstance(value, Mapping)}
    blocks = [_lines(plain)] if plain else []
    blocks += [f"[{key}]\n{_lines(table)}" for key, table in sections.items()]
    return "\n".join(blocks)


def _lines(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(part)}" for key, part in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    # JSON and TOML use the same escapes, except that TOML also requires one for DEL
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

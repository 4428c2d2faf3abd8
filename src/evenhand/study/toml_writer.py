"""Write a study as TOML: nested tables inline, numbers in shortest round-trip form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

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

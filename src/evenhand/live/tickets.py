"""How people see tickets: ``t17-k3f9``. The last four letters belong to this ticket of this experiment.

A mistyped number and a ticket of another experiment are refused instead of being taken for somebody else's
outcome.
"""

from __future__ import annotations

import hashlib
import re

from evenhand.errors import NotFound

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # without i, l, o, u, which are misread
_FORM = re.compile(r"t([1-9][0-9]{0,17})-([0-9a-z]{4})")


def ticket_code(protocol: bytes, number: int) -> str:
    """What people write for this ticket; `protocol` is the hash of event one."""
    digest = hashlib.sha256(protocol + number.to_bytes(8, "big")).digest()
    bits = int.from_bytes(digest[:3], "big")
    return f"t{number}-" + "".join(_LETTERS[bits >> shift & 31] for shift in (15, 10, 5, 0))


def ticket_number(protocol: bytes, code: object) -> int:
    """The number of a ticket that people wrote."""
    match = _FORM.fullmatch(code.strip().lower()) if isinstance(code, str) else None
    if match is None or ticket_code(protocol, int(match[1])) != match[0]:
        raise NotFound(f"this experiment has no ticket {str(code)[:40]!r}; copy it as `ask` gave it.")
    return int(match[1])

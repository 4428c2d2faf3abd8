"""The exceptions that evenhand raises on purpose.

    EvenhandError            base class
    ├── BadInput             invalid input; nothing was written                          (exit code 2)
    │   ├── Undecidable      T* is infinite: a tie, or a mean exactly on a boundary      (exit code 2)
    │   └── NameTaken        the journal has another experiment of this name             (HTTP 409)
    ├── Conflict             a second, different outcome for the same ticket             (HTTP 409)
    │   └── KeyReused        the idempotency key belongs to another request              (HTTP 409)
    ├── NotFound             no such experiment, ticket or event                         (HTTP 404)
    ├── Closed               the experiment is stopped, paused or closed                 (HTTP 409)
    ├── NotComputed          the evidence could not be computed; nothing was decided     (HTTP 500)
    ├── StorageFailed        the journal could not be written or read                    (HTTP 503)
    ├── CompilationFailed    the kernels could not be compiled on this machine           (exit code 1, 503)
    └── IntegrityFailed      a journal, export or snapshot failed verification           (exit code 4)

A message says what must hold, what was given, and what to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

LONGEST_SHOWN = 120  # characters of a value in a message


class EvenhandError(Exception):
    """Base class of all exceptions that evenhand raises on purpose."""


class BadInput(EvenhandError, ValueError):
    """The input is invalid; nothing was written."""


class Undecidable(BadInput):
    """No number of samples decides: T* is infinite, by a tie or a mean exactly on a boundary."""


class Conflict(EvenhandError):
    """The ticket already has a different outcome."""


class NameTaken(BadInput, Conflict):
    """The journal holds an experiment of this name already; nothing was written."""


class KeyReused(Conflict):
    """The idempotency key was used for another request; nothing was written."""


class NotFound(EvenhandError, LookupError):
    """There is no such experiment, ticket or event."""


class Closed(EvenhandError):
    """The experiment is stopped, paused or closed and does not accept this call."""


class NotComputed(EvenhandError):
    """A lower bound on the evidence could not be computed; nothing was decided."""


class StorageFailed(EvenhandError):
    """The journal could not be written or read; nothing was acknowledged."""


class CompilationFailed(EvenhandError):
    """The kernels could not be compiled on this machine."""


class IntegrityFailed(EvenhandError):
    """A journal, export or snapshot failed verification."""


def shown(value: object) -> str:
    """Return a value as a message shows it: its repr where that is short, otherwise the name of its class."""
    try:
        text = repr(value)
    except Exception:  # a whole number of too many digits, or a class whose repr fails
        if isinstance(value, int):
            return "a very large number"
        text = "\n"
    if "\n" not in text and len(text) <= LONGEST_SHOWN and " at 0x" not in text:
        return text
    kind = type(value).__name__
    return f"{'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}"


def shown_address(address: str) -> str:
    """Return the address of a journal or database as it may be printed: without a password."""
    # up to the last @: a password may contain one
    address = re.sub(r"^([\w+.-]+://[^/@:]*):.*@", r"\1:...@", address)
    return re.sub(r"([?&]\w*password=)[^&]*", r"\1...", address)


def is_one_of(value: object, names: Iterable[str]) -> bool:
    """Return whether a value is one of these names; no array or frame is."""
    return isinstance(value, str) and value in tuple(names)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a message: ``; did you mean 'floors'?``, or the list of known words."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(repr(w) for w in words)}."

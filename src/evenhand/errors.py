"""The errors that evenhand raises.

    EvenhandError            something a caller may want to catch
    ├── BadInput             what was given cannot be used; nothing was written          (exit code 2)
    │   └── Undecidable      no number of samples decides: a tie, or a mean on the edge  (exit code 2)
    ├── Conflict             a second, different outcome for a ticket already told       (HTTP 409)
    │   └── KeyReused        a key that stands for another request already               (HTTP 409)
    ├── NotFound             no such experiment, ticket or event                         (HTTP 404)
    ├── Closed               the experiment is stopped, paused or closed                 (HTTP 409)
    ├── NotComputed          evidence could not be computed; nothing is decided by it    (HTTP 500)
    ├── StorageFailed        the journal could not be written or read                    (HTTP 503)
    └── IntegrityFailed      a journal, export or snapshot does not verify               (exit code 4)

A message says what must hold, what came, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST_SHOWN = 120  # characters of a value in a message


class EvenhandError(Exception):
    """Root of the tree."""


class BadInput(EvenhandError, ValueError):
    """What was given cannot be used; nothing was written."""


class Undecidable(BadInput):
    """The characteristic time is infinite: a tie, or a mean exactly on the boundary."""


class Conflict(EvenhandError):
    """A second, different outcome for a ticket that has one already."""


class KeyReused(Conflict):
    """The key was used for another request; nothing was written."""


class NotFound(EvenhandError, LookupError):
    """No such experiment, ticket or event."""


class Closed(EvenhandError):
    """The experiment is stopped, paused or closed, and takes no such call."""


class NotComputed(EvenhandError):
    """A lower bound of the evidence could not be computed; it is not taken for a lack of evidence."""


class StorageFailed(EvenhandError):
    """The journal could not be written or read; nothing was acknowledged."""


class IntegrityFailed(EvenhandError):
    """A journal, export or snapshot does not verify."""


def shown(value: object) -> str:
    """Return a value as a message shows it: its repr where that is short, otherwise the name of its class."""
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python prints
        return "a very large number"
    if "\n" not in text and len(text) <= LONGEST_SHOWN and " at 0x" not in text:
        return text
    kind = type(value).__name__
    return f"{'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}"


def is_one_of(value: object, names: Iterable[str]) -> bool:
    """Return whether a value is one of these names; no array or frame is."""
    return isinstance(value, str) and value in tuple(names)


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion to end a message with: ``; did you mean 'floors'?`` or the known words."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(repr(w) for w in words)}."

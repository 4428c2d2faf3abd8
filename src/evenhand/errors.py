"""Every error evenhand raises on purpose.

    EvenhandError            something a caller may want to catch
    ├── BadInput             what was given cannot be used; nothing was written          (exit code 2)
    │   ├── Undecidable      no number of samples decides: a tie, or a mean on the edge  (exit code 2)
    │   └── NameTaken        the journal holds another experiment of this name           (HTTP 409)
    ├── Conflict             a second, different outcome for a ticket already told       (HTTP 409)
    │   └── KeyReused        a key that stands for another request already               (HTTP 409)
    ├── NotFound             no such experiment, ticket or event                         (HTTP 404)
    ├── Closed               the experiment is stopped, paused or closed                 (HTTP 409)
    ├── NotComputed          evidence could not be computed; nothing is decided by it    (HTTP 500)
    ├── StorageFailed        the journal could not be written or read                    (HTTP 503)
    ├── CompilationFailed    the kernels could not be compiled on this machine           (exit code 1, 503)
    └── IntegrityFailed      a journal, export or snapshot does not verify               (exit code 4)

A message says what must hold, what came, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class EvenhandError(Exception):
    """Root of the tree."""


class BadInput(EvenhandError, ValueError):
    """What was given cannot be used; nothing was written."""


class Undecidable(BadInput):
    """The characteristic time is infinite: a tie, or a mean exactly on the boundary."""


class Conflict(EvenhandError):
    """A second, different outcome for a ticket that has one already."""


class NameTaken(BadInput, Conflict):
    """The journal holds an experiment of this name already; nothing was written."""


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


class CompilationFailed(EvenhandError):
    """The kernels could not be compiled on this machine."""


class IntegrityFailed(EvenhandError):
    """A journal, export or snapshot does not verify."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion to end a message with: ``; did you mean 'floors'?`` or the known words."""
    words = list(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(repr(w) for w in words)}."

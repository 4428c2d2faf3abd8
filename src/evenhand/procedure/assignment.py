"""Assign units to policies by a salted hash, so that any server assigns without a call.

The hash is defined to the bit. With UTF-8 for text and decimal digits for whole numbers,

    point = the first four hexadecimal digits of MD5("salt:unit"), a number from 0 to 65,535

A group's ranges divide the points among the policies: the policy of a unit is the first (policy, end) with
point < end. A unit therefore keeps its policy while its point stays in a range of that policy. `Shares.moved`
moves as few points as possible: a policy whose share falls gives points away, and keeps all others.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.errors import BadInput, nearest, shown
from evenhand.model.argument_checks import is_number, is_whole
from evenhand.model.frozen_dict import FrozenDict
from evenhand.model.labels import by_name

Words = NDArray[np.uint32]
Points = NDArray[np.int64]
Ranges = tuple[tuple[str, int], ...]

POINTS = 65_536
SALT = re.compile(r"[0-9A-Za-z_-]{8,32}")
CHUNK = 32_768  # units hashed at once: the arrays of a step stay in the processor's cache
ONE_BLOCK = 55  # longest message that MD5 reads as one block
SHIFTS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
STARTS = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
SINES = tuple(int(abs(math.sin(i + 1)) * 2**32) for i in range(64))
# as arrays without axes, with which NumPy computes faster than with numbers
_SINES = tuple(np.array(sine, dtype=np.uint32) for sine in SINES)
_SHIFTS = tuple(np.array(shift, dtype=np.uint32) for shift in range(32))
STEPS = 61  # the first word of the digest is known after 61 of MD5's 64 steps
POINT_IN_SQL = {
    "duckdb": "CAST('0x' || substr(md5('{salt}:' || CAST({unit} AS VARCHAR)), 1, 4) AS INTEGER)",
    "postgresql": "('x' || substr(md5('{salt}:' || CAST({unit} AS text)), 1, 4))::bit(16)::integer",
}


@dataclass(frozen=True)
class Shares:
    """The share of every policy in every group, as ranges of points; with the salt of the hash.

    Parameters
    ----------
    ranges : dict
        By group, ((policy, end), ...) with ascending ends; the last end is 65,536. `Shares.of` makes them.
    salt : str
        8 to 32 letters, digits, _ or -; another salt gives another, independent assignment.
    version : int
        The number of this version, from 1.
    valid_from : str, optional
        The time from which units are assigned by this version.

    Raises
    ------
    BadInput
        If the ranges do not divide all points, or the salt or the version is invalid.

    Examples
    --------
    >>> import evenhand as eh
    >>> shares = eh.Shares.of({"young": {"a": 0.25, "b": 0.75}}, salt="example-1")
    >>> shares.ranges["young"], shares.share("young", "b")
    ((('a', 16384), ('b', 65536)), 0.75)
    """

    ranges: Mapping[str, Ranges]
    salt: str
    version: int = 1
    valid_from: str | None = None
    _ends: Mapping[str, tuple[list[int], list[str]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.salt, str) or SALT.fullmatch(self.salt) is None:
            raise BadInput(f"salt must be 8 to 32 letters, digits, _ or -; it is {shown(self.salt)}.")
        if not is_whole(self.version) or self.version < 1:
            raise BadInput(f"version must be a whole number, at least 1; it is {shown(self.version)}.")
        object.__setattr__(self, "version", int(self.version))
        if self.valid_from is not None and not isinstance(self.valid_from, str):
            raise BadInput(f"valid_from must be a time as text; it is {shown(self.valid_from)}.")
        if not isinstance(self.ranges, Mapping) or not self.ranges:
            raise BadInput(f"ranges must be given by group; they are {shown(self.ranges)}.")
        ranges = {group: _checked_ranges(group, given) for group, given in self.ranges.items()}
        object.__setattr__(self, "ranges", FrozenDict(ranges))
        ends = {group: ([end for _, end in r], [name for name, _ in r]) for group, r in ranges.items()}
        object.__setattr__(self, "_ends", ends)

    @staticmethod
    def of(shares: Mapping[str, Mapping[str, float]], salt: str) -> Shares:
        """Return the first version of shares, given by group and policy; those of a group sum to 1."""
        counts = _counts_of(shares)
        ranges = {
            group: _ranges(np.repeat(np.arange(len(sizes)), list(sizes.values())), list(sizes))
            for group, sizes in counts.items()
        }
        return Shares(ranges, salt)

    def moved(self, shares: Mapping[str, Mapping[str, float]], valid_from: str | None = None) -> Shares:
        """Return the next version, with these shares and as few points moved as possible.

        A policy whose share falls gives its highest points away; they go, in ascending order, to the policies
        whose shares rise, in the order in which these are named.
        """
        counts = _counts_of(shares)
        if set(counts) != set(self.ranges):
            raise BadInput(f"shares must be given for the groups {', '.join(map(repr, self.ranges))}.")
        ranges = {group: _moved(self.ranges[group], sizes) for group, sizes in counts.items()}
        return Shares(ranges, self.salt, self.version + 1, valid_from)

    def share(self, group: str, policy: str) -> float:
        """Return the share of a policy in a group; 0 where it has none."""
        ends, names = self._of_group(group)
        starts = [0, *ends[:-1]]
        points = sum(
            end - start for start, end, name in zip(starts, ends, names, strict=True) if name == policy
        )
        return points / POINTS

    def to_dict(self) -> dict[str, Any]:
        """Return the document to publish: `salt`, `version`, `valid_from` and `ranges`, for JSON."""
        return {
            "salt": self.salt,
            "version": self.version,
            "valid_from": self.valid_from,
            "ranges": {group: [list(pair) for pair in ranges] for group, ranges in self.ranges.items()},
        }

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Shares:
        """Return the shares of a published document."""
        if not isinstance(document, Mapping):
            raise BadInput(f"shares must be Shares or their published document; they are {shown(document)}.")
        missing = next((key for key in ("salt", "version", "ranges") if key not in document), None)
        if missing is not None:
            raise BadInput(
                f"a document of shares needs the keys salt, version and ranges; {missing!r} is missing."
            )
        return Shares(document["ranges"], document["salt"], document["version"], document.get("valid_from"))

    def to_sql(self, unit: str = "unit", group: str = '"group"', dialect: str = "duckdb") -> str:
        """Return an SQL expression of the policy of a unit; `unit` and `group` are expressions too."""
        if dialect not in POINT_IN_SQL:
            raise BadInput(f"dialect must be one of {', '.join(POINT_IN_SQL)}; it is {shown(dialect)}.")
        point = POINT_IN_SQL[dialect].format(salt=self.salt, unit=unit)
        groups = []
        for name, ranges in self.ranges.items():
            inner = " ".join(f"WHEN {point} < {end} THEN {literal(policy)}" for policy, end in ranges)
            groups.append(f"WHEN {group} = {literal(name)} THEN CASE {inner} END")
        return f"CASE {' '.join(groups)} END"

    def _of_group(self, group: str) -> tuple[list[int], list[str]]:
        found = self._ends.get(group) if isinstance(group, str) else None
        if found is None:
            raise BadInput(f"there is no group {shown(group)}{nearest(str(group), self.ranges)}")
        return found


def assign(unit: Any, group: Any, shares: Shares | Mapping[str, Any]) -> Any:
    """Return the policy of a unit, or of every unit of an array.

    Parameters
    ----------
    unit : str, int or array
        What is assigned, such as the number of a user; an array of text or of whole numbers.
    group : str or array
        The group of the unit; for an array of units one group, or an array of the same length.
    shares : Shares or dict
        The published shares; a dict is their JSON document.

    Returns
    -------
    str or array
        The policy, or an array of policies.

    Raises
    ------
    BadInput
        If a unit is neither text nor a whole number, or a group has no shares.

    Examples
    --------
    >>> import evenhand as eh
    >>> shares = eh.Shares.of({"young": {"a": 0.25, "b": 0.75}}, salt="example-1")
    >>> eh.assign("user 17", "young", shares), eh.assign(17, "young", shares)
    ('b', 'a')
    """
    if not isinstance(shares, Shares):
        shares = Shares.from_dict(shares)
    kind = type(unit)
    if (kind is str and unit) or kind is int:  # the usual case, without further calls
        try:
            ends, names = shares._ends.get(group) or shares._of_group(group)
        except TypeError:  # a list, for instance
            raise BadInput(f"the group of one unit must be a name; it is {shown(group)}.") from None
        digest = hashlib.md5(f"{shares.salt}:{unit}".encode(), usedforsecurity=False).digest()
        return names[bisect_right(ends, digest[0] << 8 | digest[1])]
    if isinstance(unit, (str, int, np.integer)) and not isinstance(unit, bool):
        return assign(_nonempty(str(unit)), group, shares)
    if not hasattr(unit, "__len__") or isinstance(unit, (bytes, Mapping)):
        raise BadInput(f"a unit must be text or a whole number; it is {shown(unit)}.")
    return _assign_all(_array(unit, "units"), group, shares)


def points_of(units: NDArray[Any], salt: str) -> Points:
    """Return the points of units, an array of text or of whole numbers."""
    if units.ndim != 1:
        raise BadInput(f"units must be a list or an array with one axis; they have {units.ndim}.")
    prefix = f"{salt}:".encode()
    found = np.empty(units.size, dtype=np.int64)
    for start in range(0, units.size, CHUNK):
        part = units[start : start + CHUNK]
        found[start : start + part.size] = _points_of_chunk(part, prefix)
    return found


def _assign_all(units: NDArray[Any], groups: Any, shares: Shares) -> NDArray[Any]:
    points = points_of(units, shares.salt)
    of_unit = None if isinstance(groups, str) else _array(groups, "groups")
    if of_unit is not None and of_unit.shape != units.shape:
        raise BadInput(
            f"groups must be one name or as many as units, {units.size:,}; there are {of_unit.size:,}."
        )
    if of_unit is None:
        return _policy_of_points(shares, groups)[points]
    tables = {group: _policy_of_points(shares, group) for group in shares.ranges}
    found = np.empty(units.size, dtype=np.result_type(*tables.values()))
    known = np.zeros(units.size, dtype=bool)
    for group, table in tables.items():
        mine = np.flatnonzero(of_unit == group)
        found[mine], known[mine] = table[points[mine]], True
    if not known.all():
        shares._of_group(str(of_unit[int(np.argmin(known))]))  # raises: there is no such group
    return found


def _array(values: Any, what: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:  # lists of different lengths
        raise BadInput(
            f"{what} must be a list or an array with one axis; they are {shown(values)}."
        ) from None


def _policy_of_points(shares: Shares, group: str) -> NDArray[Any]:
    """Return the policy of every point: a lookup costs less than a search in the ends."""
    ends, names = shares._of_group(group)
    return np.repeat(np.array(names), np.diff([0, *ends]))


def _point(message: str) -> int:
    digest = hashlib.md5(message.encode(), usedforsecurity=False).digest()
    return digest[0] << 8 | digest[1]


def _nonempty(unit: Any) -> Any:
    if unit == "":
        raise BadInput("a unit must not be empty; give the text or the number that identifies it.")
    return unit


def _points_of_chunk(units: NDArray[Any], prefix: bytes) -> Points:
    is_text = units.dtype.kind == "U"
    is_digits = units.dtype.kind in "iu" and units.min() >= 0
    widest = units.dtype.itemsize // 4 if is_text else 20
    if not (is_text or is_digits) or len(prefix) + widest > ONE_BLOCK or not _is_ascii(units):
        return _points_one_by_one(units.tolist(), prefix)
    if is_text:
        lengths = np.char.str_len(units)
        if (lengths == 0).any():
            _nonempty("")
    else:
        units = units.astype(np.uint32 if units.max() < 2**32 else np.uint64)
        lengths = _digits_of(units)
    width, whole = int(lengths.max()), len(prefix) // 4 * 4
    rest = np.frombuffer(prefix[whole:], dtype=np.uint8)
    # a row per unit: the end of the salt, the unit and the first byte of padding, up to a multiple of four
    block = np.zeros((units.size, (rest.size + width) // 4 * 4 + 4), dtype=np.uint8)
    block[:, : rest.size] = rest
    unit = block[:, rest.size : rest.size + width]
    if is_text:
        unit[:] = np.ascontiguousarray(units).view(np.uint32).reshape(units.size, -1)[:, :width]
    else:
        _write_numbers(unit, units, lengths)
    block[np.arange(units.size), rest.size + lengths] = 0x80
    words: list[Words | int] = [0] * 16
    words[: whole // 4] = np.frombuffer(prefix[:whole], dtype="<u4").tolist()
    for i, word in enumerate(block.view("<u4").T, start=whole // 4):
        words[i] = np.ascontiguousarray(word, dtype=np.uint32)
    words[14] = (8 * (len(prefix) + lengths)).astype(np.uint32)
    return _points_of_blocks(words, units.size)


def _is_ascii(units: NDArray[Any]) -> bool:
    return units.dtype.kind != "U" or not (np.ascontiguousarray(units).view(np.uint32) > 127).any()


def _points_one_by_one(units: Sequence[Any], prefix: bytes) -> Points:
    for unit in units:
        if type(unit) not in (str, int):
            raise BadInput(f"a unit must be text or a whole number; it is {shown(unit)}.")
    salt = prefix.decode()
    return np.array([_point(f"{salt}{_nonempty(unit)}") for unit in units], dtype=np.int64)


# the digits of 0 to 9,999, four bytes each
_FOUR_DIGITS = np.frombuffer(b"".join(b"%04d" % i for i in range(10_000)), dtype=np.uint8).view("<u4")


def _digits_of(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Return how many decimal digits each number has."""
    least, most = (len(str(end)) for end in (numbers.min(), numbers.max()))
    lengths = np.full(numbers.size, least, dtype=np.int64)
    for digits in range(least, most):
        lengths += numbers >= numbers.dtype.type(10**digits)
    return lengths


def _write_numbers(out: NDArray[np.uint8], numbers: NDArray[Any], lengths: NDArray[np.int64]) -> None:
    """Write decimal digits into the rows of `out`, from the left; `lengths` has how many."""
    digits = np.empty((numbers.size, (out.shape[1] + 3) // 4 * 4), dtype=np.uint8)
    fours, rest = digits.view("<u4"), numbers
    for column in reversed(range(fours.shape[1])):
        rest, last = _divided(rest)
        fours[:, column] = _FOUR_DIGITS[last]
    out[:] = digits[:, digits.shape[1] - out.shape[1] :]  # right for the longest numbers
    for length in np.flatnonzero(np.bincount(lengths)[: out.shape[1]]):
        rows = np.flatnonzero(lengths == length)
        out[rows] = 0
        out[rows, :length] = digits[rows, digits.shape[1] - length :]


def _divided(numbers: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the quotients and the remainders of a division by 10,000."""
    if numbers.dtype != np.uint32 and numbers.max() < 2**32:
        numbers = numbers.astype(np.uint32)  # four times as fast
    quotient = numbers // numbers.dtype.type(10_000)
    return quotient, numbers - quotient * numbers.dtype.type(10_000)


def _points_of_blocks(words: Sequence[Words | int], size: int) -> Points:
    """Return the points of messages of one MD5 block: 16 words, each one number or an array."""
    fixed = next(i for i, word in enumerate(words) if not isinstance(word, int))
    a, b, c, d = (np.full(size, start, dtype=np.uint32) for start in _after_fixed(words[:fixed]))
    t, u = np.empty_like(a), np.empty_like(a)
    for i in range(fixed, STEPS):
        kind = i // 16
        _mix(kind, b, c, d, t)
        np.add(t, a, out=t)
        at = (i, 5 * i + 1, 3 * i + 5, 7 * i)[kind] % 16
        word = words[at]
        if isinstance(word, int):
            np.add(t, np.array((SINES[i] + word) % 2**32, dtype=np.uint32), out=t)
        else:
            np.add(t, word, out=t)
            np.add(t, _SINES[i], out=t)
        shift = SHIFTS[kind][i % 4]
        np.left_shift(t, _SHIFTS[shift], out=u)
        np.right_shift(t, _SHIFTS[32 - shift], out=t)
        np.bitwise_or(t, u, out=t)
        np.add(t, b, out=t)
        a, b, c, d, t = d, t, b, c, a
    first = b + np.uint32(STARTS[0])
    return (((first & 0xFF) << 8) | ((first >> 8) & 0xFF)).astype(np.int64)


def _after_fixed(words: Sequence[Words | int]) -> tuple[int, int, int, int]:
    """Return MD5's state after its first words, which are the same number for all units: part of the salt."""
    a, b, c, d = STARTS
    for i, word in enumerate(words):
        t = (a + (d ^ (b & (c ^ d))) + SINES[i] + int(word)) % 2**32
        shift = SHIFTS[0][i % 4]
        a, b, c, d = d, (b + (t << shift | t >> (32 - shift))) % 2**32, b, c
    return a, b, c, d


def _mix(kind: int, b: Words, c: Words, d: Words, out: Words) -> None:
    """Write MD5's function of round `kind` into `out`."""
    if kind == 0:  # b ? c : d
        np.bitwise_xor(c, d, out=out)
        np.bitwise_and(out, b, out=out)
        np.bitwise_xor(out, d, out=out)
    elif kind == 1:  # d ? b : c
        np.bitwise_xor(b, c, out=out)
        np.bitwise_and(out, d, out=out)
        np.bitwise_xor(out, c, out=out)
    elif kind == 2:
        np.bitwise_xor(b, c, out=out)
        np.bitwise_xor(out, d, out=out)
    else:  # c xor (b or not d)
        np.bitwise_not(d, out=out)
        np.bitwise_or(out, b, out=out)
        np.bitwise_xor(out, c, out=out)


def _counts_of(shares: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, int]]:
    """Return the number of points of every policy, by group: the shares, rounded by largest remainders."""
    shares = by_name(shares, "shares") if isinstance(shares, Mapping) else shares
    if not isinstance(shares, Mapping) or not all(
        isinstance(row, Mapping) and row for row in shares.values()
    ):
        raise BadInput(f"shares must be given by group and policy; they are {shown(shares)}.")
    return {group: _rounded(group, row) for group, row in shares.items()}


def _rounded(group: str, row: Mapping[str, float]) -> dict[str, int]:
    bad = next((name for name, share in row.items() if not is_number(share) or not 0 <= share <= 1), None)
    if bad is not None:
        raise BadInput(f"a share must be a number from 0 to 1; that of {bad!r} is {shown(row[bad])}.")
    if abs(sum(row.values()) - 1.0) > 1e-9:
        raise BadInput(
            f"the shares of a group must sum to 1; those of {group!r} sum to {sum(row.values()):.10g}."
        )
    exact = {name: POINTS * float(share) for name, share in row.items()}
    sizes = {name: int(size) for name, size in exact.items()}
    for name in sorted(row, key=lambda name: sizes[name] - exact[name])[: POINTS - sum(sizes.values())]:
        sizes[name] += 1
    return sizes


def _moved(ranges: Ranges, sizes: Mapping[str, int]) -> Ranges:
    """Return the ranges with new sizes: policies that shrink give their highest points to those that grow."""
    names = list(dict.fromkeys([*sizes, *(name for name, _ in ranges)]))
    number = {name: i for i, name in enumerate(names)}
    owner = np.repeat([number[name] for name, _ in ranges], np.diff([0, *(end for _, end in ranges)]))
    wanted = np.array([sizes.get(name, 0) for name in names])
    had = np.bincount(owner, minlength=len(names))
    by_owner = np.argsort(owner.astype(np.uint16), kind="stable")  # the points of each policy, ascending
    rank = np.arange(POINTS) - np.repeat(np.cumsum(had) - had, had)  # of a point among those of its policy
    free = np.sort(by_owner[rank >= wanted[owner[by_owner]]])
    owner[free] = np.repeat(np.arange(len(names)), np.maximum(wanted - had, 0))
    return _ranges(owner, names)


def _ranges(owner: NDArray[np.int64], names: Sequence[str]) -> Ranges:
    """Return the ranges of the points' owners."""
    ends = [*(np.flatnonzero(np.diff(owner)) + 1).tolist(), owner.size]
    return tuple((names[owner[end - 1]], end) for end in ends)


def _checked_ranges(group: Any, given: Any) -> Ranges:
    try:
        found = tuple((policy, end) for policy, end in given)
    except (TypeError, ValueError):
        raise BadInput(
            f"the ranges of {group!r} must be pairs of policy and end; they are {shown(given)}."
        ) from None
    ends = [end for _, end in found]
    valid = all(isinstance(name, str) and is_whole(end) for name, end in found)
    if not valid or not found or ends != sorted(set(ends)) or ends[0] <= 0 or ends[-1] != POINTS:
        raise BadInput(f"the ends of {group!r} must rise to {POINTS:,}; they are {shown(ends)}.")
    return tuple((name, int(end)) for name, end in found)


def literal(text: str) -> str:
    """Return text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"

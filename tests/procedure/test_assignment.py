"""Units are assigned as the page "Run it on your warehouse" says, in Python, SQL and JavaScript alike."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.procedure.assignment import POINTS, points_of

SALT = "example-1"
SHARES = eh.Shares.of(
    {"young": {"a": 0.3, "b": 0.5, "it's": 0.2}, "o'ld": {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}}, salt=SALT
)
UNITS: list[Any] = [
    0,
    1,
    9,
    10,
    9_999,
    10_000,
    2**31,
    2**32,
    10**12,
    "user 17",
    "17",
    "é",
    "日本",
    "x" * 80,
    "a'b",
]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "warehouse.md"


def point(unit: Any, salt: str = SALT) -> int:
    """Return the point by its definition, with Python's own MD5."""
    return int(hashlib.md5(f"{salt}:{unit}".encode()).hexdigest()[:4], 16)


def policy(unit: Any, group: str, shares: eh.Shares = SHARES) -> str:
    return next(name for name, end in shares.ranges[group] if point(unit, shares.salt) < end)


def test_the_vectors_of_the_guide_hold() -> None:
    # the digests were computed with md5sum
    vectors = {"0": "cfab", "17": "3b50", "user 17": "54df", "é": "d335", "18446744073709551615": "b730"}
    rows = re.findall(
        r"^\| `example-1` \| `(.+?)` \| `(\w{4})` \| ([\d,]+) \|$", GUIDE.read_text("utf-8"), re.M
    )
    assert {unit: digits for unit, digits, _ in rows} == vectors
    assert [int(number.replace(",", "")) for *_, number in rows] == [int(d, 16) for d in vectors.values()]
    assert points_of(np.array(list(vectors)), SALT).tolist() == [int(d, 16) for d in vectors.values()]


@pytest.mark.parametrize("group", ["young", "o'ld"])
def test_every_unit_gets_the_policy_of_the_definition(group: str) -> None:
    for unit in UNITS:
        assert eh.assign(unit, group, SHARES) == policy(unit, group)
        assert eh.assign(str(unit), group, SHARES.to_dict()) == policy(unit, group)


SALTS = st.from_regex(r"\A[0-9A-Za-z_-]{8,32}\Z")


@settings(max_examples=60)
@given(units=st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 20_000)), min_size=1), salt=SALTS)
def test_arrays_of_numbers_have_the_points_of_single_numbers(units: list[int], salt: str) -> None:
    expected = [point(unit, salt) for unit in units]
    assert points_of(np.array(units, dtype=np.uint64), salt).tolist() == expected
    assert points_of(np.array(units, dtype=object), salt).tolist() == expected
    assert points_of(np.array([str(unit) for unit in units]), salt).tolist() == expected


@settings(max_examples=60)
@given(
    units=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)),
    salt=SALTS,
)
def test_arrays_of_text_have_the_points_of_single_texts(units: list[str], salt: str) -> None:
    assert points_of(np.array(units, dtype=str), salt).tolist() == [point(unit, salt) for unit in units]


def test_arrays_of_several_chunks_and_kinds_are_assigned() -> None:
    units = np.random.default_rng(0).integers(0, 10**9, 70_000)
    groups = np.where(units % 2, "young", "o'ld")
    found = eh.assign(units, groups, SHARES)
    assert found[:2_000].tolist() == [policy(*pair) for pair in zip(units[:2_000], groups, strict=False)]
    assert (eh.assign(units[-5_000:], "young", SHARES) == [policy(u, "young") for u in units[-5_000:]]).all()
    assert eh.assign(np.array([-3, 4]), "young", SHARES).tolist() == [policy(-3, "young"), policy(4, "young")]
    assert eh.assign([], "young", SHARES).size == 0
    assert eh.assign(np.int32(7), "young", SHARES) == eh.assign(np.str_("7"), "young", SHARES)


def test_points_are_uniform_and_shares_are_kept() -> None:
    counts = np.bincount(points_of(np.arange(1_000_000), SALT) // 1024, minlength=64)
    assert chisquare(counts).pvalue > 1e-6
    for group, ranges in SHARES.ranges.items():
        assert sum(SHARES.share(group, name) for name, _ in ranges) == 1.0
    assert abs(SHARES.share("young", "a") - 0.3) < 1 / POINTS


ROWS = st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda row: sum(row) > 0)


@settings(max_examples=60)
@given(first=ROWS, second=ROWS)
def test_moving_shares_moves_as_few_points_as_possible(first: list[float], second: list[float]) -> None:
    rows = [
        {"g": {name: x / sum(row) for name, x in zip("abc", row, strict=True)}} for row in (first, second)
    ]
    before = eh.Shares.of(rows[0], SALT)
    after = before.moved(rows[1], "2026-11-16T12:00:00Z")
    assert (after.version, after.valid_from, after.salt) == (2, "2026-11-16T12:00:00Z", SALT)
    assert after == eh.Shares.from_dict(json.loads(json.dumps(after.to_dict())))
    fresh = eh.Shares.of(rows[1], SALT)
    for name in "abc":
        assert after.share("g", name) == fresh.share("g", name)
    # at least the sum of all gains must move; no more does
    owners = [
        np.repeat([n for n, _ in s.ranges["g"]], np.diff([0, *(e for _, e in s.ranges["g"])]))
        for s in (before, after)
    ]
    gains = sum(max(after.share("g", n) - before.share("g", n), 0.0) for n in "abc")
    assert (owners[0] != owners[1]).mean() == gains


def test_duckdb_assigns_alike() -> None:
    import duckdb

    with duckdb.connect() as engine:
        for group in SHARES.ranges:
            sql = f"SELECT {SHARES.to_sql('$unit', '$group', 'duckdb')}"
            for unit in UNITS:
                found = engine.execute(sql, {"unit": unit, "group": group}).fetchone()
                assert found == (policy(unit, group),)


def test_postgresql_assigns_alike(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute('CREATE TABLE units (unit text, "group" text)')
        pairs = [(str(unit), group) for unit in UNITS for group in SHARES.ranges]
        connection.cursor().executemany("INSERT INTO units VALUES (%s, %s)", pairs)
        sql = f'SELECT unit, "group", {SHARES.to_sql(dialect="postgresql")} FROM units'
        found = connection.execute(sql.encode()).fetchall()
    assert len(found) == len(pairs)
    assert all(name == policy(unit, group) for unit, group, name in found)


def test_javascript_assigns_alike() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed on this machine")
    code = re.search(r"```js\n(.*?)```", GUIDE.read_text("utf-8"), re.S)
    assert code is not None
    pairs = [(str(unit), group) for unit in UNITS for group in SHARES.ranges]
    script = (
        f"{code[1]}\nconst shares = {json.dumps(SHARES.to_dict())};\nconst pairs = {json.dumps(pairs)};\n"
        "console.log(JSON.stringify(pairs.map(([unit, group]) => assign(unit, group, shares))));"
    )
    done = subprocess.run([node, "-"], input=script, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [policy(unit, group) for unit, group in pairs]


@pytest.mark.parametrize(
    "unit", [True, 1.5, None, b"x", "", [1.5], [True], [""], [[1]], ["a", None], {"a": 1}]
)
def test_what_is_no_unit_is_refused(unit: Any) -> None:
    with pytest.raises(BadInput, match=r"unit"):
        eh.assign(unit, "young", SHARES)


def test_unknown_groups_and_bad_shares_are_refused() -> None:
    for group, unit in (("Young", 1), (["young", "Young"], [1, 2])):
        with pytest.raises(BadInput, match="there is no group 'Young'"):
            eh.assign(unit, group, SHARES)
    with pytest.raises(BadInput, match="as many as units"):
        eh.assign([1, 2], ["young"], SHARES)
    with pytest.raises(BadInput, match="'ranges' is missing"):
        eh.assign(1, "young", {"salt": SALT, "version": 1})
    for shares, words in (
        ({"g": {"a": 0.5, "b": 0.4}}, "must sum to 1; those of 'g' sum to 0.9"),
        ({"g": {"a": 1.5, "b": -0.5}}, "from 0 to 1; that of 'a' is 1.5"),
        ({"g": {"a": "1"}}, "from 0 to 1"),
        ({"g": {}}, "by group and policy"),
    ):
        with pytest.raises(BadInput, match=words):
            eh.Shares.of(shares, SALT)
    with pytest.raises(BadInput, match="for the groups"):
        SHARES.moved({"young": {"a": 1.0}})
    for ranges in (
        {"g": [["a", 10]]},
        {"g": [["a", 20], ["b", 10]]},
        {"g": "a"},
        {"g": []},
        {},
        {"g": [[1, POINTS]]},
    ):
        with pytest.raises(BadInput, match=r"ranges|ends"):
            eh.Shares(ranges, SALT)
    for salt in ("short", "with:colon", "x" * 33, 12345678):
        with pytest.raises(BadInput, match="salt must be"):
            eh.Shares.of({"g": {"a": 1.0}}, salt)
    with pytest.raises(BadInput, match="dialect must be one of"):
        SHARES.to_sql(dialect="mysql")
    with pytest.raises(BadInput, match="version must be"):
        eh.Shares(SHARES.ranges, SALT, version=0)

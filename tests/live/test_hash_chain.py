"""The hash chain and the one way to write an event."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import BadInput
from evenhand.live.hash_chain import Difference, Head, Record, canonical, extend, genesis, verified

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
BODIES = [b'{"a":1}', b'{"b":2}', b'{"c":3}', b'{"d":4}']


def test_the_first_link_is_the_hash_of_the_name_and_the_next_of_the_one_before_and_the_event() -> None:
    start = genesis("main")
    assert start.hash == hashlib.sha256(b"evenhand journal 1\nmain").digest()
    [first, second] = extend(start, BODIES[:2])
    assert first.hash == hashlib.sha256(start.hash + BODIES[0]).digest()
    assert second.hash == hashlib.sha256(first.hash + BODIES[1]).digest()
    assert [first.seq, second.seq] == [1, 2]


def test_a_whole_chain_verifies() -> None:
    records = extend(genesis("main"), BODIES)
    assert list(verified(records, genesis("main"))) == records


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda r: [*r[:1], r[1]._replace(body=b'{"b":3}'), *r[2:]], 2),
        (lambda r: [*r[:2], r[2]._replace(hash=bytes(32)), *r[3:]], 3),
        (lambda r: r[:1] + r[2:], 2),
        (lambda r: [r[1], r[0], *r[2:]], 1),
        (lambda r: [*r[:2], Record(3, b"{}", bytes(32)), *r[2:]], 3),
        (lambda r: extend(genesis("other"), BODIES), 1),
        (lambda r: [*r[:1], r[1]._replace(body='{"b":2}'), *r[2:]], 2),
    ],
)
def test_the_first_event_that_does_not_follow_is_named(damage: object, named: int) -> None:
    records = damage(extend(genesis("main"), BODIES))  # type: ignore[operator]
    with pytest.raises(Difference) as caught:
        list(verified(records, genesis("main")))
    assert caught.value.seq == named


def test_a_forged_tail_leads_to_another_head() -> None:
    records = extend(genesis("main"), BODIES)
    forged = extend(Head(records[1].seq, records[1].hash), [b'{"c":9}', BODIES[3]])
    assert list(verified(records[:2] + forged, genesis("main")))[-1].hash != records[-1].hash


@given(plain)
def test_canonical_json_reads_back_as_the_same_value_and_is_written_the_same_again(value: object) -> None:
    try:
        text = canonical(value)
    except BadInput:  # half a surrogate pair has no UTF-8
        assert any(0xD800 <= ord(c) < 0xE000 for c in json.dumps(value, ensure_ascii=False))
        return
    assert json.loads(text) == value
    assert canonical(json.loads(text)) == text


def test_the_order_of_keys_does_not_matter_and_floats_are_shortest() -> None:
    assert canonical({"b": 0.1, "a": 1e16}) == canonical({"a": 1e16, "b": 0.1}) == b'{"a":1e+16,"b":0.1}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {"a": [float("nan")]}, {1, 2}])
def test_what_is_not_finite_or_not_plain_is_refused(value: object) -> None:
    with pytest.raises(BadInput):
        canonical(value)

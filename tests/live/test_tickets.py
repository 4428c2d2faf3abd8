"""Tickets as people write them."""

from __future__ import annotations

import pytest

from evenhand.errors import NotFound
from evenhand.live.tickets import ticket_code, ticket_number

PROTOCOL, OTHER = bytes(32), bytes(31) + b"\1"


@pytest.mark.parametrize("number", [1, 17, 10**6, 10**17])
def test_a_ticket_reads_back_in_any_case_and_with_spaces(number: int) -> None:
    code = ticket_code(PROTOCOL, number)
    assert ticket_number(PROTOCOL, code) == ticket_number(PROTOCOL, f" {code.upper()} ") == number


def test_a_ticket_of_another_experiment_is_not_known_here() -> None:
    for number in range(1, 200):
        with pytest.raises(NotFound):
            ticket_number(PROTOCOL, ticket_code(OTHER, number))


def test_one_wrong_digit_in_the_number_is_noticed() -> None:
    for number in range(10, 100):
        code = ticket_code(PROTOCOL, number)
        wrong = f"t{number + 1}{code[code.index('-') :]}"
        with pytest.raises(NotFound):
            ticket_number(PROTOCOL, wrong)


@pytest.mark.parametrize(
    "text", ["", "t1", "17", "t0-0000", "t01-0000", "t1-000", "t1-00000", None, 17, "t" + "9" * 40]
)
def test_what_is_no_ticket_is_not_found(text: object) -> None:
    with pytest.raises(NotFound):
        ticket_number(PROTOCOL, text)

"""A forecast of further samples, and every sentence that states one.

Light enough for a process that only passes forecasts on: nothing here computes one (`forecast` does).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from evenhand.model.frozen_dict import FrozenDict

if TYPE_CHECKING:
    from evenhand.live.projection import View
    from evenhand.procedure.spec import Spec
    from evenhand.procedure.state import State

CHANCES = (0.5, 0.7, 0.8, 0.9)
RUNS, SEED = 200, 0  # continued runs of a forecast, and their seed
MOST_CELLS = 2_000  # of more, a forecast would take the better part of an hour
HEADLINE = (0.8, 0.7, 0.5)  # chances for the one number of a summary, the first that is known
NOT_PAIRED = "how outcomes on one item depend on each other is not simulated"
NOT_COINS = "on shared items only outcomes that are 0 or 1 are forecast"
MOST_PAIRS = 500  # of policies in a group, on shared items: of more, a forecast would take long
MANY_TIMES = 10  # a forecast of more than this many times the samples so far is long

ASSUMES = (
    "The means are drawn from their posterior under Jeffreys' prior, each cell separately; "
    "if true differences are mostly small, it takes longer."
)
ASSUMES_ON_ITEMS = (
    "The means are drawn from their posterior under Jeffreys' prior, and outcomes on one item depend on each "
    "other as strongly as in these data; if true differences are mostly small, it takes longer."
)
NOT_ASKED = "none was asked for"
IN_PROGRESS = "it is being made; look again in a moment"

NOTHING: Mapping[float, int | None] = dict.fromkeys(CHANCES, 0)


@dataclass(frozen=True)
class Suggestion:
    """An indifference for a near tie, and what it saves at the estimates: T* and the samples, least means."""

    indifference: float
    acceptable: tuple[str, ...]  # the answers that it makes acceptable
    time: float | None  # None where the estimates are tied exactly
    time_with: float
    samples: float | None  # the least mean number of samples at the study's risk; None where time is
    samples_with: float

    def sentence(self) -> str:
        """Return the proposal, and what it would save."""
        names = " or ".join(self.acceptable)
        before = "infinity" if self.samples is None else f"{rounded(self.samples):,}"
        return (
            f"Some policies are nearly tied. Would {names} do? With indifference = {self.indifference:g} the "
            f"least number of samples on average would fall from {before} to {rounded(self.samples_with):,} "
            "at these estimates."
        )


@dataclass(frozen=True)
class Forecast:
    """Further samples by which this share of continued runs has decided, and where those samples go."""

    samples: int  # outcomes it starts from; `more` counts from here
    runs: int = 0  # continued runs; 0 where nothing had to be simulated
    # None: not within the horizon, or no forecast was made
    more: Mapping[float, int | None] = field(default_factory=lambda: dict.fromkeys(CHANCES))
    unfinished: float | None = None  # share of runs undecided at the horizon
    horizon: int | None = None  # how many further samples the forecast looked ahead
    next: tuple[tuple[float, ...], ...] | None = None  # K x L, shares of the further samples
    why_none: str = ""  # why no forecast was made, completing "No forecast: ..."; empty where one was
    suggestion: Suggestion | None = None  # where a near tie is the reason for a long way to a decision
    items: Mapping[float, int | None] | None = None  # `more` in items, where several policies answer one

    def __post_init__(self) -> None:
        object.__setattr__(self, "more", FrozenDict(cast(Any, self.more)))
        if self.items is not None:
            object.__setattr__(self, "items", FrozenDict(cast(Any, self.items)))

    @property
    def is_long(self) -> bool:
        """Return whether the samples so far, many times over, are not sure to decide."""
        more = self.more[HEADLINE[0]]
        return self.runs > 0 and (more is None or more > MANY_TIMES * self.samples)

    def summary(self, samples: int | None = None) -> str:
        """Return one sentence with one number, empty where there is none to give.

        `samples`: how many outcomes there are now, where that may differ from when the forecast was made.
        """
        if not self.runs:
            return ""
        when = self._when(samples)
        for chance in HEADLINE:
            if (more := self.more[chance]) is not None:
                about = f"{when}About {rounded(more):,} more samples{self._on_items(chance)}"
                return f"{about} ({chance:.0%} chance to finish by then).{self._proposal()}"
        return f"{when}Even {self.horizon:,} more samples would probably not decide.{self._proposal()}"

    def chances(self, samples: int | None = None) -> str:
        """Return the further samples for every chance, or why there is no forecast."""
        if self.why_none:
            return f"No forecast: {self.why_none}."
        if not self.runs:
            return ""
        known = [f"{chance:.0%} within {more:,}" for chance, more in self.more.items() if more is not None]
        beyond = [f"{chance:.0%}" for chance, more in self.more.items() if more is None]
        parts = [f"{', '.join(known)} more samples"] if known else []
        if beyond:
            parts.append(f"{', '.join(beyond)} not within {self.horizon:,}{'' if known else ' more samples'}")
        return f"{self._when(samples)}Chance to finish: {'; '.join(parts)}.{self._items_sentence()}"

    def rows(self) -> list[tuple[str, str]]:
        """Return a table of the further samples for every chance."""
        return [
            (f"{chance:.0%}", f"not within {self.horizon:,}" if more is None else f"{more:,}")
            for chance, more in self.more.items()
        ]

    def basis(self) -> str:
        """Return what the numbers rest on; empty where there are none."""
        if not self.runs:
            return ""
        assumes = ASSUMES if self.items is None else ASSUMES_ON_ITEMS
        return f"This forecast rests on {self.runs:,} runs continued from these data. {assumes}"

    def statement(self, samples: int | None = None) -> str:
        """Return the chances and what they rest on."""
        return " ".join(part for part in (self.chances(samples), self.basis()) if part)

    def to_dict(self, samples: int | None = None) -> dict[str, Any]:
        """Return the keys that `status --json` and `judge --json` share."""
        return {
            "more": more_by_name(self.more),
            "horizon": self.horizon,
            "unfinished": self.unfinished,
            "forecast": {
                "samples": self.samples,
                "runs": self.runs,
                "statement": self.statement(samples),
                "why_none": self.why_none or None,
                **({} if self.items is None else {"items": more_by_name(self.items)}),
                **({} if self.suggestion is None else {"suggestion": vars(self.suggestion)}),
            },
        }

    def _on_items(self, chance: float) -> str:
        """Return on how many items the samples for this chance are, where several policies answer one."""
        items = None if self.items is None else self.items[chance]
        return "" if items is None else f" on {rounded(items):,} items"

    def _items_sentence(self) -> str:
        """Return the further items for every chance that is known, where several policies answer one."""
        found = {} if self.items is None else self.items
        known = [f"{chance:.0%} within {items:,}" for chance, items in found.items() if items is not None]
        return f" In items: {', '.join(known)}." if known else ""

    def _proposal(self) -> str:
        return "" if self.suggestion is None else f" {self.suggestion.sentence()}"

    def _when(self, samples: int | None) -> str:
        return "" if samples in (None, self.samples) else f"Forecast at {self.samples:,} samples: "


def more_by_name(more: Mapping[float, int | None]) -> dict[str, int | None]:
    """Return further samples by chance as JSON writes them."""
    return {f"{chance:g}": count for chance, count in more.items()}


def settled_forecast(view: View) -> Forecast | None:
    """Return the forecast of an experiment that has ended, or that cannot have one; None otherwise."""
    samples = int(view.state.n.sum())
    if view.stop is not None and view.stop.why == "decided":
        return Forecast(samples, more=NOTHING)
    if view.stop is not None and view.stop.why == "futile":
        return Forecast(samples, why_none="the experiment ended without a verdict by its futility rule")
    if view.stop is not None:
        return Forecast(samples, why_none=f"all {samples:,} samples are used and nothing is decided")
    if view.closed:
        return Forecast(samples, why_none="the experiment was closed without a decision")
    if view.protocol.spec.shared_items and view.protocol.procedure.interval is not None:
        return Forecast(samples, why_none=NOT_PAIRED)
    why = why_no_forecast(view.protocol.spec, view.state)
    return Forecast(samples, why_none=why) if why else None


def why_no_forecast(spec: Spec, state: State) -> str:
    """Return why these outcomes have no forecast, completing "No forecast: ..."; empty where they do."""
    from evenhand.procedure.spec import BUDGET  # heavy for a command that only prints its help

    samples, cells, empty = int(state.n.sum()), state.n.size, int((state.n == 0).sum())
    if spec.shared_items and (spec.bounded or not bool((spec.phi == 1.0).all())):
        return NOT_COINS
    pairs = state.n.shape[1] * (state.n.shape[1] - 1) // 2 * state.n.shape[0]
    if spec.shared_items and pairs > MOST_PAIRS:
        return (
            f"there are {pairs:,} pairs of policies, each group counted, and on shared items forecasts are "
            f"made for up to {MOST_PAIRS:,}"
        )
    if cells > MOST_CELLS:
        return f"there are {cells:,} cells, and forecasts are made for up to {MOST_CELLS:,}"
    if empty > 0:
        return f"{empty} of {cells} cells have no outcome yet"
    if (lacking := int((state.rail_n == 0).any(axis=0).sum())) > 0:
        return f"{lacking} of {cells} cells have no outcome of some guard-rail yet"
    unknown = state.rail_n[spec.guardrails.unknown_variance]
    if (spec.unknown_variance and state.n.max() < 2) or any(counts.max() < 2 for counts in unknown):
        return "no cell has two outcomes, so nothing is known of their variance"
    if samples >= spec.cap and spec.stopping != BUDGET:
        return f"there are {samples:,} samples and max_samples allows {spec.cap:,}; raise it to look further"
    return ""


def rounded(samples: float) -> int:
    """Return a number of samples to two digits: a forecast has no more."""
    return int(float(f"{samples:.2g}"))

"""Scans and calibrations over a box in sentences, for the terminal, notebooks and pages."""

from __future__ import annotations

from evenhand.model.phrases import quantity
from evenhand.simulation.box import Box
from evenhand.simulation.box_calibration import BoxCalibration
from evenhand.simulation.scan import Scan, ScanPoint


def scan(found: Scan) -> list[str]:
    """Return the largest error, the smallest power and the most samples of a scan as sentences."""
    error, power, samples = (found.worst(of) for of in ("error", "power", "samples"))
    said = [_opening(found)]
    if any(point.error.rate > 0 for point in found.points):
        where = place(found.box, error)
        said.append(
            f"The largest share of wrong answers is {error.error.rate:.2%} (95% interval "
            f"{error.error.low:.2%} to {error.error.high:.2%}), where {where}; "
            f"the allowed risk is {found.study.procedure.delta:.2%}."
        )
    else:
        said.append(
            f"No run gave a wrong answer; at each point the chance of one is at most {error.error.high:.2%} "
            f"(95% interval). The allowed risk is {found.study.procedure.delta:.2%}."
        )
    said.append(
        f"A right answer is least likely where {place(found.box, power)}: {power.power.rate:.1%} "
        f"({power.power.low:.1%} to {power.power.high:.1%}); "
        f"{power.undecided.rate:.1%} of the runs there are undecided."
    )
    said.append(
        f"Most samples are needed where {place(found.box, samples)}: {samples.samples.mean:,.0f} on average."
    )
    return said + _searched(found)


def box_calibration(found: BoxCalibration) -> list[str]:
    """Return what is proved about a threshold on a box, as sentences."""
    worst, cells = found.worst, " and ".join(one.label for one in found.box)
    proved = (
        f"With the threshold {found.threshold:g} the probability of a wrong answer is at most "
        f"{found.delta:g} everywhere in the box of {cells} (95% confidence in the simulation)."
    )
    scope = (
        "This is proved for this design: its family, its sampling rule, the other means as given, and runs "
        f"of up to {found.horizon:,} samples."
    )
    hardest = (
        f"The part of the box that needs most has {_ends(found.box, worst.low, worst.high)}; "
        f"the right answer there is {worst.answer or 'none'}."
    )
    use = (
        f"Use it as Procedure(stopping=Calibrated({found.threshold:g}), delta={found.delta:g}, "
        f"max_samples={found.horizon})."
    )
    return [proved, scope, hardest, use]


def place(box: Box, point: ScanPoint) -> str:
    """Return the means of a point as part of a sentence."""
    return " and ".join(f"{one.label} is {value:.4g}" for one, value in zip(box, point.means, strict=True))


def _opening(found: Scan) -> str:
    ranges = " and ".join(
        f"{one.label} from {one.low:g} to {one.high:g}"
        if one.low < one.high
        else f"{one.label} at {one.low:g}"
        for one in found.box
    )
    points = quantity(len(found.points), "point")
    return (
        f"{ranges}: {points}, {found.replications:,} runs each, of up to "
        f"{found.study.procedure.max_samples:,} samples."
    )


def _searched(found: Scan) -> list[str]:
    if found.found is None:
        return []
    point = found.found
    values = {
        "error": f"{point.error.rate:.2%} wrong answers (95% interval {point.error.low:.2%} to "
        f"{point.error.high:.2%})",
        "power": f"{point.power.rate:.1%} right answers (95% interval {point.power.low:.1%} to "
        f"{point.power.high:.1%})",
        "samples": f"{point.samples.mean:,.0f} samples on average",
    }
    where, value = place(found.box, point), values[str(found.searched)]
    return [f"The search for the worst {found.searched} ended where {where}: {value}, in new runs."]


def _ends(box: Box, low: tuple[float, ...], high: tuple[float, ...]) -> str:
    return " and ".join(
        f"{one.label} from {a:.4g} to {b:.4g}" if a < b else f"{one.label} at {a:.4g}"
        for one, a, b in zip(box, low, high, strict=True)
    )

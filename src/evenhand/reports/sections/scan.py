"""The section about a scan: operating characteristics over a box of means."""

from __future__ import annotations

from evenhand.reports import scan_sentences
from evenhand.reports.captioned_figures import scan_picture
from evenhand.reports.page_parts import Section
from evenhand.simulation.scan import Scan
from evenhand.study import Study


def scan_section(found: Scan) -> tuple[Section, Study]:
    """Return the section about a scan, and its study."""
    first, *rest = scan_sentences.scan(found)
    picture = scan_picture(found)
    worst = found.worst()
    box = " ".join(
        f'--box "{one.policy}/{one.group}={one.low:g}:{one.high:g}:{one.points}"' for one in found.box
    )
    search = "" if found.searched is None else f" --worst {found.searched}"
    numbers = {key: value for key, value in found.to_dict().items() if key != "seconds"}
    section = Section(
        kind="scan",
        title="Operating characteristics over a box of means",
        lead=(first,),
        notes=tuple((sentence,) for sentence in rest),
        pictures=(picture,),
        tables=(picture.table,),
        numbers=numbers,
        highlights=(
            ("points", f"{len(found.points):,}"),
            ("largest error", f"{worst.error.rate:.2%}"),
            ("smallest power", f"{found.worst('power').power.rate:.1%}"),
            ("most samples", f"{found.worst('samples').samples.mean:,.0f}"),
        ),
        facts=(("seed of the scan", str(found.seed)), ("replications at a point", f"{found.replications:,}")),
        code=(
            f"evenhand scan study.toml {box} --replications {found.replications} --seed {found.seed} "
            f"--max-samples {found.study.procedure.max_samples}{search}"
        ),
    )
    return section, found.study

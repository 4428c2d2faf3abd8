"""The paper's experiments with a handful of runs: who is in which table and picture, with how many runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import fisher_exact

from evenhand.cli.paper import paper_module

SAME, CERTIFIED = "evenhand, same threshold", "evenhand, certified"
CONSTANT, CONVERGING = "Algorithm 1, constant step", "Algorithm 1, converging step"


@pytest.fixture(scope="module")
def paper() -> Any:
    return paper_module()


@pytest.fixture(scope="module")
def hard_and_soft(paper: Any) -> Any:
    """Experiment (c), with four runs each and two of the constant step."""
    return paper.EXPERIMENTS["c"].section(paper.Setting(4, 2, 1, 2), lambda _: None)


def test_pictures_of_c_show_where_evenhands_own_samples_went(hard_and_soft: Any) -> None:
    names = [picture.name for picture in hard_and_soft.pictures if picture.name.startswith("allocation")]
    assert names == [
        f"allocation-{where}-{who}"
        for where in ("with-hard-floors", "with-gamma-10")
        for who in ("evenhand-same-threshold", "evenhand-certified")
    ]


def test_the_heat_map_holds_the_shares_of_its_method(paper: Any, hard_and_soft: Any) -> None:
    picture = next(p for p in hard_and_soft.pictures if p.name.endswith("hard-floors-evenhand-certified"))
    kept = hard_and_soft.numbers["hard"][CERTIFIED]["allocation"]
    shares = {(row[0], row[1]): row[2] for row in picture.table.rows}
    policies = [f"a{k}" for k in range(1, 11)]
    for k, policy in enumerate(policies):
        for g in range(3):
            assert shares[policy, f"group {g + 1}"] == pytest.approx(kept[k][g])


def test_columns_say_who_ran_fewer_replications(hard_and_soft: Any) -> None:
    samples = hard_and_soft.tables[0]
    assert samples.columns[3:7] == (SAME, CERTIFIED, CONVERGING, f"{CONSTANT} (2 runs)")
    counts = {name: kept["replications"] for name, kept in hard_and_soft.numbers["gamma = 5"].items()}
    assert counts == {SAME: 4, CERTIFIED: 4, CONVERGING: 4, CONSTANT: 2}


def test_algorithm_1_is_timed_apart_from_the_rest(paper: Any) -> None:
    setting = paper.Setting(
        2, 2, seconds={SAME: 1.0, CERTIFIED: 2.0, "uniform": 4.0, CONSTANT: 8.0, CONVERGING: 16.0}
    )
    assert paper.run_times(setting) == (7.0, 24.0)


@pytest.mark.parametrize(
    ("errors", "printed", "theirs"),
    [(0, "1.0000", 0), (7, "1.000", 1), (11, "0.998", 7), (25, "0.991", 28), (2, "0.9997", 1)],
)
def test_whether_evenhand_is_less_right_is_judged_by_fishers_exact_test(
    paper: Any, errors: int, printed: str, theirs: int
) -> None:
    digits = len(printed) - 2
    assert f"{1 - theirs / 3000:.{digits}f}" == printed
    assert f"{1 - (theirs + 1) / 3000:.{digits}f}" != printed
    _, p = fisher_exact([[errors, 2000 - errors], [theirs, 3000 - theirs]], alternative="greater")
    assert paper.methods.less_right(errors, 2000, printed) == pytest.approx(p)


def test_the_ratio_to_the_published_samples_carries_both_errors(paper: Any) -> None:
    samples = np.array([70.0, 80.0] * 50)
    assert paper.methods.against(samples, 100, 0) == "0.750 ± 0.005"  # 5 / sqrt(100), of 100
    assert paper.methods.against(samples, 100, 4) == "0.750 ± 0.030"  # 4% of it


def test_the_large_study_draws_as_many_policies_from_each_range_as_its_mix_says(paper: Any) -> None:
    means = paper.instances.OperationalMeans(50, (0.2, 0.7))(1, 3)
    feasible, overall = (means >= 0.2).all(axis=1), means.mean(axis=1)
    assert means[0].tolist() == [0.45] * 3
    assert feasible.sum() == 1 + 10
    assert (~feasible & (overall > 0.3)).sum() == 34
    assert (~feasible & (overall < 0.3)).sum() == 5

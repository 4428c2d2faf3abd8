"""Choose a classifier with a floor on the accuracy in every group, using few labels.

There are four fitted models and a pool of unlabelled cases from two sites. Checking a prediction costs a
label. evenhand chooses which cases to label, and stops when it has certified the model with the best accuracy
among those that reach 72% at both sites.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh

FEATURES = ["age", "dose", "marker"]


def cases(count: int, seed: int) -> pl.DataFrame:
    """Return patients of two sites; at the smaller site the marker has the opposite effect."""
    rng = np.random.default_rng(seed)
    site = np.where(rng.random(count) < 0.75, "north", "south")
    age, dose, marker = rng.normal(size=(3, count))
    sign = np.where(site == "north", 1.0, -1.0)
    well = 1.6 * age + 0.4 * dose + 0.9 * sign * marker + 0.3 * rng.normal(size=count) > 0
    return pl.DataFrame({"site": site, "age": age, "dose": dose, "marker": marker, "well": well.astype(int)})


def main() -> eh.Verdict:
    train, pool = cases(4_000, seed=1), cases(6_000, seed=2)
    x, y = train.select(FEATURES).to_pandas(), train["well"].to_numpy()
    candidates = {
        "all features": LogisticRegression().fit(x, y),
        "shallow tree": DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y),
        "most frequent class": DummyClassifier().fit(x, y),
        "age and dose": _OnlySome(LogisticRegression().fit(x[["age", "dose"]], y), ["age", "dose"]),
    }
    result = eh.evaluate(
        candidates, pool.to_pandas(), groups="site", target="well", features=FEATURES, at_least=0.72, seed=3
    )
    print("\n".join(result.words()))
    eh.assert_meets(result)
    return result.verdict


class _OnlySome:
    """A model that uses only some of the features."""

    def __init__(self, model: LogisticRegression, columns: list[str]) -> None:
        self.model, self.columns = model, columns

    def predict(self, x: object) -> np.ndarray:
        return self.model.predict(x[self.columns])  # type: ignore[index]


if __name__ == "__main__":
    main()

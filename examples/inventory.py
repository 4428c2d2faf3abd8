"""Simulation optimisation: policies are parameters of a simulator, groups kinds of stores.

Every store of a chain must use the same order-up-to level. Which level has the highest profit over the chain,
if no kind of store may lose money? A sample is one simulated month. Its profit is a sum over thirty days, so
it is close to Gaussian; its variance is unknown.
"""

from __future__ import annotations

import numpy as np

import evenhand as eh

LEVELS = (12, 22, 35, 50)
STORES = {"city": (0.6, 32.0), "village": (0.4, 9.0)}  # share of the stores, customers per day
PRICE, HOLDING, DAYS = 3.0, 0.55, 30
COST = (1.7, 2.3)  # range of the daily purchase price of a unit


def month(level: int, customers: float, rng: np.random.Generator) -> float:
    """Return the profit of a month: sales minus purchase cost minus holding cost."""
    demand = rng.poisson(customers, DAYS)
    sold = np.minimum(demand, level)
    profit = (PRICE - rng.uniform(*COST, DAYS)) * sold - HOLDING * (level - sold)
    return float(profit.sum())


def main() -> eh.Status:
    shares = {name: share for name, (share, _) in STORES.items()}
    names = {f"order up to {level}": level for level in LEVELS}
    problem = eh.Problem(list(names), shares, eh.GaussianUnknown(), eh.Floors(0.0))
    rng = np.random.default_rng(11)
    procedure = eh.Procedure(delta=0.05, initial=5, batch=20)
    with eh.Experiment.create(":memory:", problem, procedure, seed=11) as study:
        while asks := study.ask(20):
            study.tell_all([(ask, month(names[ask.policy], STORES[ask.group][1], rng), None) for ask in asks])
        status = study.status()
    print(status.sentence)
    for policy in status.policies:
        print(f"{policy.policy}: {policy.mean:,.0f} a month on average, {policy.verdict}")
    return status


if __name__ == "__main__":
    main()

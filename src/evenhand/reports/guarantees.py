"""The guarantee of each stopping rule and of a verdict on existing data, with assumptions and sources."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from evenhand.model.problem import Problem
from evenhand.procedure.compile_spec import wrong_statements
from evenhand.procedure.outcome_order import depends_on_order
from evenhand.procedure.spec import Budget, Calibrated, Procedure, is_unproven
from evenhand.verdicts.verdict_sentences import holds_for_one_look, rows_in_order

if TYPE_CHECKING:
    from evenhand.verdicts.judge import Verdict

SOURCES = {
    "paper": (
        "T. Zhu, Y. Wu, Z. Zheng. Selection of the Best Policy under Fairness Constraints for Subpopulations."
    ),
    "ville": "J. Ville. Étude critique de la notion de collectif. Gauthier-Villars, 1939.",
    "ramdas": (
        "A. Ramdas, P. Grünwald, V. Vovk, G. Shafer. Game-theoretic statistics and safe anytime-valid "
        "inference. Statistical Science 38(4), 2023."
    ),
    "howard": (
        "S. R. Howard, A. Ramdas, J. McAuliffe, J. Sekhon. Time-uniform, nonparametric, nonasymptotic "
        "confidence sequences. Annals of Statistics 49(2), 2021."
    ),
    "kaufmann": (
        "E. Kaufmann, W. M. Koolen. Mixture martingales revisited with applications to sequential tests and "
        "confidence intervals. Journal of Machine Learning Research 22(246), 2021."
    ),
    "garivier": "A. Garivier, E. Kaufmann. Optimal best arm identification with fixed confidence. COLT 2016.",
    "qin": (
        "C. Qin, W. You. Dual-directed algorithm design for efficient pure exploration. "
        "Operations Research, 2025."
    ),
    "russac": (
        "Y. Russac, C. Katsimerou, D. Bohle, O. Cappé, A. Garivier, W. M. Koolen. A/B/n testing with control "
        "in the presence of subpopulations. NeurIPS 2021."
    ),
    "clopper": (
        "C. J. Clopper, E. S. Pearson. The use of confidence or fiducial limits illustrated in the case of "
        "the binomial. Biometrika 26(4), 1934."
    ),
    "mickey": (
        "M. R. Mickey, M. B. Brown. Bounds on the distribution functions of the Behrens-Fisher statistic. "
        "Annals of Mathematical Statistics 37(3), 1966."
    ),
    "berger": (
        "R. L. Berger, D. D. Boos. P values maximized over a confidence set for the nuisance parameter. "
        "Journal of the American Statistical Association 89(427), 1994."
    ),
}

ASSUMPTIONS = {
    "gaussian": "outcomes are Gaussian (or sub-Gaussian) with the stated standard deviation",
    "gaussian-unknown": "outcomes are Gaussian with a constant variance in each cell, known or not",
    "bernoulli": "outcomes are 0 or 1",
    "binomial": "outcomes count successes in the stated number of trials",
    "poisson": "outcomes are Poisson counts",
    "exponential": "outcomes are exponential",
    "gamma": "outcomes follow a gamma law with the stated shape",
    "bounded": "outcomes lie between the stated limits, whatever their distribution",
}

MODES = {
    "active": "The procedure chooses policy and group of every sample",
    "proportional": "Groups arrive by themselves; the procedure chooses the policy when the group is known",
    "agnostic": "The procedure chooses the policy; the group is known only with the outcome",
}


SCOPE = (
    "The guarantee is about the groups and the outcome named here. It says nothing about groups that were "
    "not named, about other outcomes, or about a population with other shares."
)
ITEMS_ASSUME = (
    "Outcomes on different items are independent of each other; those of several policies on one item need "
    "not be. Which policies answer an item was decided before any outcome on it was seen."
)
ITEMS_IN_ORDER = "The rows name the items in the order in which they were drawn."
MAX_LISTED = 160  # characters of the shares of all groups in a sentence


class Methods(NamedTuple):
    """The one-line guarantee, the text (blank lines between paragraphs), the sources, the assumptions."""

    guarantee: str
    text: str
    sources: tuple[str, ...]
    assumptions: tuple[str, ...] = ()


def methods(problem: Problem, procedure: Procedure) -> Methods:
    """Return how the answer is reached, and what is claimed for it."""
    rule = _rule(problem, procedure)
    sampling = f"{MODES[problem.mode]}, by the rule {procedure.sampling_name}."
    asked = " ".join(part for part in (_question(problem), _acceptable(procedure)) if part)
    text = f"{asked} {sampling}\n\n{rule.text}\n\n{SCOPE}"
    modes = () if problem.mode == "active" else ("russac",)
    represent = "The people who are sampled in a group represent the group."
    found = (*_outcomes_assume(problem), represent, *_population_assumes(problem))
    return Methods(rule.guarantee, text, ("paper", *rule.sources, *modes), found)


def judged_methods(verdict: Verdict) -> Methods:
    """Return how existing data were judged, what is claimed of the verdict, and what that assumes."""
    problem, procedure = verdict.problem, verdict.procedure
    if verdict.exact:
        rule = _exact()
    elif verdict.fixed:
        rule = _fixed(problem, procedure.delta)
    else:
        rule = _rule(problem, procedure)
        if holds_for_one_look(verdict):
            rule = rule._replace(guarantee=_once(procedure.delta))
    asked = " ".join(part for part in (_question(problem), _acceptable(procedure)) if part)
    text = f"{asked} {_judged(verdict)}\n\n{rule.text}\n\n{SCOPE}"
    return Methods(rule.guarantee, text, ("paper", *rule.sources), _judged_assume(verdict))


def _judged(verdict: Verdict) -> str:
    """Return what was judged."""
    name = verdict.source.data_file if verdict.source is not None else ""
    where = f" of {name}" if name else ""
    return (
        f"{verdict.samples:,} outcomes in {verdict.rows:,} rows{where} were judged. They were collected "
        "before: evenhand chose none of these samples."
    )


def _judged_assume(verdict: Verdict) -> tuple[str, ...]:
    problem = verdict.problem
    if verdict.exact:
        return (
            "Every row is the outcome of its policy on its item, and the pool has no other items.",
            *_population_assumes(problem),
        )
    found = list(_outcomes_assume(problem, verdict.shared_items is not None))
    if verdict.pool is None:
        found.append(
            "Who received which policy did not depend on the outcome to be expected, as in a random "
            "assignment, and those in the data represent their group. The data cannot show this."
        )
    else:
        found.append("The items were drawn from the pool at random, each at most once.")
    if verdict.fixed:
        found.append(
            "The size of every cell was fixed before any outcome was seen, and this is the only look."
        )
    elif verdict.shared_items is not None and (verdict.shared_items or verdict.pool is not None):
        found.append(ITEMS_IN_ORDER)
    elif depends_on_order(problem, verdict.procedure):
        in_order = rows_in_order(verdict)
        found.append(f"{in_order[0].upper()}{in_order[1:]}.")
    return (*found, *_population_assumes(problem))


def _exact() -> Methods:
    return Methods(
        "Exact: every policy answered every item of the pool, so the answer about this pool has no "
        "risk. It says nothing about other items.",
        "Every policy answered every item of the pool. The means are counted, not estimated.",
        (),
    )


def _once(delta: float) -> str:
    return (
        f"Certified: the probability of a wrong answer is at most {delta:.6g}, for one look at the data. "
        "Some items were not answered by every policy."
    )


def _fixed(problem: Problem, delta: float) -> Methods:
    """Return how a fixed sample is judged once, and what is claimed for it."""
    many = wrong_statements(problem)
    wrong = "policies to classify" if problem.goal == "screen" else "wrong answers"
    if problem.max_policies is not None:
        wrong = f"wrong statements about {problem.max_policies} policies that join or leave"
    text = (
        "Each of the conditions that the answer rests on is tested by a p-value that holds at every size: "
        "exact for a single cell; for comparisons of several cells exact or a proven upper bound. "
        f"There are {many} {wrong}, so every test has level {delta:.6g}/{many} = {delta / many:.4g}, "
        f"that is {math.log(many / delta):.4g} nats of evidence -ln p."
    )
    return Methods(
        f"One look at a fixed sample: the probability of a wrong answer is at most {delta:.6g} if the size "
        "of every cell was fixed before any outcome was seen. It does not hold for data watched as they "
        "came.",
        text,
        ("clopper", "mickey", "berger"),
    )


def _acceptable(procedure: Procedure) -> str:
    """Return which answers are right besides the best; empty if none is."""
    parts = []
    if procedure.indifference:
        parts.append(f"any policy within {procedure.indifference:g} of the best overall mean is an answer")
    if procedure.tolerance:
        parts.append("an answer may miss its own bounds by the tolerance; its rivals may not")
    found = ", and ".join(parts)
    return f"{found[0].upper()}{found[1:]}." if found else ""


def _question(problem: Problem) -> str:
    required = problem.describe_requirement()
    if problem.goal == "screen":
        return f"The question: which of {len(problem.policies)} policies {required}, and which do not?"
    return (
        f"The question: which of {len(problem.policies)} policies has the best mean outcome over the whole "
        f"population ({len(problem.groups)} groups, weighted by their shares) among those that "
        f"{required}?"
    )


def _outcomes_assume(problem: Problem, with_items: bool = False) -> tuple[str, ...]:
    """Return what is assumed of the outcomes, a sentence each."""
    rails = [
        f"{rail.name}: {ASSUMPTIONS[rail.family.name]}; missing outcomes are missing independently of "
        "their values."
        for rail in problem.guardrails
    ]
    law = ASSUMPTIONS[problem.family.name]
    return (
        f"{law[0].upper()}{law[1:]}.",
        *rails,
        ITEMS_ASSUME if with_items else "Outcomes are independent of each other.",
        "The mean of a cell does not change, and an outcome does not depend on when it was asked for.",
        "No outcome was left out, added or changed because of its value.",
    )


def _population_assumes(problem: Problem) -> tuple[str, ...]:
    found = ", ".join(f"{name} {share:.4g}" for name, share in problem.groups.items())
    if len(found) > MAX_LISTED:
        return ("The groups have the shares of the population that the study states.",)
    return (f"The groups have these shares of the population: {found}.",)


def _rule(problem: Problem, procedure: Procedure) -> Methods:
    """Return what the stopping rule guarantees, the reason, and the sources."""
    stopping = procedure.stopping
    if isinstance(stopping, Budget):
        return _budget(stopping)
    if isinstance(stopping, Calibrated):
        return _calibrated(stopping, procedure.delta)
    if stopping == "stylised":
        return _stylised(procedure.delta)
    if is_unproven(problem, procedure):
        return _unproven()
    if stopping == "kaufmann-koolen":
        return _kaufmann_koolen(procedure.delta)
    return _certified(problem, procedure.delta)


def _certified(problem: Problem, delta: float) -> Methods:
    many = wrong_statements(problem)
    if problem.goal == "screen":
        return _with_changes(problem, _screening(many, delta))
    if problem.max_policies is not None:
        return _with_changes(problem, _joining(problem.max_policies, many, delta))
    return Methods(
        _always(delta),
        "For every way the answer could be wrong there is an e-process: a betting score whose expected value "
        "is at most 1 if that way is the truth, however samples are chosen and at any number of looks. The "
        f"answer is given when each of them reaches {many}/{delta:.6g} = {many / delta:,.6g}, that is "
        f"{math.log(many / delta):.4g} nats. There are {many} wrong answers, and by Ville's inequality each "
        f"is ever given with probability at most {delta:.6g}/{many}.",
        ("ville", "ramdas", "howard", "qin"),
    )


def _joining(most: int, many: int, delta: float) -> Methods:
    """Return the guarantee where policies may join and leave."""
    relative = "" if many == most * most else ", and one for each bound relative to the control"
    return Methods(
        _always(delta),
        "For every pair of policies there is an e-process against the second being at least as good as the "
        "first, and for every policy there are some against its meeting, or missing, its "
        "requirement: betting scores whose expected value is at most 1 if that is the truth, however samples "
        "are chosen and at any number of looks. The answer is given when each of them, for the policies "
        "present, "
        f"reaches {many}/{delta:.6g} = {many / delta:,.6g}, that is {math.log(many / delta):.4g} nats. Up to "
        f"{most} policies can ever take part, so there are {many} wrong statements: one for each ordered "
        f"pair and one for each policy{relative}. By Ville's inequality each is ever made with probability "
        f"at most {delta:.6g}/{many}.",
        ("ville", "ramdas", "howard", "qin"),
    )


def _with_changes(problem: Problem, rule: Methods) -> Methods:
    """Return the guarantee with what it says about policies that join and leave."""
    if problem.max_policies is None:
        return rule
    return rule._replace(text=f"{rule.text}\n\n{CHANGES}")


CHANGES = (
    "The answer is about the policies that are present when it is given, and nothing is claimed about a "
    "policy that has left. When policies join or leave, and which, may depend on all outcomes so far."
)


def _screening(many: int, delta: float) -> Methods:
    return Methods(
        f"Certified: the probability that any policy is ever classified wrongly is at most {delta:.6g}, for "
        "any number of looks and any way of choosing the next sample.",
        "For every condition of a policy there are two e-processes, one against the condition and one "
        "against its opposite. A policy is allowed when those against a violation of each of its conditions "
        f"reach {many}/{delta:.6g} = {many / delta:,.6g}, that is {math.log(many / delta):.4g} nats; it "
        "fails when the average of those against its conditions does. By Ville's inequality each policy is "
        f"ever classified wrongly with probability at most {delta:.6g}/{many}.",
        ("ville", "ramdas", "howard", "qin"),
    )


def _kaufmann_koolen(delta: float) -> Methods:
    return Methods(
        _always(delta),
        "The likelihood-ratio evidence of each comparison must pass the bound of Kaufmann and Koolen "
        "for the cells of that comparison, with a union over the possible wrong answers.",
        ("kaufmann", "garivier"),
    )


def _unproven() -> Methods:
    return Methods(
        "No guarantee: the threshold of Kaufmann and Koolen is proved for a variance that is known, and here "
        "it was estimated.",
        "The likelihood-ratio evidence of each comparison, with estimated variances, must pass the bound of "
        "Kaufmann and Koolen for known ones. The pair is refused for new experiments.",
        ("kaufmann", "garivier"),
    )


def _stylised(delta: float) -> Methods:
    return Methods(
        f"Heuristic: the threshold ln((1 + ln t)/{delta:.6g}) is customary; no proof bounds its error by "
        f"{delta:.6g}.",
        "After t samples the likelihood-ratio evidence of the weakest comparison must pass "
        "ln((1 + ln t)/delta).",
        ("garivier",),
    )


def _calibrated(stopping: Calibrated, delta: float) -> Methods:
    return Methods(
        "By simulation: in the scenarios, or the box of means, that it was calibrated on, a wrong answer is "
        f"given with probability at most {delta:.6g}, up to the simulation's own error. Nothing is claimed "
        "beyond those.",
        f"The likelihood-ratio evidence must pass {stopping.threshold:.4g} nats above an allowance for "
        "repeated looks that grows slowly with the samples; the threshold was found by simulation.",
        ("garivier",),
    )


def _budget(stopping: Budget) -> Methods:
    return Methods(
        f"No error guarantee: sampling ends after {stopping.samples:,} samples, with the best estimate.",
        "Sampling ends at a fixed budget. The evidence reached is reported and may be looked at any time, "
        "but nothing makes it large.",
        ("ramdas",),
    )


def _always(delta: float) -> str:
    return (
        f"Certified: the probability that a wrong answer is ever given is at most {delta:.6g}, for any "
        "number of looks and any way of choosing the next sample."
    )

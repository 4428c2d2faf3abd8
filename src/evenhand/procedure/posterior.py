"""The leader by a draw of all means from the posterior.

Only the leader of the draw matters. The random words of a policy bound its drawn score from above before any
of them is converted to a mean, so most policies are skipped after computing their words only. The result is
the same as if all means had been drawn.
"""

from __future__ import annotations

import math

import numpy as np

from evenhand.compile import kernel, uncompiled
from evenhand.model.region import BOX, ROUNDING
from evenhand.model.unit_families import BERNOULLI, GAUSSIAN, POISSON
from evenhand.procedure.acceptable import by_draw, by_estimates, easiest, is_acceptable, update_summary
from evenhand.procedure.estimates import dispersion, rail_dispersion
from evenhand.procedure.guardrails import control_of, has_control, meets_all
from evenhand.procedure.likelihood_bounds import span_of
from evenhand.procedure.randomness import DECISIONS, RAIL_DECISIONS, fill_words, normal, philox
from evenhand.procedure.spec import Spec
from evenhand.procedure.state import BLOCK, CURSOR, DRAWN_AT_ONCE, NONE, State, Work
from evenhand.theory.inner import score

# the first block of a decision's stream that holds posterior draws; earlier blocks hold its other draws
FIRST_BLOCK = 8
# the highest bits of a word give an upper bound on its normal
CLASS_BITS = np.uint64(24)
HOPELESS = 1e300  # subtracted from the score of a draw that must miss a floor
HIGHEST = np.array([uncompiled(normal)(np.uint64((c << 24) | 0xFFFFFF)) for c in range(256)])


@kernel
def posterior_leader(spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int) -> int:
    """Draw means from the posterior and return the leader by them."""
    policies = spec.phi.shape[1]
    if spec.many:
        return _rolling_leader(spec, state, work, seed, replication, decision)
    fill_words(seed, decision, FIRST_BLOCK, replication, DECISIONS, work.words)
    # the policy with the highest bound first: most others cannot reach its score
    leader = _bound_all(spec, state, work)
    if has_control(spec):
        _drawn_score(spec, state, work, control_of(spec), control_of(spec), seed, replication, decision)
    if spec.guardrails.present and work.lead[0] != NONE:  # the leader by the estimates is asked about later
        _drawn_score(spec, state, work, work.lead[0], work.lead[0], seed, replication, decision)
    best = _drawn_score(spec, state, work, leader, leader, seed, replication, decision)
    for k in range(policies):
        if k != leader and work.most[k] >= best:
            drawn = _drawn_score(spec, state, work, k, k, seed, replication, decision)
            if drawn > best or (drawn == best and k < leader):
                leader, best = k, drawn
    return leader if best > -math.inf else NONE


@kernel
def draw_policy(
    spec: Spec, state: State, work: Work, k: int, seed: int, replication: int, decision: int
) -> None:
    """Draw policy k's means, and the control's if there is one, from the posterior into state.theta."""
    blocks = _blocks(spec)
    fill_words(seed, decision, FIRST_BLOCK + k * blocks, replication, DECISIONS, work.words)
    _drawn_score(spec, state, work, k, 0, seed, replication, decision)
    if has_control(spec) and k != control_of(spec):
        start = FIRST_BLOCK + control_of(spec) * blocks
        fill_words(seed, decision, start, replication, DECISIONS, work.words)
        _drawn_score(spec, state, work, control_of(spec), 0, seed, replication, decision)


@kernel
def posterior_answer(
    spec: Spec, state: State, work: Work, leader: int, seed: int, replication: int, decision: int
) -> int:
    """Return an answer that is acceptable by a posterior draw in which the leader is not.

    The best by the draw where the leader is not acceptable by it; else the easiest by the draw where that is
    not acceptable by the estimates; else the leader itself.
    """
    if spec.many:
        best = _rolling_leader(spec, state, work, seed, replication, decision)
        return leader if leader != NONE and _is_good_draw(spec, state, leader, best) else best
    at = by_draw(state, work)
    fill_words(seed, decision, FIRST_BLOCK, replication, DECISIONS, work.words)
    best = NONE
    for k in range(spec.phi.shape[1]):
        _drawn_score(spec, state, work, k, k, seed, replication, decision)
    for k in range(spec.phi.shape[1]):
        update_summary(spec, work, at, k)
        if at.margin[k] >= 0.0 and (best == NONE or at.score[k] > at.score[best]):
            best = k
    found = easiest(spec, work, at, best)
    if leader == NONE:
        return found
    if not is_acceptable(spec, at, best, leader):
        return best
    doubtful = found != NONE and not is_acceptable(spec, by_estimates(work), work.lead[0], found)
    return found if doubtful else leader


@kernel
def _is_good_draw(spec: Spec, state: State, i: int, best: int) -> bool:
    """Return whether policy i is acceptable by its latest draw; `best` is the best by the draws."""
    if best == NONE or not meets_all(spec, spec.kept, i, state.theta, state.rail_theta):
        return meets_all(spec, spec.kept, i, state.theta, state.rail_theta)
    lead = score(spec.region, spec.shares, i, state.theta) + spec.indifference
    return lead >= score(spec.region, spec.shares, best, state.theta)


@kernel
def _rolling_leader(spec: Spec, state: State, work: Work, seed: int, replication: int, decision: int) -> int:
    """Return the leader by the latest draws, after a new draw of the next window of policies."""
    policies = spec.phi.shape[1]
    first, count = 0, policies
    if state.clock[CURSOR] > 0:  # 0: no policy has been drawn yet
        first, count = state.clock[CURSOR] - 1, DRAWN_AT_ONCE
    state.clock[CURSOR] = (first + count) % policies + 1
    for j in range(0, count, DRAWN_AT_ONCE):
        _draw_window(spec, state, work, first + j, min(DRAWN_AT_ONCE, count - j), seed, replication, decision)
    return _first_of_top(spec, state, work)


@kernel
def _first_of_top(spec: Spec, state: State, work: Work) -> int:
    """Return the first policy with the highest drawn score, or NONE where no draw is feasible."""
    where, best = 0, -math.inf
    for block in range(work.top.size):
        if math.isnan(work.top[block]):
            work.top[block] = _top(spec, state, work, block)
        if work.top[block] > best:
            where, best = block, work.top[block]
    start, stop = span_of(work, where)
    for k in range(start, stop):
        if work.drawn[k] == best and best > -math.inf:
            return k
    return NONE


@kernel
def _top(spec: Spec, state: State, work: Work, block: int) -> float:
    """Return the largest drawn score of a block."""
    start, stop = span_of(work, block)
    best = -math.inf
    for k in range(start, stop):
        if math.isnan(work.drawn[k]):  # a new Work: the draw itself is part of the state
            work.drawn[k] = _score(spec, state, k)
        best = max(best, work.drawn[k])
    return best


@kernel
def _draw_window(
    spec: Spec, state: State, work: Work, first: int, count: int, seed: int, replication: int, decision: int
) -> None:
    """Draw the means of the next policies again, this number of them, cyclically."""
    policies, blocks = spec.phi.shape[1], _blocks(spec)
    start = first % policies
    ahead = min(count, policies - start)
    control_drawn = False
    for begin, end in ((start, start + ahead), (0, count - ahead)):
        if begin < end:
            fill_words(seed, decision, FIRST_BLOCK + begin * blocks, replication, DECISIONS, work.words)
        for k in range(begin, end):
            work.drawn[k] = _drawn_score(spec, state, work, k, k - begin, seed, replication, decision)
            work.top[k // BLOCK] = math.nan
            if has_control(spec) and k == control_of(spec):
                control_drawn = True
    if control_drawn:
        work.drawn[:] = math.nan  # bounds are relative to the control: all draws are scored again
        work.top[:] = math.nan


@kernel
def _drawn_score(
    spec: Spec, state: State, work: Work, k: int, place: int, seed: int, replication: int, decision: int
) -> float:
    """Draw policy k's means into state.theta and return their score; -inf if infeasible.

    Its words are at this place in work.words. Those of guard-rails have a stream of their own.
    """
    first = place * _blocks(spec)
    for g in range(spec.phi.shape[0]):
        state.theta[g, k] = _drawn(spec, state, work, k, g, normal(work.words[g % 4, first + g // 4]))
    if spec.guardrails.present:
        _draw_guardrails(spec, state, work, k, seed, replication, decision)
    return _score(spec, state, k)


@kernel
def _draw_guardrails(
    spec: Spec, state: State, work: Work, k: int, seed: int, replication: int, decision: int
) -> None:
    """Draw the means of policy k's guard-rails into state.rail_theta."""
    groups, policies = spec.phi.shape
    for j in range(spec.guardrails.code.shape[0]):
        for g in range(groups):
            word, _, _, _ = philox(
                seed, decision, (j * policies + k) * groups + g, replication, RAIL_DECISIONS
            )
            n = max(state.rail_n[j, g, k], 1.0) / rail_dispersion(spec, state, work, j, g, k)
            mean = work.rail_mean[j, g, k]
            state.rail_theta[j, g, k] = _at_normal(spec.guardrails.code[j], mean, n, normal(word))


@kernel
def _score(spec: Spec, state: State, k: int) -> float:
    if not meets_all(spec, spec.region, k, state.theta, state.rail_theta):
        return -math.inf
    return score(spec.region, spec.shares, k, state.theta)


@kernel
def _bound_all(spec: Spec, state: State, work: Work) -> int:
    """Write upper bounds on all drawn scores, without penalties, to work.most.

    Very low where the draw must miss a floor. Returns the policy with the highest bound.
    """
    policies = spec.phi.shape[1]
    work.most[:] = 0.0
    for g in range(spec.phi.shape[0]):
        if spec.code == GAUSSIAN or spec.code == BERNOULLI:
            _bound_by_line(spec, work, g)
        else:
            _bound_by_draw(spec, state, work, g)
    first, most = 0, work.most[0]
    for k in range(1, policies):
        if work.most[k] > most:
            first, most = k, work.most[k]
    return first


@kernel
def _bound_by_line(spec: Spec, work: Work, g: int) -> None:
    """Add the largest possible score of group g for each policy (branch-free, vectorised).

    A Gaussian draw is linear in its normal. A Bernoulli draw is a squared sine, with a slope of at most 1
    from the centre. The bounds include the rounding errors of both, and of the floor.
    """
    most, middle, spread, floor = work.most, work.middle[g], work.spread[g], spec.region.lo[g]
    blur = spec.region.resolution[g]
    words, blocks, first, share = work.words[g % 4], _blocks(spec), g // 4, spec.shares[g]
    lowest = 0.0 if spec.code == BERNOULLI else -math.inf
    part = ROUNDING if spec.region.kind == BOX else math.inf
    for k in range(most.size):
        z = max(HIGHEST[words[k * blocks + first] >> CLASS_BITS], lowest)
        highest = middle[k] + spread[k] * (z + ROUNDING) + (ROUNDING * abs(middle[k]) + blur[k])
        slack = part * (abs(highest) + abs(floor[k])) + blur[k]
        most[k] += share * highest - (HOPELESS if highest < floor[k] - slack else 0.0)


@kernel
def _bound_by_draw(spec: Spec, state: State, work: Work, g: int) -> None:
    """Add the same bound for the other families: the draw with the highest normal of the class."""
    blocks, share = _blocks(spec), spec.shares[g]
    for k in range(work.most.size):
        z = HIGHEST[work.words[g % 4, k * blocks + g // 4] >> CLASS_BITS]
        highest = _drawn(spec, state, work, k, g, z)
        floor = spec.region.lo[g, k]
        slack = ROUNDING * (highest + abs(floor)) + spec.region.resolution[g, k]
        missed = spec.region.kind == BOX and highest < floor - slack
        work.most[k] += share * highest - (HOPELESS if missed else 0.0)


@kernel
def _blocks(spec: Spec) -> int:
    """Return the number of blocks of four words that hold a policy's draw."""
    return (spec.phi.shape[0] + 3) // 4


@kernel
def _drawn(spec: Spec, state: State, work: Work, k: int, g: int, z: float) -> float:
    """Return a draw from the posterior of cell (k, g), by a variance-stabilising transform.

    Exact for the Gaussian; within the domain and close to the Beta, Gamma and inverse-Gamma posteriors for
    the others.
    """
    n = max(state.n[g, k], 1.0) / dispersion(spec, state, work.pooled[0], g, k)
    return _at_normal(spec.code, work.mean[g, k], n, z)


@kernel
def _at_normal(code: int, mean: float, n: float, z: float) -> float:
    """Return the posterior's quantile that belongs to a standard normal z."""
    if code == GAUSSIAN:
        return mean + z / math.sqrt(n)
    if code == BERNOULLI:
        angle = math.asin(math.sqrt((n * mean + 0.375) / (n + 0.75))) + 0.5 * z / math.sqrt(n + 0.5)
        return math.sin(min(max(angle, 0.0), 0.5 * math.pi)) ** 2
    if code == POISSON:
        return max(math.sqrt(mean + 0.375 / n) + 0.5 * z / math.sqrt(n), 0.0) ** 2
    return mean * math.exp(z / math.sqrt(n))

"""The four-fifths rule for screening rules: a ratio requirement, judged on existing data.

Each rule screened applicants of two groups; an outcome is 1 if the applicant was invited and the panel
agreed. A rule meets the requirement if the lower success rate of the two groups is at least 80% of the higher
rate.
"""

from __future__ import annotations

import polars as pl

import evenhand as eh

SCREENED = pl.DataFrame(
    {
        "policy": ["keywords", "keywords", "work sample", "work sample", "referral", "referral"],
        "group": ["women", "men"] * 3,
        "n": [2_500, 2_500, 2_500, 2_500, 2_500, 2_500],
        "successes": [700, 1_500, 1_250, 1_275, 500, 1_250],
    }
)


def main() -> eh.Verdict:
    problem = eh.Problem(
        ["keywords", "work sample", "referral"], {"women": 0.5, "men": 0.5}, eh.Bernoulli(), eh.Ratio(0.8)
    )
    verdict = eh.judge(problem, SCREENED, delta=0.05, replications=0)
    print("\n".join(verdict.words()))
    for policy in verdict.policies:
        print(f"{policy.policy}: {policy.verdict}, overall {policy.mean:.1%}")
    eh.assert_meets(verdict, "work sample")
    return verdict


if __name__ == "__main__":
    main()

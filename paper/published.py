"""The numbers printed in the paper, each with the label of its table, figure or section.

The paper is "Selection of the Best Policy under Fairness Constraints for Subpopulations".
"""

from __future__ import annotations

REPLICATIONS = 3000

# table:exp_a_results: delta -> (mean samples, standard error, standard deviation, share correct)
DELTA_SCALING = {
    0.2: (267, 2.9, 156.3, 1.0),
    0.103: (311, 3.2, 174.8, 1.0),
    0.053: (360, 3.4, 187.9, 1.0),
    0.027: (415, 3.7, 203.5, 1.0),
    0.014: (468, 3.8, 210.3, 0.9997),
    0.007: (525, 4.2, 229.5, 1.0),
    0.004: (587, 4.3, 236.4, 1.0),
    0.002: (636, 4.6, 253.5, 1.0),
    0.001: (693, 4.8, 265.2, 1.0),
    0.0005: (766, 5.0, 274.0, 1.0),
}
SCALING_TIME = 57.32  # subsubsec:asymptotic_optimality

# table:exp_b_results: feasibility gap -> (T*, samples / ln(1/delta), its standard error), at delta = .01
FEASIBILITY_GAP = {
    0.1: (109.27, 202.66, 1.34),
    0.3: (61.56, 112.23, 0.90),
    0.6: (57.32, 105.46, 0.87),
    0.9: (56.28, 98.20, 0.86),
    1.2: (56.12, 95.31, 0.83),
}
GAP_DELTA = 0.01

# table:part_b_pcs: K -> (samples, share correct of T-a-S-CS, of the policy-level baseline)
OPERATIONAL_SCALE = {50: (6_000, 0.959, 0.525), 100: (12_000, 0.963, 0.390)}

# table:extension_comparison: gamma (None: hard) -> (answer, mean samples, standard error, sd, share correct)
HARD_AND_SOFT = {
    None: ("a1", 853, 5, 271, 0.999),
    0.5: ("a4", 969, 10, 550, 1.000),
    1.0: ("a4", 1473, 17, 946, 0.998),
    5.0: ("a1", 3179, 38, 2104, 0.991),
    10.0: ("a1", 1080, 8, 440, 0.997),
}
HARD_AND_SOFT_DELTA = 0.2
# subsubsec:extension_comparison: gamma (None: hard) -> T*
SOFT_TIMES = {None: 170.0, 0.5: 506.0, 1.0: 993.0}

# table:ist_pcs: samples -> share correct of T-a-S-CS, of arm-level T-a-S, of uniform sampling
STROKE_TRIAL = {
    3_000: (0.620, 0.568, 0.554),
    3_750: (0.667, 0.614, 0.572),
    4_500: (0.692, 0.637, 0.596),
    5_250: (0.723, 0.647, 0.615),
    6_000: (0.737, 0.666, 0.634),
}

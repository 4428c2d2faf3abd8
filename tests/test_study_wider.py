"""The wider question in a study file: read, refused, written back, hashed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from evenhand.cli.main import main
from evenhand.errors import BadInput
from evenhand.model.requirements import Caps, Floors
from evenhand.study import Study, dumps, loads
from evenhand.theory.plan import plan

STUDY = """
title = "Revenue with guard-rails"

[problem]
policies     = ["Standard", "Both", "New"]
groups       = { young = 0.6, old = 0.4 }
family       = { name = "bernoulli" }
constraint   = { kind = "floors", relative_to = "Standard", margin = { young = 0.05, old = 0.02 } }
max_policies = 6
costs        = { "Both" = 2.0 }

[[problem.guardrails]]
name       = "complaints"
family     = { name = "poisson" }
constraint = { kind = "caps", at_most = 1.5 }

[[problem.guardrails]]
name       = "satisfaction"
family     = { name = "gaussian", sd = 1.0 }
constraint = { kind = "floors", relative_to = "Standard", ratio = 0.9 }

[procedure]
indifference = 0.03
tolerance    = [0.01, 0.0]

[truth]
means.Standard = { young = 0.55, old = 0.45 }
means.Both = { young = 0.68, old = 0.56 }
means.New = [0.60, 0.50]

[truth.guardrails]
complaints = [[0.8, 0.9], [1.0, 1.1], [0.7, 0.6]]
satisfaction.Standard = [0.5, 0.5]
satisfaction.New = { old = 0.6, young = 0.7 }
satisfaction.Both = [0.9, 0.9]
"""


def test_all_of_it_is_read() -> None:
    study = loads(STUDY)
    problem = study.problem
    assert problem.constraint == Floors(relative_to="Standard", margin={"young": 0.05, "old": 0.02})
    assert [rail.name for rail in problem.guardrails] == ["complaints", "satisfaction"]
    assert problem.guardrails[0].constraint == Caps(1.5)
    assert (problem.goal, problem.max_policies, problem.control) == ("best", 6, "Standard")
    assert problem.sampling_costs.tolist() == [[1, 1], [2, 2], [1, 1]]
    assert (study.procedure.indifference, study.procedure.tolerance) == (0.03, (0.01, 0.0))
    assert study.means() == ((0.55, 0.45), (0.68, 0.56), (0.6, 0.5))
    assert study.guardrail_means() == {
        "complaints": ((0.8, 0.9), (1.0, 1.1), (0.7, 0.6)),
        "satisfaction": ((0.5, 0.5), (0.9, 0.9), (0.7, 0.6)),
    }


SCREEN = (
    STUDY.replace("max_policies = 6", 'goal = "screen"')
    .replace("indifference = 0.03", "")
    .replace("tolerance    = [0.01, 0.0]", "")
)


@pytest.mark.parametrize(
    "text",
    [
        STUDY,
        SCREEN,
        STUDY.replace("margin = { young = 0.05, old = 0.02 }", "margin = [0.05, 0.02]"),
        STUDY.replace("margin = { young = 0.05, old = 0.02 }", "ratio = 0.9"),
        STUDY.replace("margin = { young = 0.05, old = 0.02 }", "margin = -0.1"),
        STUDY.replace("tolerance    = [0.01, 0.0]", "tolerance = { young = 0.01, old = 0.02 }"),
        STUDY.replace('costs        = { "Both" = 2.0 }', "costs = { Both = { old = 3.0 } }"),
    ],
)
def test_a_study_reads_back_what_it_writes(text: str) -> None:
    study = loads(text)
    again = loads(dumps(study))
    assert again == study
    assert again.content_hash == study.content_hash
    assert Study.from_dict(study.to_dict()) == study


def test_defaults_spelled_out_and_tables_by_name_do_not_change_the_hash() -> None:
    study = loads(STUDY)
    other = STUDY.replace("max_policies = 6", 'max_policies = 6\ngoal = "best"')
    other = other.replace("means.New = [0.60, 0.50]", "means.New = { old = 0.5, young = 0.6 }")
    other = other.replace('costs        = { "Both" = 2.0 }', "costs = [[1, 1], [2, 2], [1, 1]]")
    assert loads(other).content_hash == study.content_hash
    plain = STUDY.replace(", margin = { young = 0.05, old = 0.02 }", "")
    assert (
        loads(plain).content_hash
        == loads(plain.replace('"Standard" }', '"Standard", margin = 0 }', 1)).content_hash
    )


def test_studies_that_say_none_of_it_keep_the_hash_they_had() -> None:
    # written down before the wider question had a written form
    old = """
    [problem]
    policies = ["p", "r"]
    groups = { a = 0.5, b = 0.5 }
    family = { name = "bernoulli" }
    constraint = { kind = "floors", at_least = 0.3 }
    costs = [[1, 2], [3, 4]]
    [truth]
    means = [[0.5, 0.6], [0.4, 0.7]]
    """
    assert loads(old).content_hash == "c9625001b961c081f0c3c5f9c83c894601e243463cbb838af751ce37a86cc50d"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('relative_to = "Standard", margin', 'relative_to = "Standart", margin'),
            "relative_to must name one of the policies; it is 'Standart'; did you mean 'Standard'?",
        ),
        (
            ('relative_to = "Standard", margin', "relative_to = 3, margin"),
            "relative_to must be the name of a policy; it is 3",
        ),
        (("old = 0.02 }", "odl = 0.02 }"), "margin names an unknown group 'odl'; did you mean 'old'?"),
        (
            ("margin = { young = 0.05, old = 0.02 }", 'margin = "wide"'),
            "margin must be a number or a table of numbers; it holds 'wide'",
        ),
        (
            ("margin = { young = 0.05, old = 0.02 }", "margin = [0.1, 0.1, 0.1]"),
            "margin must have one number per group, 2; it has 3",
        ),
        (
            ("indifference = 0.03", "indifference = -0.03"),
            "indifference must be a finite number, 0 or more; it is -0.03",
        ),
        (
            ("indifference = 0.03", "indifference = inf"),
            "indifference must be a finite number, 0 or more; it is inf",
        ),
        (("indifference = 0.03", "indiference = 0.03"), "did you mean 'indifference'?"),
        (
            ("indifference = 0.03", "initial = [1, 2, 3]"),
            "initial must have one number per group, 2; it has 3",
        ),
        (
            ("indifference = 0.03", "initial = { young = 2 }"),
            "initial by group must name every group; 'old' is missing",
        ),
        (
            ("tolerance    = [0.01, 0.0]", "tolerance = [0.01]"),
            "tolerance must have one number per group, 2; it has 1",
        ),
        (("tolerance    = [0.01, 0.0]", "tolerance = -1"), "tolerance must not be negative; it is -1"),
        (
            ('name       = "satisfaction"', 'name = "complaints"'),
            "guard-rails must have different names; 'complaints' comes twice",
        ),
        (('name       = "satisfaction"', 'name = "outcome"'), "a guard-rail cannot be called 'outcome'"),
        (
            ('name       = "satisfaction"', "names = 'satisfaction'"),
            "unknown key 'names' in [[problem.guardrails]]; did you mean 'name'?",
        ),
        (
            ('family     = { name = "poisson" }\n', ""),
            "[[problem.guardrails]] needs family; it has name, constraint",
        ),
        (
            ("at_most = 1.5", "at_most = -1.5"),
            "guard-rail 'complaints': a cap must lie strictly inside the family's domain (0, inf)",
        ),
        (
            ('costs        = { "Both" = 2.0 }', 'costs = { "Boht" = 2.0 }'),
            "costs: there is no policy or group 'Boht'; did you mean 'Both'?",
        ),
        (
            ('costs        = { "Both" = 2.0 }', 'costs = { "Both" = "much" }'),
            "costs must be a number or a table of numbers; it holds 'much'",
        ),
        (
            ("max_policies = 6", "max_policies = 2"),
            "max_policies must be a whole number, at least the 3 policies there are; it is 2",
        ),
        (("max_policies = 6", 'goal = "rank"'), "goal must be one of best, screen; it is 'rank'"),
        (("means.New = [0.60, 0.50]", ""), "means by name must have a row for every policy; 'New' has none"),
        (
            ("complaints = [[0.8", "complaint = [[0.8"),
            "there is no guard-rail 'complaint'; did you mean 'complaints'?",
        ),
        (
            ("satisfaction.Both = [0.9, 0.9]", ""),
            "guard-rail 'satisfaction': means by name must have a row for every policy; 'Both' has none",
        ),
        (
            ("[1.0, 1.1]", "[1.0, -1.1]"),
            "guard-rail 'complaints': means must lie in the domain of the poisson family, [0, inf); 'Both'",
        ),
    ],
)
def test_a_wrong_study_is_refused_with_what_must_hold(change: tuple[str, str], message: str) -> None:
    assert change[0] in STUDY
    with pytest.raises(BadInput) as refusal:
        loads(STUDY.replace(*change, 1))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_truth_without_its_guard_rails_says_what_it_lacks() -> None:
    study = loads(STUDY.split("[truth.guardrails]")[0])
    with pytest.raises(
        BadInput, match="every guard-rail needs means, a row per policy; 'complaints' has none"
    ):
        plan(study)


def test_max_policies_is_taken_by_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, journal, data = tmp_path / "study.toml", tmp_path / "trial.db", tmp_path / "data.csv"
    data.write_text("policy,group,outcome\np,a,1\np,b,0\nr,a,1\nr,b,1\n")
    path.write_text(
        """[problem]
policies = ["p", "r"]
groups = { a = 0.5, b = 0.5 }
family = { name = "bernoulli" }
max_policies = 4
[truth]
means = [[0.6, 0.6], [0.7, 0.8]]
"""
    )
    commands = {
        "plan": ["plan", str(path), "--json"],
        "simulate": ["simulate", str(path), "--replications", "20", "--seed", "1", "--json"],
        "judge": ["judge", str(path), str(data), "--json"],
        "new": ["new", str(journal), str(path), "--seed", "1", "--json"],
        "status": ["status", str(journal), "--json"],
    }
    found = {}
    for name, command in commands.items():
        assert main(command) == (3 if name == "judge" else 0)  # 3: the four outcomes decide nothing
        found[name] = json.loads(capsys.readouterr().out)
    assert found["judge"]["needed"] == found["status"]["needed"] == pytest.approx(math.log(16 / 0.05))

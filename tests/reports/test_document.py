"""The page: one file, nothing fetched, everything escaped, the same numbers in every form."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

import evenhand as eh
from evenhand.errors import BadInput
from evenhand.reports.captioned_figures import write_csv
from evenhand.reports.document import Report, report
from evenhand.reports.guarantees import methods
from evenhand.reports.page_parts import decimal, field_text, table
from evenhand.study import Study
from tests.reports.example_rows import made

PAYLOADS = (
    "<script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">",
    "</style><script>document.title='owned'</script>", "'\"><svg onload=document.title='owned'>",
)  # fmt: skip


class Page(HTMLParser):
    """What a browser would find: tags, addresses, text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(found == tag for found, _ in self.tags)


def test_the_page_fetches_nothing() -> None:
    page = Page(made().html())
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:")), (tag, address)
    style = "".join(re.findall(r"<style>(.*?)</style>", made().html(), flags=re.DOTALL))
    assert "url(" not in style.replace("url(#", "")
    assert "@import" not in style
    policy = next(a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_names_from_users_are_escaped_everywhere() -> None:
    page = Page(made(PAYLOADS, ("<b>g</b>", "&amp;"), title=PAYLOADS[0]).html())
    assert page.count("script") == 0
    assert page.count("img") == 0
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert any(PAYLOADS[1] in text for text in page.text)


def test_every_picture_has_a_sentence_a_table_and_two_widths() -> None:
    report_, page = made(), Page(made().html())
    pictures = [picture for section in report_.sections for picture in section.pictures]
    assert page.count("figure") == len(pictures) == 5
    assert page.count("svg") == 2 * len(pictures)
    assert page.count("table") == len(pictures) + 1
    text = "".join(page.text)
    assert all(picture.says in text for picture in pictures)
    assert sum(1 for t, a in page.tags if t == "th" and a.get("scope") in ("col", "row")) > 20


def test_the_opening_sentence_comes_first_and_once() -> None:
    text = " ".join("".join(Page(made().html()).text).split())
    sentence = "Undecided. Aspirin only leads; its floor is open for 80 and over."
    assert text.count(sentence) == 1
    assert text.index(sentence) < text.index("What the data say")


def test_the_three_forms_hold_the_same_numbers(tmp_path: Path) -> None:
    page = made()
    numbers = json.loads(page.json())
    html, markdown = page.html(), page.markdown()
    assert numbers["sections"][0]["evidence"] == 2.67
    assert numbers["studies"][0]["procedure"]["delta"] == 0.05
    for told in ("0.8429", "1,200", "98.12%", "9f3a" * 16, page.studies[0].content_hash):
        assert told in html
        assert told.replace("-", "\\-") in markdown or told in markdown
    for name in ("page.html", "page.md", "page.json"):
        assert page.save(tmp_path / name).read_text(encoding="utf-8")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == html


def test_the_same_report_is_the_same_page_every_time() -> None:
    assert made().html() == made().html()


def test_markdown_escapes_names_and_keeps_tables_whole() -> None:
    text = made(("a|b", "*c*", "[d](x)", "<e>")).markdown()
    assert "a\\|b" in text
    assert "\\*c\\*" in text
    assert "\\[d\\]\\(x\\)" in text
    rows = [line for line in text.splitlines() if line.startswith("| a\\|b | under 80")]
    assert rows
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) <= 2


def test_figures_are_saved_as_svg_png_and_csv(tmp_path: Path) -> None:
    saved = made().save_figures(tmp_path / "figures")
    assert len(saved) == 15
    assert {path.suffix for path in saved} == {".svg", ".png", ".csv"}
    assert all(path.stat().st_size > 50 for path in saved)
    assert saved[1].read_bytes().startswith(b"\x89PNG")


def test_a_csv_is_safe_in_a_spreadsheet_and_numbers_stay_numbers(tmp_path: Path) -> None:
    write_csv(
        table("t", ["name", "x"], [["=cmd()", -1.5], ["@sum", 2], ["-3 mg", 0], ["plain", None]]),
        tmp_path / "t.csv",
    )
    with (tmp_path / "t.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["name", "x"],
            ["'=cmd()", "-1.5"],
            ["'@sum", "2"],
            ["'-3 mg", "0"],
            ["plain", ""],
        ]


def test_fields_are_shown_as_people_read_them() -> None:
    assert field_text(None) == "–"
    assert field_text(19435) == "19,435"
    assert field_text("met", "verdict") == "● met"
    assert field_text(0.4123, "share intended") == "41.2%"
    assert [decimal(x) for x in (0.84294, 12.345, 19435.2, 2e-5, 2e-12, 0.0)] == [
        "0.8429",
        "12.3",
        "19,435",
        "0.000020",
        "<0.000001",
        "0.0000",
    ]


@pytest.mark.parametrize(
    "stopping", ["certified", "stylised", "kaufmann-koolen", eh.Budget(6000), eh.Calibrated(3.1)]
)
def test_every_stopping_rule_states_exactly_what_it_guarantees(stopping: object) -> None:
    problem = eh.Problem(["a", "b", "c"], {"g": 1.0}, eh.Bernoulli(), eh.Floors(0.5))
    found = methods(problem, eh.Procedure(stopping=stopping, delta=0.1))  # type: ignore[arg-type]
    certified = stopping in ("certified", "kaufmann-koolen")
    assert found.guarantee.startswith("Certified") == certified
    assert found.sources[0] == "paper"
    if stopping == "certified":
        assert "3/0.1 = 30" in found.text
    if stopping == "stylised":
        assert "Heuristic" in found.guarantee


def test_nothing_ever_claims_a_virtue() -> None:
    text = made().html().lower() + made().markdown().lower()
    # the one exception is the title of the paper that is cited
    text = text.replace("under fairness constraints for subpopulations", "")
    assert not re.search(r"\bis (fair|safe)\b|\bfairness\b|\bproof\b", text)


def test_what_cannot_be_reported_is_refused() -> None:
    with pytest.raises(BadInput, match="at least one"):
        report()
    with pytest.raises(BadInput, match="got 3"):
        report(3)
    with pytest.raises(BadInput, match=r"\.html, \.md or \.json"):
        made().save("page.pdf")


def test_a_recipe_cannot_end_the_element_that_contains_it() -> None:
    page = made()
    nasty = Report(
        page.sections, page.studies, page.title, recipe=json.dumps({"x": "</script><script>alert(1)"})
    )
    html = nasty.html()
    assert html.count("</script>") == 1
    held = re.search(r'id="recipe">(.*?)</script>', html, flags=re.DOTALL)
    assert held is not None
    assert json.loads(held.group(1)) == {"x": "</script><script>alert(1)"}


def test_a_fixed_sample_is_not_said_to_hold_for_any_number_of_looks() -> None:
    """The page of a verdict by --fixed-sample once carried the sequential rule's guarantee."""
    from evenhand.verdicts.judge import judge

    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3))
    cells = [(p, g, 100, s) for p, s in (("a", 60), ("b", 40)) for g in "xy"]
    frame = pl.DataFrame(cells, schema=["policy", "group", "n", "successes"], orient="row")
    fixed, sequential = judge(problem, frame, fixed=True), judge(problem, frame, replications=0)
    [said] = report(fixed).to_dict()["guarantees"]
    assert said.startswith("One look at a fixed sample: the probability of a wrong answer is at most 0.05 if")
    assert "any number of looks" not in report(fixed).html()
    both = report(fixed, sequential).to_dict()["guarantees"]
    assert len(both) == 2
    assert "any number of looks" in both[1]


def judged(tmp_path: Path, constraint: str = 'kind = "floors", at_least = 0.3') -> tuple[Study, Path]:
    (tmp_path / "gate of May.toml").write_text(
        'title = "Answer quality"\n[problem]\npolicies = ["a", "b"]\ngroups = { x = 0.6, y = 0.4 }\n'
        f'family = {{ name = "bernoulli" }}\nconstraint = {{ {constraint} }}\n'
    )
    data = tmp_path / "counts.csv"
    data.write_text("policy,group,n,successes\na,x,100,60\na,y,100,60\nb,x,100,40\nb,y,100,40\n")
    return eh.load(tmp_path / "gate of May.toml"), data


def test_a_report_of_judged_data_says_what_was_judged(tmp_path: Path) -> None:
    """It once said that the procedure chose every sample, and named study.toml and data.csv."""
    study, data = judged(tmp_path)
    page = report(eh.judge(study, data, replications=0))
    text = page.markdown().replace("\\", "")
    assert page.title == "Answer quality"
    assert "400 outcomes in 4 rows of counts.csv were judged" in text
    assert "chose none of these samples" in text
    assert "The procedure chooses" not in text
    assert "evenhand judge 'gate of May.toml' counts.csv" in text
    assert hashlib.sha256(data.read_bytes()).hexdigest() in text
    assert str(tmp_path) not in page.html() + page.json()
    assert page.studies[0].content_hash == study.content_hash
    [assumed] = page.to_dict()["assumptions"]
    assert all(sentence in page.html() and sentence in text for sentence in assumed)
    for word in ("independent", "does not change", "left out", "assignment", "x 0.6, y 0.4"):
        assert any(word in sentence for sentence in assumed)


def test_the_plan_in_the_same_report_keeps_its_own_methods(tmp_path: Path) -> None:
    study, data = judged(tmp_path)
    plan = eh.plan(study.problem, [[0.6, 0.6], [0.4, 0.4]])
    page = report(plan, eh.judge(study, data, replications=0))
    assert len(page.methods) == 2
    assert "The procedure chooses" in page.methods[0].text
    assert "chose none" in page.methods[1].text


def test_of_two_guarantees_each_names_the_section_it_is_about() -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), eh.Floors(0.3))
    data = {"a": {"x": [1] * 40}, "b": {"x": [0] * 40}}
    page = eh.report(eh.plan(problem, [[0.9], [0.2]]), eh.judge(problem, data, replications=0))
    assert len(page.methods) == 2
    html, markdown = page.html().split("What is guaranteed, and how")[1], page.markdown()
    guarantees = markdown.split("## What is guaranteed, and how")[1]
    for section in page.sections:
        assert f"<h3>{section.title}</h3>" in html
        assert f"### {section.title}" in guarantees


def test_two_studies_with_one_title_are_numbered() -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    truths = [eh.Truth(means=[[mean], [0.2]]) for mean in (0.8, 0.9)]
    names = [
        name
        for name, _ in eh.report(*(eh.Study(problem, truth=truth, title="Twice") for truth in truths)).facts
    ]
    assert {"study Twice (1 of 2)", "study Twice (2 of 2)"} <= set(names)


def test_a_study_is_listed_once_with_its_truth() -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    study = eh.Study(problem, truth=eh.Truth(means=[[0.8], [0.2]]), title="Pages")
    data = {"a": {"x": [1] * 9}, "b": {"x": [0] * 9}}
    verdict = eh.judge(eh.Study(problem, title="Pages"), data, replications=0)
    other = eh.judge(problem, data, delta=0.2, replications=0)
    assert eh.report(study, verdict).studies == (study,)
    assert len(eh.report(study, other).studies) == 2


def guarded(policies: int = 2) -> eh.Report:
    """A report of judged data with two guard-rails; the first policy breaks one of them."""
    limits = [eh.Guardrail("complaints", eh.Bernoulli(), eh.Caps(0.2)),
              eh.Guardrail("faults", eh.Bernoulli(), eh.Caps(0.9))]  # fmt: skip
    names = ["new", "old", *(f"Candidate number {k}" for k in range(2, policies))]
    problem = eh.Problem(names, {"x": 0.6, "y": 0.4}, eh.Gaussian(1.0), guardrails=limits)
    rows = [
        {"policy": policy, "group": group, "outcome": 1.0 + n % 2, "complaints": int(policy == "new"),
         "faults": 0}
        for policy in names for group in ("x", "y") for n in range(40)
    ]  # fmt: skip
    return report(eh.judge(problem, pl.DataFrame(rows), replications=0), title="Two guard-rails")


def test_a_summary_states_every_guard_rail_and_no_bound_that_does_not_exist() -> None:
    page = guarded()
    assert page.opening.pictures[0].says == "This outcome has no bound."
    summary = page.summary()
    assert (
        "The means of complaints against their bounds. Of 4 cells: 2 met, 2 failed, 0 undecided." in summary
    )
    assert "The means of faults against their bounds. Of 4 cells: 4 met, 0 failed, 0 undecided." in summary


def test_an_experiment_in_intervals_has_no_empty_table_and_a_summary_without_versions() -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli(), mode="proportional")
    with eh.Experiment.create(
        ":memory:", problem, eh.Procedure(interval=eh.Intervals(volume=100)), seed=1
    ) as e:
        e.tell_counts(1, {"a": {"x": (50, 40)}, "b": {"x": (50, 10)}}, close=True)
        page = report(e)
    assert all(table.rows for table in page.opening.tables)
    assert "when the experiment began" in page.html()
    assert "when the experiment began" not in page.summary()


def test_a_plan_says_that_its_number_of_samples_is_a_lower_bound() -> None:
    problem = eh.Problem(["a", "b"], {"x": 1.0}, eh.Bernoulli())
    assert "This is a lower bound." in eh.report(eh.plan(problem, [[0.9], [0.2]])).markdown()


def test_an_exact_verdict_is_not_said_to_carry_a_risk() -> None:
    rows = [
        (p, g, f"{g}{i}", float(i % n > 0)) for p, n in (("a", 5), ("b", 2)) for g in "xy" for i in range(20)
    ]
    frame = pl.DataFrame(rows, schema=["policy", "group", "item", "outcome"], orient="row")
    problem = eh.Problem(["a", "b"], {"x": 0.6, "y": 0.4}, eh.Bernoulli(), eh.Floors(0.3))
    exact = eh.judge(problem, frame, pool="data", replications=0)
    [said] = report(exact).to_dict()["guarantees"]
    assert exact.exact
    assert said.startswith("Exact: every policy answered every item")
    some = frame.filter(~((pl.col("policy") == "b") & (pl.col("item") == "x3")))
    once = eh.judge(problem, some, pool={"x": 40, "y": 40}, replications=0)
    [said] = report(once).to_dict()["guarantees"]
    assert "for one look at the data" in said
    paired = report(eh.judge(problem, frame, replications=0)).to_dict()["assumptions"][0]
    assert any("before any outcome on it was seen" in sentence for sentence in paired)
    assert any("in the order" in sentence for sentence in paired)


def test_a_summary_has_what_a_board_signs(tmp_path: Path) -> None:
    study, data = judged(tmp_path)
    page = report(eh.judge(study, data, replications=0))
    path = page.save(tmp_path / "summary.html", summary=True)
    text = " ".join("".join(Page(path.read_text(encoding="utf-8")).text).split())
    for said in ("Answer quality", "counts.csv", "signature", page.methods[0].guarantee):
        assert said in text
    assert all(sentence in text for sentence in page.methods[0].assumptions)
    with pytest.raises(BadInput, match="one printed page"):
        page.save(tmp_path / "summary.md", summary=True)

// The planner: converts the table to a study; the service computes plans and simulations.
"use strict";

const Planner = (() => {
  const count = (value) => Math.ceil(value).toLocaleString("en");
  let bound = null; // lower bound on the average number of samples, from the latest plan

  function number(text, what) {
    const value = Number(text.trim());
    if (text.trim() === "" || !Number.isFinite(value)) throw new Error(`${what} must be a number; it is “${text.trim()}”.`);
    return value;
  }

  function requirement(form) {
    const kind = form.requirement.value;
    if (kind === "none") return { kind };
    const value = number(form.bound.value, "The bound");
    if (kind === "relative") return { kind: "floors", relative_to: form.control.value.trim(), margin: value };
    return { kind, [kind === "floors" || kind === "ratio" ? "at_least" : "at_most"]: value };
  }

  function study(form) {
    const lines = form.table.value.trim().split(/\n/).map((line) => line.split(/[,;\t]/).map((field) => field.trim()));
    const groups = lines[0].slice(1), rows = lines.slice(1);
    const shares = form.shares.value.split(/[,;\s]+/).filter(Boolean).map((share) => number(share, "A share"));
    if (groups.length !== shares.length) throw new Error(`There are ${groups.length} groups and ${shares.length} shares; give one for each.`);
    for (const row of rows) if (row.length !== groups.length + 1) throw new Error(`“${row[0]}” has ${row.length - 1} means for ${groups.length} groups.`);
    const family = { name: form.family.value };
    if (family.name === "gaussian") family.sd = number(form.sd.value, "The standard deviation");
    const problem = { policies: rows.map((row) => row[0]), groups: Object.fromEntries(groups.map((group, at) => [group, shares[at]])), family, constraint: requirement(form) };
    const procedure = { delta: number(form.delta.value, "The risk") };
    if (form.goal.value === "screen") problem.goal = "screen";
    else if (number(form.indifference.value, "“Good enough”") !== 0) procedure.indifference = number(form.indifference.value, "“Good enough”");
    const costs = form.costs.value.split(/[,;\s]+/).filter(Boolean).map((cost) => number(cost, "A cost"));
    if (costs.length && costs.length !== rows.length) throw new Error(`There are ${rows.length} policies and ${costs.length} costs; give one for each, or none.`);
    if (costs.length) problem.costs = Object.fromEntries(rows.map((row, at) => [row[0], costs[at]]));
    return {
      title: form.elements.title?.value.trim() || "Planned in the browser",
      problem, procedure,
      truth: { means: rows.map((row) => row.slice(1).map((mean) => number(mean, `A mean of “${row[0]}”`))) },
    };
  }

  // cividis, dark blue to yellow, at five points
  const RAMP = [[0, 34, 78], [64, 77, 108], [125, 124, 120], [188, 175, 111], [254, 232, 56]];

  function paint(cell, share) {
    const place = Math.min(share, 1) * (RAMP.length - 1), low = Math.min(Math.floor(place), RAMP.length - 2);
    const [red, green, blue] = RAMP[low].map((value, part) => Math.round(value + (place - low) * (RAMP[low + 1][part] - value)));
    cell.style.backgroundColor = `rgb(${red}, ${green}, ${blue})`;
    cell.style.color = 0.299 * red + 0.587 * green + 0.114 * blue < 133 ? "#fff" : "#10151b";
  }

  function table(heads, rows, className) {
    const made = Page.element("table", undefined, className ? { class: className } : {});
    const head = made.appendChild(Page.element("thead")).appendChild(Page.element("tr"));
    for (const name of heads) head.appendChild(Page.element("th", name, { scope: "col" }));
    const body = made.appendChild(Page.element("tbody"));
    for (const [name, ...fields] of rows) {
      const row = body.appendChild(Page.element("tr"));
      row.appendChild(Page.element("th", name, { scope: "row" }));
      for (const field of fields) row.appendChild(field instanceof Node ? field : Page.element("td", field));
    }
    const scroll = Page.element("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": heads.filter(Boolean).join(", ") });
    scroll.append(made);
    return scroll;
  }

  function heat(problem, allocation) {
    const most = Math.max(...allocation.flat(), 1e-9);
    const rows = problem.policies.map((policy, at) => [policy, ...allocation[at].map((share) => {
      const cell = Page.element("td", `${(100 * share).toFixed(1)}%`);
      paint(cell, share / most);
      return cell;
    })]);
    return table(["", ...Object.keys(problem.groups)], rows, "heat");
  }

  function blame(found) {
    return found.why_none === null ? "None of the policies meets the requirement." : "None of the policies meets the requirement; finding that out has a cost too.";
  }

  function result(asked, found) {
    if (found.feasible.length === 0) return blame(found);
    if (asked.problem.goal === "screen") return `${found.feasible.length} of ${asked.problem.policies.length} policies meet the requirement: ${found.feasible.join(", ")}.`;
    const close = asked.procedure.indifference && found.acceptable.length > 1 ? ` Acceptable: ${found.acceptable.join(", ")}; the easiest to show is ${found.easiest}.` : "";
    return `${found.answer} would be chosen.${close}`;
  }

  function proposal(found) {
    if (!found.proposal) return "";
    return ` Would ${found.proposal.acceptable.join(" or ")} do? Good enough within ${found.proposal.indifference}, T* falls to ${found.proposal.time_high.toPrecision(4)}.`;
  }

  async function plan(form) {
    const asked = study(form), found = await post("/api/v1/plan", { study: asked });
    bound = found.samples_at_least;
    const words = result(asked, found);
    const cost = found.cost_at_least === undefined ? "" : ` The samples cost at least ${count(found.cost_at_least)} on average.`;
    const forms = [0.1, 0.05, 0.01].map((delta) => [`${100 * delta}%`, count(found.time_high * risk(delta))]);
    document.getElementById("plan-result").replaceChildren(
      Page.element("h2", "Plan"),
      Page.element("p", `${words} Any procedure with this risk needs at least ${count(found.samples_at_least)} samples on average.${cost}`, { class: "lead" }),
      Page.element("p", `T* = ${found.time_high.toPrecision(5)}. ${found.warnings.join(" ")}${proposal(found)}`),
      Page.element("h2", "Where samples should go"), heat(asked.problem, found.allocation),
      // with several acceptable answers T* times this factor is no proven bound
      ...(found.acceptable.length > 1 ? [] : [Page.element("h2", "Samples needed, by risk"), table(["Risk", "Samples on average, at least"], forms)]));
  }

  // kl(delta, 1 - delta)
  const risk = (delta) => (1 - 2 * delta) * Math.log((1 - delta) / delta);

  async function simulate(form) {
    const bar = document.getElementById("simulation-progress"), said = document.getElementById("simulation-words");
    const asked = study(form);
    asked.procedure.max_samples = number(form.elements.most.value, "The latest end");
    const job = await post("/api/v1/simulate", { study: asked, replications: number(form.elements.replications.value, "The runs") });
    bar.hidden = false;
    try {
      for (;;) {
        const seen = await (await fetch(`/api/v1/simulate/${job.id}`)).json();
        bar.value = seen.done / seen.total;
        said.textContent = `${seen.done} of ${seen.total} runs`;
        if (seen.state === "failed") throw new Error(seen.error);
        if (seen.state === "done") { show(seen.result); return; }
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
    } finally { bar.hidden = true; said.textContent = ""; }
  }

  function show(runs) {
    const { quantiles, mean } = runs.samples, { rate, low, high } = runs.correct;
    const percent = (share) => `${(100 * share).toFixed(1)}%`;
    const cost = runs.cost === undefined ? "" : ` A run cost ${count(runs.cost.mean)} on average.`;
    const words = `Right in ${percent(rate)} of ${runs.replications} runs (${percent(low)} to ${percent(high)}), after ${count(mean)} samples on average; ${percent(runs.stopped)} decided before the latest end.${cost}`;
    const plot = Page.element("div", undefined, { role: "img", "aria-label": "Share of runs that have ended, by samples; the numbers are in the table" });
    const points = Object.entries(quantiles).map(([chance, samples]) => [samples, 100 * Number(chance)]).sort((a, b) => a[1] - b[1]);
    document.getElementById("simulation-result").replaceChildren(
      Page.element("p", words, { class: "lead" }), plot,
      table(["Chance to have ended", "Samples"], points.map(([samples, chance]) => [`${chance.toFixed(0)}%`, count(samples)])));
    Charts.ended(plot, points, bound);
  }

  async function save(form) {
    const file = new Blob([await post("/planner/study", { study: study(form) })], { type: "application/toml" });
    Page.element("a", "", { href: URL.createObjectURL(file), download: "study.toml" }).click();
  }

  async function start(form) {
    const id = form.elements.id.value.trim(), seed = crypto.getRandomValues(new Uint32Array(1))[0];
    await post("/api/v1/experiments", { id, study: study(form), seed });
    location.href = `/experiments/${id}`;
  }

  function begin() {
    const form = document.getElementById("planner");
    if (!form) return;
    const fault = document.getElementById("planner-error");
    const guarded = (work, button) => async (event) => {
      event.preventDefault();
      fault.textContent = "";
      button.setAttribute("aria-busy", "true");
      try { await work(form); } catch (problem) { fault.textContent = problem.message; fault.scrollIntoView({ block: "nearest" }); }
      button.removeAttribute("aria-busy");
    };
    form.addEventListener("submit", guarded(plan, form.querySelector("button[type=submit]")));
    for (const [id, work] of Object.entries({ simulate, save, start })) {
      const button = document.getElementById(id);
      button?.addEventListener("click", guarded(work, button));
    }
    for (const [name, value] of [["family", "gaussian"], ["requirement", "relative"], ["goal", "best"]]) {
      form[name].addEventListener("change", () => { form.querySelector(`[data-for=${value}]`).hidden = form[name].value !== value; });
    }
  }

  return { begin };
})();

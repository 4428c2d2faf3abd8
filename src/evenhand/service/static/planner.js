// The planner: converts the table to a study; the service computes plans and simulations.
"use strict";

const Planner = (() => {
  const count = (value) => Math.ceil(value).toLocaleString("en");
  const percent = (share) => `${(100 * share).toFixed(1)}%`;
  let bound = null; // lower bound on the average number of samples, from the latest plan
  let latest = null, kept = null; // simulated designs: study, plan, runs and their number

  // A fault of one field: it is shown beside the field.
  class FieldError extends Error {
    constructor(field, message) { super(message); this.field = field; }
  }

  function number(text, what, field, fits = () => true, must = "") {
    const value = Number(text.trim());
    if (text.trim() === "" || !Number.isFinite(value)) throw new FieldError(field, `${what} must be a number; it is “${text.trim()}”.`);
    if (!fits(value)) throw new FieldError(field, `${what} must be ${must}; it is ${value}.`);
    return value;
  }

  // The kind, and whether the bound is a margin or a ratio, of requirements relative to a control.
  const RELATIVE = { relative: ["floors", "margin"], "relative-ratio": ["floors", "ratio"], "relative-caps": ["caps", "margin"] };

  function requirement(kind, bound, named, policies) {
    if (kind.value === "none") return { kind: "none" };
    const value = number(bound.value, "The bound", bound);
    const relative = RELATIVE[kind.value];
    if (relative) {
      const control = named.value.trim();
      if (!policies.includes(control)) throw new FieldError(named, `The control must be one of the policies; it is “${control}”.`);
      return { kind: relative[0], relative_to: control, [relative[1]]: value };
    }
    return { kind: kind.value, [kind.value === "floors" || kind.value === "ratio" ? "at_least" : "at_most"]: value };
  }

  function family(kind, sd) {
    if (kind.value !== "gaussian") return { name: kind.value };
    return { name: "gaussian", sd: number(sd.value, "The standard deviation", sd, (found) => found > 0, "above 0") };
  }

  // A table of expected means: names of groups, and a row for each policy.
  function expected(field) {
    const lines = field.value.trim().split(/\n/).map((line) => line.split(/[,;\t]/).map((part) => part.trim()));
    const groups = lines[0].slice(1), rows = lines.slice(1);
    if (groups.length < 1 || rows.length < 1) throw new FieldError(field, "The table needs a line with the names of the groups, and a line for each policy.");
    for (const row of rows) if (row.length !== groups.length + 1) throw new FieldError(field, `“${row[0]}” has ${row.length - 1} means for ${groups.length} groups.`);
    const means = rows.map((row) => row.slice(1).map((mean) => number(mean, `A mean of “${row[0]}”`, field)));
    return { groups, policies: rows.map((row) => row[0]), means };
  }

  function numbers(form, name, what) {
    return form[name].value.split(/[,;\s]+/).filter(Boolean).map((text) => number(text, what, name));
  }

  function shares(form, groups) {
    const given = numbers(form, "shares", "A share"), sum = given.reduce((a, b) => a + b, 0);
    if (groups.length !== given.length) throw new FieldError("shares", `There are ${groups.length} groups and ${given.length} shares; give one for each.`);
    if (Math.abs(sum - 1) > 1e-6) throw new FieldError("shares", `The shares must add up to 1; they add up to ${Number(sum.toPrecision(6))}.`);
    return Object.fromEntries(groups.map((group, at) => [group, given[at]]));
  }

  // The whole protocol and the expected means: the same for a plan, a simulation, a study file and a start.
  function study(form) {
    const { groups, policies, means } = expected(form.table), truth = { means };
    const constraint = requirement(form.requirement, form.bound, form.control, policies);
    const problem = { policies, groups: shares(form, groups), family: family(form.family, form.sd), constraint };
    const procedure = {
      delta: number(form.delta.value, "The risk", "delta", (risk) => risk > 0 && risk < 0.5, "above 0 and below 0.5"),
      max_samples: number(form.most.value, "The latest end", "most", (most) => Number.isInteger(most) && most > 0, "a whole number above 0"),
    };
    if (form.goal.value === "screen") problem.goal = "screen";
    else for (const [name, what] of [["indifference", "“Good enough”"], ["tolerance", "“An answer may miss its bounds by”"]]) {
      const width = number(form[name].value, what, name, (found) => found >= 0, "0 or more");
      if (width !== 0) procedure[name] = width;
    }
    if (form.room.value.trim() !== "") problem.max_policies = number(form.room.value, "The room for policies", "room", (room) => Number.isInteger(room) && room >= policies.length, `a whole number, at least ${policies.length}`);
    const rails = Guardrails.study(policies, groups, { FieldError, expected, family, requirement });
    if (rails.problem.length) { problem.guardrails = rails.problem; truth.guardrails = rails.truth; }
    const costs = numbers(form, "costs", "A cost");
    if (costs.length && costs.length !== policies.length) throw new FieldError("costs", `There are ${policies.length} policies and ${costs.length} costs; give one for each, or none.`);
    if (costs.length) problem.costs = Object.fromEntries(policies.map((policy, at) => [policy, costs[at]]));
    return { title: form.elements.title?.value.trim() || "Planned in the browser", problem, procedure, truth };
  }

  const protocol = ({ problem, procedure }) => JSON.stringify({ problem, procedure });

  // The field that an error of the service is about.
  const ABOUT = [[/max_policies/i, "room"], [/tolerance/i, "tolerance"], [/shares?|group/i, "shares"], [/delta|risk/i, "delta"], [/at_least|at_most|floor|cap|margin|ratio|gap|requirement/i, "bound"], [/mean|truth|polic|name/i, "table"], [/max_samples|initial/i, "most"], [/indifference/i, "indifference"], [/cost/i, "costs"], [/\bsd\b|deviation/i, "sd"], [/replications/i, "replications"], [/\bid\b|experiment '/i, "id"], [/title/i, "title"]];

  function fieldOf(form, problem) {
    if (problem.field instanceof Element) return problem.field;
    const rail = problem.field ? undefined : Guardrails.about(problem.message);
    if (rail) return rail;
    const name = problem.field ?? ABOUT.find(([words]) => words.test(problem.message))?.[1];
    return name ? form.elements[name] : undefined;
  }

  function clear(form) {
    document.getElementById("planner-error").textContent = "";
    document.getElementById("planner-said").textContent = "";
    for (const one of document.querySelectorAll(".field-error")) one.remove();
    for (const field of form.elements) { field.removeAttribute("aria-invalid"); field.removeAttribute("aria-describedby"); }
  }

  // Shows a fault beside its field, or below the form where it is about none.
  function showFault(form, problem) {
    const field = fieldOf(form, problem);
    if (!field || field.closest("[hidden]")) {
      const fault = document.getElementById("planner-error");
      fault.textContent = problem.message;
      fault.scrollIntoView({ block: "nearest" });
      return;
    }
    field.closest("details")?.setAttribute("open", "");
    const id = `error-${field.name.replace(" ", "-")}`;
    field.after(Page.element("small", problem.message, { class: "field-error", id, role: "alert" }));
    field.setAttribute("aria-invalid", "true");
    field.setAttribute("aria-describedby", id);
    field.focus();
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
    return ` Would ${found.proposal.acceptable.join(" or ")} do? Good enough within ${found.proposal.indifference}, the least number of samples falls to ${count(found.proposal.samples_at_least)} on average.`;
  }

  async function plan(form, asked = study(form)) {
    const found = await post("/api/v1/plan", { study: asked });
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
    return found;
  }

  // kl(delta, 1 - delta)
  const risk = (delta) => (1 - 2 * delta) * Math.log((1 - delta) / delta);

  async function simulate(form) {
    const bar = document.getElementById("simulation-progress"), said = document.getElementById("simulation-words");
    const asked = study(form);
    const replications = number(form.elements.replications.value, "The number of runs", "replications", (runs) => Number.isInteger(runs) && runs >= 1 && runs <= 10000, "a whole number from 1 to 10,000");
    const planned = await plan(form, asked);
    const job = await post("/api/v1/simulate", { study: asked, replications });
    bar.hidden = false;
    try {
      for (;;) {
        const seen = await (await fetch(`${base}/api/v1/simulate/${job.id}`)).json();
        bar.value = seen.done / seen.total;
        said.textContent = `${seen.done} of ${seen.total} runs`;
        if (seen.state === "failed") throw new Error(seen.error);
        if (seen.state === "done") {
          latest = { asked, planned, runs: seen.result };
          show(seen.result);
          compare();
          note(form);
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
    } finally { bar.hidden = true; said.textContent = ""; }
  }

  function show(runs) {
    const { quantiles, mean } = runs.samples, { rate, low, high } = runs.correct;
    const cost = runs.cost === undefined ? "" : ` A run cost ${count(runs.cost.mean)} on average.`;
    const words = `Right in ${percent(rate)} of ${runs.replications} runs (${percent(low)} to ${percent(high)}), after ${count(mean)} samples on average; ${percent(runs.stopped)} decided before the latest end.${cost}`;
    const plot = Page.element("div", undefined, { role: "img", "aria-label": "Share of runs that have ended, by samples; the numbers are in the table" });
    const points = Object.entries(quantiles).map(([chance, samples]) => [samples, 100 * Number(chance)]).sort((a, b) => a[1] - b[1]);
    document.getElementById("simulation-result").replaceChildren(
      Page.element("p", words, { class: "lead" }), plot,
      table(["Chance to have ended", "Samples"], points.map(([samples, chance]) => [`${chance.toFixed(0)}%`, count(samples)])));
    Charts.ended(plot, points, bound);
    for (const id of ["keep", "report"]) document.getElementById(id)?.removeAttribute("hidden");
  }

  function rule({ problem }) {
    const words = ({ kind, relative_to: control, ...bounds }) => [kind, ...Object.entries(bounds).map(([name, value]) => `${name.replace("_", " ")} ${value}`), ...(control ? [`relative to ${control}`] : [])].join(", ");
    return [words(problem.constraint), ...(problem.guardrails ?? []).map(({ name, constraint }) => `${name}: ${words(constraint)}`)].join("; ");
  }

  // The design that was kept and the latest, side by side.
  function compare() {
    if (!kept || !latest) return;
    const row = (name, of) => [name, of(kept), of(latest)];
    const by = (chance) => ({ runs }) => count(runs.samples.quantiles[chance]);
    const rows = [
      row("Requirement", ({ asked }) => rule(asked)), row("Risk", ({ asked }) => `${100 * asked.procedure.delta}%`),
      row("Latest end", ({ asked }) => count(asked.procedure.max_samples)),
      row("Answer", ({ asked, planned }) => (asked.problem.goal === "screen" ? planned.feasible.join(", ") || "none" : planned.answer ?? "none")),
      row("Samples on average, at least", ({ planned }) => count(planned.samples_at_least)),
      row("Samples on average, simulated", ({ runs }) => count(runs.samples.mean)),
      row("80% of runs ended by", by("0.8")), row("90% of runs ended by", by("0.9")),
      row("Right", ({ runs }) => percent(runs.correct.rate)), row("Decided before the latest end", ({ runs }) => percent(runs.stopped)),
    ];
    document.getElementById("compare-result").replaceChildren(Page.element("h2", "Two designs"), table(["", "Kept design", "Latest design"], rows));
  }

  // Says whether the protocol that would be started is the one that was simulated.
  function note(form) {
    const place = document.getElementById("start-note");
    if (!place || !latest) return;
    let same = false;
    try { same = protocol(study(form)) === protocol(latest.asked); } catch { /* a field is being edited */ }
    place.textContent = same ? "This starts exactly the protocol that was simulated. The expected means are not part of it." : "The protocol was changed since it was simulated: simulate it again before you start it.";
  }

  function download(text, type, name) {
    const link = Page.element("a", "", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
  }

  async function save(form) {
    download(await post("/planner/study", { study: study(form) }), "application/toml", "study.toml");
  }

  async function report() {
    download(await post("/planner/report", { study: latest.asked, replications: latest.runs.replications }), "text/html", "plan.html");
  }

  async function keep() {
    kept = latest;
    document.getElementById("planner-said").textContent = "Kept. Change the design and simulate again to compare.";
    document.getElementById("compare-result").replaceChildren(Page.element("p", "Kept this design. Change it and simulate again to see both side by side."));
  }

  // Puts the plan into the address: it stays in the browser until somebody sends the link.
  async function share(form) {
    study(form);
    const kept = [...form.elements].filter((field) => field.name && field.name !== "id" && !field.name.startsWith("rail "));
    const fields = Object.fromEntries(kept.map((field) => [field.name, field.value]));
    fields.rails = Guardrails.values();
    history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(fields))}`);
    try { await navigator.clipboard.writeText(location.href); document.getElementById("planner-said").textContent = "The link is copied, and stands in the address bar."; }
    catch { document.getElementById("planner-said").textContent = "The link to this plan stands in the address bar."; }
  }

  function readLink(form) {
    if (location.hash.length < 2) return;
    try {
      for (const [name, value] of Object.entries(JSON.parse(decodeURIComponent(location.hash.slice(1))))) {
        if (name === "rails" && Array.isArray(value)) for (const rail of value) Guardrails.add(rail);
        else if (form.elements[name] && typeof value === "string") form.elements[name].value = value;
      }
    } catch { document.getElementById("planner-error").textContent = "The link to the plan cannot be read: copy it whole."; }
  }

  async function start(form) {
    const id = form.elements.id.value.trim(), seed = crypto.getRandomValues(new Uint32Array(1))[0], asked = study(form);
    if (!/^[A-Za-z0-9_-]{1,64}$/.test(id)) throw new FieldError("id", "The id must be 1 to 64 letters, digits, “-” or “_”.");
    if (latest && protocol(asked) !== protocol(latest.asked)) throw new FieldError("id", "The protocol was changed since it was simulated: simulate it again first.");
    await post("/api/v1/experiments", { id, study: asked, seed });
    location.href = `${base}/experiments/${id}`;
  }

  function choices(form) {
    for (const [name, value] of [["family", "gaussian"], ["requirement", "relative"], ["goal", "best"]]) {
      for (const field of form.querySelectorAll(`[data-for=${value}]`)) field.hidden = !form[name].value.startsWith(value);
    }
    Guardrails.choices();
  }

  function begin() {
    const form = document.getElementById("planner");
    if (!form) return;
    const guarded = (work, button) => async (event) => {
      event.preventDefault();
      clear(form);
      button.setAttribute("aria-busy", "true");
      try { await work(form); } catch (problem) { showFault(form, problem); }
      button.removeAttribute("aria-busy");
    };
    form.addEventListener("submit", guarded((it) => plan(it), form.querySelector("button[type=submit]")));
    for (const [id, work] of Object.entries({ simulate, save, share, keep, report, start })) {
      const button = document.getElementById(id);
      button?.addEventListener("click", guarded(work, button));
    }
    Guardrails.begin(form);
    readLink(form);
    choices(form);
    form.addEventListener("change", () => { choices(form); note(form); });
  }

  return { begin };
})();

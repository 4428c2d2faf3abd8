// The dashboard's own few lines: refresh when the log grows, post from buttons, the planner's form.
"use strict";

const ACTION = { "X-Evenhand": "page", "Content-Type": "application/json" };

async function post(path, body) {
  const key = crypto.randomUUID();
  const answer = await fetch(path, { method: "POST", headers: { ...ACTION, "Idempotency-Key": key }, body: JSON.stringify(body ?? {}) });
  const text = await answer.text();
  const found = (answer.headers.get("content-type") || "").includes("json") ? JSON.parse(text) : text;
  if (!answer.ok) throw new Error(found.error || text);
  return found;
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function watch() {
  const panel = document.getElementById("panel");
  if (!panel) return;
  let first = true;
  const source = new EventSource(panel.dataset.stream);
  source.addEventListener("grown", () => {
    if (!first) panel.dispatchEvent(new Event("grown"));
    first = false;
  });
}

function buttons() {
  for (const button of document.querySelectorAll("button[data-post]")) {
    button.addEventListener("click", async () => {
      const into = document.querySelector(button.dataset.into);
      button.setAttribute("aria-busy", "true");
      try { into.innerHTML = await post(button.dataset.post); }
      catch (problem) { into.replaceChildren(element("p", problem.message, { role: "alert" })); }
      button.removeAttribute("aria-busy");
    });
  }
}

function logIn() {
  const form = document.getElementById("login");
  if (!form) return;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try { location.href = (await post("/login", { key: form.key.value })).to; }
    catch (problem) { document.getElementById("login-error").textContent = problem.message; }
  });
}

function study(form) {
  const lines = form.table.value.trim().split(/\n/).map((line) => line.split(/[,\t]/).map((field) => field.trim()));
  const groups = lines[0].slice(1);
  const shares = form.shares.value.split(",").map(Number);
  if (groups.length !== shares.length) throw new Error(`there are ${groups.length} groups and ${shares.length} shares; give one for each.`);
  const family = { name: form.family.value };
  if (family.name === "gaussian") family.sd = Number(form.sd.value);
  const floor = form.floor.value.trim();
  return {
    title: "Planned in the browser",
    problem: {
      policies: lines.slice(1).map((line) => line[0]),
      groups: Object.fromEntries(groups.map((group, at) => [group, shares[at]])),
      family,
      constraint: floor ? { kind: "floors", at_least: Number(floor) } : { kind: "none" },
    },
    procedure: { delta: Number(form.delta.value) },
    truth: { means: lines.slice(1).map((line) => line.slice(1).map(Number)) },
  };
}

function heat(problem, allocation) {
  const table = element("table", undefined, { class: "heat" });
  const head = table.appendChild(element("thead")).appendChild(element("tr"));
  for (const name of ["", ...Object.keys(problem.groups)]) head.appendChild(element("th", name, { scope: "col" }));
  const body = table.appendChild(element("tbody"));
  problem.policies.forEach((policy, at) => {
    const row = body.appendChild(element("tr"));
    row.appendChild(element("th", policy, { scope: "row" }));
    for (const share of allocation[at]) row.appendChild(element("td", `${(100 * share).toFixed(1)}%`));
  });
  return table;
}

function planner() {
  const form = document.getElementById("planner");
  if (!form) return;
  const fault = document.getElementById("planner-error");
  const guarded = (work) => async (event) => {
    event.preventDefault();
    fault.textContent = "";
    try { await work(); } catch (problem) { fault.textContent = problem.message; }
  };
  form.addEventListener("submit", guarded(async () => {
    const asked = study(form);
    const found = await post("/api/plan", { study: asked });
    const words = found.answer === null ? "None of the policies meets the requirement." : `${found.answer} would be chosen.`;
    const cost = `No procedure with this risk can do with fewer than ${Math.ceil(found.samples_at_least).toLocaleString("en")} samples on average (T* = ${found.time_high.toPrecision(5)}).`;
    document.getElementById("plan-result").replaceChildren(
      element("h2", "Plan"), element("p", words, { class: "lead" }), element("p", cost),
      element("h2", "Where samples should go"), heat(asked.problem, found.allocation));
  }));
  document.getElementById("simulate").addEventListener("click", guarded(() => simulate(form)));
  document.getElementById("save").addEventListener("click", guarded(async () => {
    const file = new Blob([JSON.stringify(study(form), null, 2)], { type: "application/json" });
    element("a", "", { href: URL.createObjectURL(file), download: "study.json" }).click();
  }));
  document.getElementById("start")?.addEventListener("click", guarded(async () => {
    const id = `planned-${Date.now()}`;
    await post("/api/experiments", { id, study: study(form), seed: Math.floor(Math.random() * 2 ** 31) });
    location.href = `/experiments/${id}`;
  }));
}

async function simulate(form) {
  const bar = document.getElementById("simulation-progress");
  const job = await post("/api/simulate", { study: study(form), replications: Number(form.replications.value) });
  bar.hidden = false;
  for (;;) {
    const seen = await (await fetch(`/api/simulate/${job.id}`)).json();
    bar.value = seen.done / seen.total;
    if (seen.state === "failed") { bar.hidden = true; throw new Error(seen.error); }
    if (seen.state === "done") { show(seen.result); bar.hidden = true; return; }
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

function show(runs) {
  const { quantiles, mean } = runs.samples;
  const words = `Right in ${(100 * runs.correct.rate).toFixed(1)}% of ${runs.replications} runs, after ${Math.round(mean).toLocaleString("en")} samples on average; four of five runs end by ${quantiles["0.8"].toLocaleString("en")}.`;
  const plot = element("div", undefined, { role: "img", "aria-label": "Share of runs that have ended, by samples" });
  document.getElementById("simulation-result").replaceChildren(element("h2", "Simulation"), element("p", words, { class: "lead" }), plot);
  const points = Object.entries(quantiles).map(([chance, samples]) => [samples, 100 * Number(chance)]).sort((a, b) => a[0] - b[0]);
  const colours = getComputedStyle(document.documentElement);
  const axis = { stroke: colours.getPropertyValue("--grey"), grid: { stroke: colours.getPropertyValue("--rule") } };
  new uPlot({
    width: Math.min(720, document.getElementById("main").clientWidth - 32), height: 280, scales: { x: { time: false } },
    axes: [{ ...axis, label: "samples" }, { ...axis, label: "% of runs ended" }],
    series: [{ label: "samples" }, { label: "% ended", stroke: colours.getPropertyValue("--blue"), width: 2 }],
  }, [points.map((p) => p[0]), points.map((p) => p[1])], plot);
}

document.addEventListener("DOMContentLoaded", () => { watch(); buttons(); logIn(); planner(); });
document.addEventListener("htmx:config:request", (event) => { event.detail.ctx.request.headers["X-Evenhand"] = "page"; });

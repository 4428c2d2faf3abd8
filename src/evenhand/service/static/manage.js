// The section on the page of an experiment with which an administrator pauses, resumes, imports, corrects and finishes.
"use strict";

const Manage = (() => {
  let place, path, rails;

  const number = (text, what) => {
    const value = Number(text.trim().replace(",", "."));
    if (text.trim() === "" || !Number.isFinite(value)) throw new Error(`${what} must be a number; it is “${text.trim()}”.`);
    return value;
  };

  // The fields of a CSV text: rows of fields, with quotes as in RFC 4180; commas, semicolons or tabs between.
  function fields(text) {
    const plain = text.replace(/^\ufeff/, ""), first = plain.split("\n", 1)[0];
    const between = ["\t", ";", ","].find((one) => first.includes(one)) ?? ",";
    const rows = [[]];
    let field = "", quoted = false;
    for (let at = 0; at <= plain.length; at += 1) {
      const letter = plain[at];
      if (quoted && letter !== undefined) {
        if (letter !== '"') field += letter;
        else if (plain[at + 1] === '"') { field += '"'; at += 1; }
        else quoted = false;
      } else if (letter === '"' && field === "") quoted = true;
      else if (letter === between || letter === "\n" || letter === undefined) {
        rows[rows.length - 1].push(field.replace(/\r$/, ""));
        field = "";
        if (letter === "\n") rows.push([]);
      } else field += letter;
    }
    if (quoted) throw new Error("The file ends inside a quoted field.");
    return rows.filter((row) => row.some((one) => one.trim() !== ""));
  }

  function importedRows(text) {
    const [head = [], ...rows] = fields(text), names = head.map((name) => name.trim());
    const columns = ["policy", "group", "outcome", ...rails].map((name) => {
      if (!names.includes(name)) throw new Error(`The file needs a column “${name}” in its first line; it has: ${names.join(", ")}.`);
      return names.indexOf(name);
    });
    if (rows.length === 0) throw new Error("The file has no row of outcomes.");
    return rows.map((row, at) => {
      const [policy, group, ...values] = columns.map((column) => (row[column] ?? "").trim());
      const told = values.map((value, which) => (which > 0 && value === "" ? null : number(value, `Line ${at + 2}: the ${which ? rails[which - 1] : "outcome"}`)));
      const outcome = rails.length ? Object.fromEntries(told.map((value, which) => [which ? rails[which - 1] : "outcome", value])) : told[0];
      return [policy, group, outcome];
    });
  }

  async function importing(form) {
    const file = form.elements.file.files[0];
    if (!file) throw new Error("Choose a file.");
    const rows = importedRows(await file.text());
    const found = await post(`${path}/import`, { rows, source: form.elements.source.value.trim() || file.name });
    return `Imported ${found.imported.toLocaleString("en")} outcomes from ${file.name}.`;
  }

  // The outcomes on a shared item: a field for each policy, empty for one that was not asked.
  function itemOutcomes(form) {
    const fields = [...form.querySelectorAll("[name^='policy ']")].filter((field) => field.value.trim() !== "");
    if (fields.length === 0) throw new Error("Give the outcome of every policy that answered the item.");
    return Object.fromEntries(fields.map((field) => {
      const policy = field.name.slice("policy ".length), text = field.value.trim();
      return [policy, text.toLowerCase() === "missing" ? null : number(text, policy)];
    }));
  }

  async function amend(form) {
    const { ticket, outcome, reason } = form.elements;
    if (!outcome) {
      await post(`${path}/amend`, { ticket: ticket.value.trim(), outcome: itemOutcomes(form), reason: reason.value.trim() });
      return `Corrected ticket ${ticket.value.trim()}.`;
    }
    const value = number(outcome.value, "The outcome");
    const others = Object.fromEntries(rails.map((rail) => {
      const text = form.elements[`rail ${rail}`].value;
      return [rail, text.trim() === "" ? null : number(text, rail)];
    }));
    const told = rails.length ? { outcome: value, ...others } : value;
    await post(`${path}/amend`, { ticket: ticket.value.trim(), outcome: told, reason: reason.value.trim() });
    return `Corrected ticket ${ticket.value.trim()}.`;
  }

  const plain = (verb, names, words) => async (form) => {
    await post(`${path}/${verb}`, Object.fromEntries(names.map((name) => [name, form.elements[name].value.trim()])));
    return words;
  };

  // The policies that can be withdrawn, in the list of the page.
  const members = () => place.querySelector("#manage-withdraw [name=policy]");

  async function adding(form) {
    const words = await plain("add-policy", ["policy", "reason"], "The policy was added.")(form);
    members().add(new Option(form.elements.policy.value.trim()));
    return words;
  }

  async function withdrawing(form) {
    const words = await plain("withdraw", ["policy", "reason"], "The policy was withdrawn.")(form);
    members().selectedOptions[0].remove();
    return words;
  }

  const acts = {
    import: importing, amend,
    pause: plain("pause", ["reason"], "The experiment is paused."),
    resume: plain("resume", ["reason"], "The experiment continues."),
    finish: plain("finish", ["reason"], "The experiment is finished."),
    "add-policy": adding, withdraw: withdrawing,
  };

  // A message beside the first field that lacks something; returns whether there is one.
  function lacks(form) {
    const field = [...form.elements].find((one) => one.required && (one.type === "checkbox" ? !one.checked : !one.value.trim()));
    if (!field) return false;
    const what = field.closest("label").textContent.trim().split(",")[0];
    form.querySelector("[role=alert]").textContent = field.type === "checkbox" ? "Tick the box to confirm." : `Fill in: ${what}.`;
    field.focus();
    return true;
  }

  async function submit(form) {
    const fault = form.querySelector("[role=alert]"), button = form.querySelector("button");
    fault.textContent = "";
    if (lacks(form)) return;
    button.setAttribute("aria-busy", "true");
    try {
      document.getElementById("manage-said").textContent = await acts[form.dataset.verb](form);
      form.reset();
      form.closest("details").open = false;
      document.getElementById("panel").dispatchEvent(new Event("drawn"));
    } catch (problem) { fault.textContent = problem.message; }
    button.removeAttribute("aria-busy");
  }

  // Shows the acts that fit the state of the experiment.
  function fit() {
    if (!place) return;
    const state = document.getElementById("state").textContent.trim();
    const all = [...place.querySelectorAll("details")];
    for (const act of all) act.hidden = !act.dataset.when.split(" ").includes(state);
    place.hidden = all.every((act) => act.hidden);
  }

  function begin() {
    place = document.getElementById("manage");
    if (!place) return;
    path = `/api/v1/experiments/${place.dataset.id}`;
    rails = JSON.parse(place.dataset.rails);
    for (const form of place.querySelectorAll("form")) form.addEventListener("submit", (event) => { event.preventDefault(); submit(form); });
    fit();
  }

  return { begin, fit };
})();

// The work page: ask for tickets, enter outcomes, drop tickets. Shows only the tickets of this key.
"use strict";

const Work = (() => {
  let place, question, path, tickets;

  const say = (words) => { document.getElementById("work-said").textContent = words; };
  const fail = (words) => { document.getElementById("work-error").textContent = words; };

  // The worker of this page; in proportional mode one for each group, because a worker's tickets are of one group.
  const worker = (group) => (group === undefined ? question.worker : `${question.worker}, ${group}`);
  const open = (group) => [...tickets.querySelectorAll("form")].filter((form) => group === undefined || form.dataset.group === group).length;

  // Asks for tickets; a worker gets the tickets that it holds first.
  async function ask(n, group) {
    const found = await post(`${path}/ask`, { n, worker: worker(group), ...(group === undefined ? {} : { group }) });
    const fresh = found.filter((one) => !document.getElementById(`ticket-${one.ticket}`));
    for (const one of fresh) tickets.append(card(one));
    count();
    return fresh;
  }

  function count() {
    document.getElementById("none-open").hidden = open() > 0;
  }

  function field(label, name, required) {
    const made = Page.element("label", label);
    made.append(Page.element("input", undefined, { name, inputmode: "decimal", autocomplete: "off", ...(required ? { required: "" } : {}) }));
    return made;
  }

  const SUCCESS = ["1", "Success (1)"], FAILURE = ["0", "Failure (0)"], MISSING = ["", "Missing"];

  function choice(title, name, answers) {
    const made = Page.element("fieldset", undefined, { class: "choice" });
    const legend = Page.element("legend");
    legend.append(Page.element("bdi", title));
    made.append(legend);
    for (const [value, words] of answers) {
      const label = Page.element("label", undefined, { class: "big" });
      label.append(Page.element("input", undefined, { type: "radio", name, value, required: "" }), words);
      made.append(label);
    }
    return made;
  }

  // The fields of the outcomes: one, or on a shared item one for each policy that answers it.
  function outcomes(one) {
    if (!one.policies) {
      const primary = question.binary ? choice("Outcome", "outcome", [SUCCESS, FAILURE]) : field(`Outcome: ${question.outcomes}`, "outcome", true);
      return [primary, ...question.guardrails.map((rail) => field(`${rail} (empty if it is missing)`, `rail ${rail}`, false))];
    }
    if (question.binary) return one.policies.map((policy) => choice(policy, `policy ${policy}`, [SUCCESS, FAILURE, MISSING]));
    return one.policies.map((policy) => field(`${policy}: ${question.outcomes} (empty if it is missing)`, `policy ${policy}`, false));
  }

  function card(one) {
    const form = Page.element("form", undefined, { class: "ticket", id: `ticket-${one.ticket}`, ...(one.group && question.mode === "proportional" ? { "data-group": one.group } : {}) });
    const head = Page.element("h3");
    if (one.policies) head.append("An item of ", Page.element("bdi", one.group));
    else head.append(Page.element("bdi", one.policy), ...(one.group ? [" · ", Page.element("bdi", one.group)] : []));
    form.append(head, Page.element("p", `Ticket ${one.ticket}`, { class: "small" }));
    if (!one.group) form.append(groupChoice());
    form.append(...outcomes(one));
    form.append(Page.element("p", undefined, { role: "alert" }));
    const actions = Page.element("p", undefined, { class: "actions" });
    actions.append(Page.element("button", one.policies ? "Record the outcomes" : "Record the outcome", { type: "submit" }));
    form.append(actions, dropping(one, form));
    form.addEventListener("submit", (event) => { event.preventDefault(); guarded(form, () => tell(one, form)); });
    form.addEventListener("keydown", (event) => {
      if (!question.binary || !["0", "1"].includes(event.key) || (event.target.matches("input:not([type=radio]), select"))) return;
      const open = [...form.querySelectorAll("fieldset")].find((set) => !set.querySelector("input:checked")) ?? form.querySelector("fieldset");
      const answer = open.querySelector(`input[value="${event.key}"]`);
      answer.click();
      answer.focus();
      event.preventDefault();
    });
    return form;
  }

  function groupChoice() {
    const label = Page.element("label", "Group"), list = label.appendChild(Page.element("select", undefined, { name: "group", required: "" }));
    list.append(Page.element("option", "", { value: "" }), ...question.groups.map((group) => Page.element("option", group)));
    return label;
  }

  function dropping(one, form) {
    const more = Page.element("details"), reason = field("Reason", "reason", false);
    const button = Page.element("button", "Drop the ticket", { type: "button", class: "secondary outline" });
    button.addEventListener("click", () => guarded(form, async () => {
      const why = form.elements.reason.value.trim();
      if (!why) throw new Error("Say why there will be no outcome.");
      await post(`${path}/drop`, { ticket: one.ticket, reason: why });
      done(form, `Dropped ticket ${one.ticket}.`);
    }));
    more.append(Page.element("summary", "There will be no outcome"), reason, button);
    return more;
  }

  function number(text, what) {
    const value = Number(text.trim().replace(",", "."));
    if (text.trim() === "" || !Number.isFinite(value)) throw new Error(`${what} must be a number; it is “${text.trim()}”.`);
    return value;
  }

  async function tell(one, form) {
    if (one.policies) return tellItem(one, form);
    const given = new FormData(form), value = number(given.get("outcome") ?? "", "The outcome");
    const rails = Object.fromEntries(question.guardrails.map((rail) => [rail, given.get(`rail ${rail}`).trim() === "" ? null : number(given.get(`rail ${rail}`), rail)]));
    const outcome = question.guardrails.length ? { outcome: value, ...rails } : value;
    await post(`${path}/tell`, { ticket: one.ticket, outcome, ...(one.group ? {} : { group: given.get("group") }) });
    done(form, `Recorded ${value} for ticket ${one.ticket}. An administrator can correct it.`);
  }

  async function tellItem(one, form) {
    const given = new FormData(form);
    const told = one.policies.map((policy) => {
      const text = (given.get(`policy ${policy}`) ?? "").trim();
      return [policy, text === "" ? null : number(text, policy)];
    });
    if (told.every(([, value]) => value === null)) throw new Error("All outcomes are missing: drop the ticket instead.");
    await post(`${path}/tell`, { ticket: one.ticket, outcome: Object.fromEntries(told) });
    const words = told.map(([policy, value]) => `${policy} ${value ?? "missing"}`).join(", ");
    done(form, `Recorded ${words} for ticket ${one.ticket}. An administrator can correct it.`);
  }

  function done(form, words) {
    form.remove();
    count();
    say(words);
    (tickets.querySelector("input") ?? document.querySelector("#ask button")).focus();
  }

  async function guarded(form, work) {
    const fault = form.querySelector("[role=alert]"), button = form.querySelector("button[type=submit]");
    fault.textContent = "";
    button.setAttribute("aria-busy", "true");
    try { await work(); } catch (problem) { fault.textContent = problem.message; }
    button.removeAttribute("aria-busy");
  }

  async function next(form) {
    fail(""); say("");
    const button = form.querySelector("button"), group = form.elements.group?.value;
    button.setAttribute("aria-busy", "true");
    try {
      const fresh = await ask(open(group) + 1, group);
      if (fresh.length) fresh.map((one) => document.getElementById(`ticket-${one.ticket}`))[0].querySelector("select, input").focus();
      else say("The experiment has ended, or its last tickets are out: no ticket was issued.");
    } catch (problem) { fail(problem.message); }
    button.removeAttribute("aria-busy");
  }

  async function begin() {
    place = document.getElementById("work");
    if (!place) return;
    question = JSON.parse(place.dataset.question);
    path = `/api/v1/experiments/${place.dataset.id}`;
    tickets = document.getElementById("tickets");
    const form = document.getElementById("ask");
    form.addEventListener("submit", (event) => { event.preventDefault(); next(form); });
    try {
      for (const [group, held] of question.held) await ask(held, group ?? undefined);
    } catch (problem) { fail(problem.message); }
  }

  return { begin };
})();

// The guard-rails of the planner: a fieldset for each further outcome, with its bound and its expected means.
"use strict";

const Guardrails = (() => {
  const NAMES = ["name", "family", "sd", "requirement", "bound", "control", "table"];
  const all = () => [...document.querySelectorAll("#rails fieldset")];
  const field = (rail, name) => rail.querySelector(`[name="rail ${name}"]`);

  // Shows the fields that the choices of a guard-rail need.
  function choices() {
    for (const rail of all()) {
      field(rail, "sd").closest("label").hidden = field(rail, "family").value !== "gaussian";
      field(rail, "control").closest("label").hidden = !field(rail, "requirement").value.startsWith("relative");
    }
  }

  function add(values = {}) {
    const rail = document.getElementById("rail").content.firstElementChild.cloneNode(true);
    for (const name of NAMES) if (typeof values[name] === "string") field(rail, name).value = values[name];
    rail.querySelector("button").addEventListener("click", () => {
      const form = document.getElementById("planner");
      rail.remove();
      form.dispatchEvent(new Event("change"));
      document.getElementById("add-rail").focus();
    });
    document.getElementById("rails").append(rail);
    document.getElementById("guardrails").open = true;
    choices();
    return rail;
  }

  // Returns the tables of the problem and of the truth; `read` has the planner's checks of fields.
  function study(policies, groups, read) {
    const problem = [], truth = {};
    for (const rail of all()) {
      const name = field(rail, "name").value.trim();
      if (name === "") throw new read.FieldError(field(rail, "name"), "A guard-rail needs a name.");
      const family = read.family(field(rail, "family"), field(rail, "sd"));
      const constraint = read.requirement(field(rail, "requirement"), field(rail, "bound"), field(rail, "control"), policies);
      const given = read.expected(field(rail, "table"));
      if (given.groups.join() !== groups.join() || given.policies.join() !== policies.join()) {
        throw new read.FieldError(field(rail, "table"), `The means of “${name}” need the policies and groups of the first table, in the same order.`);
      }
      problem.push({ name, family, constraint });
      truth[name] = given.means;
    }
    return { problem, truth };
  }

  // The field for an error of the service about a guard-rail.
  function about(message) {
    const rails = all(), named = rails.find((rail) => message.includes(`'${field(rail, "name").value.trim()}'`));
    return rails.length && /guard-?rail/i.test(message) ? field(named ?? rails[0], "name") : undefined;
  }

  const values = () => all().map((rail) => Object.fromEntries(NAMES.map((name) => [name, field(rail, name).value])));

  function begin(form) {
    document.getElementById("add-rail").addEventListener("click", () => {
      const rail = add({ table: form.table.value });
      form.dispatchEvent(new Event("change"));
      field(rail, "name").focus();
    });
  }

  return { about, add, begin, choices, study, values };
})();

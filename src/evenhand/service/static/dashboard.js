// Dashboard script: refresh on new content, post from buttons, sign in and out.
"use strict";

// The path below which the service is reached, as /trials; every path that the page requests begins with it.
const base = document.documentElement.dataset.base;

async function post(path, body) {
  const headers = { "X-Evenhand": "page", "Content-Type": "application/json", "Idempotency-Key": Page.key() };
  const answer = await fetch(base + path, { method: "POST", headers, body: JSON.stringify(body ?? {}) });
  const text = await answer.text();
  const found = (answer.headers.get("content-type") || "").includes("json") ? JSON.parse(text) : text;
  if (!answer.ok) throw new Error(found.error || text);
  return found;
}

const Page = {
  // randomUUID is not available over plain HTTP from another machine
  key: () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join(""),

  element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  },

  watch() {
    const panel = document.getElementById("panel");
    if (!panel) return;
    let state = document.getElementById("state").textContent, open = [];
    let first = true;
    const listen = () => {
      const source = new EventSource(panel.dataset.stream);
      source.addEventListener("drawn", () => {
        if ((!first || panel.querySelector("[data-waiting]")) && !document.hidden) {
          panel.dispatchEvent(new Event("drawn"));
          document.querySelector("input[type=search]").dispatchEvent(new Event("refresh"));
        }
        first = false;
      });
      // a browser does not try again after a refusal, as of a proxy while the service restarts
      source.addEventListener("error", () => { if (source.readyState === EventSource.CLOSED) setTimeout(listen, 10000); });
    };
    listen();
    document.addEventListener("visibilitychange", () => { if (!document.hidden) panel.dispatchEvent(new Event("drawn")); });
    document.addEventListener("htmx:before:swap", () => { open = [...panel.querySelectorAll("details[open]")].map((one) => one.id); });
    document.addEventListener("htmx:after:swap", () => {
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      Charts.evidence();
      Page.origin();
      Manage.fit();
      const now = document.getElementById("state").textContent;
      if (now === state) return; // a screen reader announces changes of state, not every refresh
      state = now;
      document.getElementById("said").textContent = document.getElementById("sentence").textContent;
    });
    Charts.evidence();
    Page.origin();
  },

  // Commands to copy name the address under which this page was opened.
  origin() {
    for (const place of document.querySelectorAll("[data-origin]")) place.textContent = location.origin + base;
  },

  buttons() {
    for (const button of document.querySelectorAll("button[data-post]")) {
      button.addEventListener("click", async () => {
        const into = document.querySelector(button.dataset.into);
        button.setAttribute("aria-busy", "true");
        try { into.innerHTML = await post(button.dataset.post); }
        catch (problem) { into.replaceChildren(Page.element("p", problem.message, { role: "alert" })); }
        button.removeAttribute("aria-busy");
        document.getElementById("panel")?.dispatchEvent(new Event("drawn"));
      });
    }
    for (const button of document.querySelectorAll("button[data-act]")) {
      button.addEventListener("click", async () => { location.href = (await post(button.dataset.act)).to; });
    }
    for (const link of document.querySelectorAll("a[data-slow]")) {
      link.addEventListener("click", () => { document.getElementById("said").textContent = link.dataset.slow; });
    }
  },

  logIn() {
    const form = document.getElementById("login");
    form?.addEventListener("submit", async (event) => {
      event.preventDefault();
      try { location.href = (await post("/login", { key: form.key.value.trim() })).to; }
      catch (problem) { document.getElementById("login-error").textContent = problem.message; }
    });
  },
};

document.addEventListener("DOMContentLoaded", () => { Page.watch(); Page.buttons(); Page.logIn(); Planner.begin(); Work.begin(); Manage.begin(); });
document.addEventListener("htmx:config:request", (event) => { event.detail.ctx.request.headers["X-Evenhand"] = "page"; });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", Charts.again);
addEventListener("resize", Charts.again);

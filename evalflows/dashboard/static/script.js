// What pages do beyond links and forms: they fill in while an experiment runs, and rows are reached by keyboard.
// Every page works without it.
"use strict";

const typing = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

// A table with `data-rows`: j and k, or the arrows, move between rows; Enter opens the row's first link or details.
const rows = () => [...document.querySelectorAll("table[data-rows] > tbody > tr[tabindex]")].filter((row) => row.offsetParent);

function moveRow(step) {
  const all = rows();
  if (!all.length) return false;
  const at = all.indexOf(document.activeElement.closest("tr[tabindex]"));
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

// A list with `data-list`: what one of its links leads to is shown in the pane beside it, and stays in the address.
const listed = () => [...document.querySelectorAll("[data-list] a[data-fragment]")];
const fragments = new Map();

function fragment(link) {
  const address = link.dataset.fragment;
  if (!fragments.has(address)) {
    const got = fetch(address, { headers: { Accept: "text/html" } }).then((answer) => (answer.ok ? answer.text() : Promise.reject()));
    got.catch(() => fragments.delete(address));
    fragments.set(address, got);
  }
  return fragments.get(address);
}

async function read(link) {
  const all = listed();
  all.forEach((one) => one.toggleAttribute("aria-current", one === link));
  link.setAttribute("aria-current", "true");
  link.scrollIntoView({ block: "nearest" });
  try {
    const html = await fragment(link);
    if (link.getAttribute("aria-current") !== "true") return; // another one was chosen meanwhile
    const pane = document.querySelector("[data-pane]");
    pane.innerHTML = html;
    pane.scrollTop = 0;
    history.replaceState(null, "", link.href);
    const next = all[all.indexOf(link) + 1];
    if (next) fragment(next);
  } catch {
    location.assign(link.href);
  }
}

function moveInList(step) {
  const all = listed();
  if (!all.length) return false;
  const at = all.findIndex((one) => one.getAttribute("aria-current") === "true");
  const next = all[Math.min(all.length - 1, Math.max(0, at + step))];
  if (next !== all[at]) read(next);
  return true;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-list] a[data-fragment]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  read(link);
});

const KEYS = {
  j: () => moveInList(1) || moveRow(1),
  k: () => moveInList(-1) || moveRow(-1),
  n: () => follow('a[rel="next"]'),
  p: () => follow('a[rel="prev"]'),
  c: copyLink,
  "/": search,
};

function copyLink() {
  navigator.clipboard?.writeText(location.href).then(() => {
    const told = document.createElement("p");
    told.className = "told";
    told.setAttribute("role", "status");
    told.textContent = "Link copied";
    document.body.append(told);
    setTimeout(() => told.remove(), 1500);
  });
  return true;
}

function search() {
  const field = document.querySelector('main input[type="search"]');
  if (!field) return false;
  const folded = field.closest("details");
  if (folded) folded.open = true;
  field.focus();
  return true;
}

function follow(selector) {
  const link = document.querySelector(selector);
  if (link) link.click();
  return Boolean(link);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (event.key === "Enter" && event.target.matches("tr[tabindex]")) {
    const opener = event.target.querySelector("summary, a[href]");
    if (opener) opener.click();
    return;
  }
  const act = KEYS[event.key];
  if (act && act()) event.preventDefault();
});

// A line at the top moves while the next page is made.
addEventListener("beforeunload", () => document.documentElement.classList.add("loading"));
addEventListener("pageshow", () => document.documentElement.classList.remove("loading"));

// A form with `data-auto` is sent when a choice changes.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-auto]");
  if (form) form.requestSubmit();
});

// `data-load` on a <details>: its content is fetched when it is opened for the first time.
document.addEventListener(
  "toggle",
  async (event) => {
    const details = event.target;
    const address = details.dataset?.load;
    if (!address || !details.open || details.dataset.loaded) return;
    details.dataset.loaded = "yes";
    const holder = details.querySelector("[data-content]");
    try {
      const answer = await fetch(address, { headers: { Accept: "text/html" } });
      holder.innerHTML = answer.ok ? await answer.text() : "<p>This could not be loaded.</p>";
    } catch {
      holder.textContent = "This could not be loaded.";
      delete details.dataset.loaded;
    }
  },
  true,
);

// A page that may change is fetched again, and its content replaced, unless somebody works in it.
const refresh = Number(document.body.dataset.refresh || 0);
if (refresh) setInterval(fillIn, refresh * 1000);

async function fillIn() {
  const main = document.querySelector("main");
  if (document.hidden || typing(document.activeElement) || String(getSelection())) return;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    morph(main, fresh.querySelector("main"));
    if (!fresh.body.dataset.refresh) location.reload();
  } catch {
    // the server has ended; the page stays as it is
  }
}

// What an element leads to, by which it is found again where others came before it.
const keyOf = (node) => node.querySelector?.("a[href]")?.getAttribute("href");

// Makes a part of the page like a fresh one. What is the same stays, with its focus; so does what somebody unfolded.
function morph(old, fresh) {
  if (old.isEqualNode(fresh) || old.dataset?.loaded) return;
  if (old.nodeName !== fresh.nodeName || old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) old.data = fresh.data;
    else old.replaceWith(fresh);
    return;
  }
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) old.setAttribute(name, value);
  const now = [...fresh.childNodes];
  now.forEach((node, place) => {
    const there = old.childNodes[place];
    const isKnown = [...old.children].some((one) => keyOf(one) === keyOf(node));
    if (!there || (keyOf(there) && !isKnown && now.length > old.childNodes.length)) old.insertBefore(node, there ?? null);
    else morph(there, node);
  });
  while (old.childNodes.length > now.length) old.lastChild.remove();
}

// Review: `data-key` on a button, link or field is its key; the first one on the page counts. Escape leaves a field.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (typing(event.target)) {
      if (event.key === "Escape" && event.target.dataset.key) event.target.blur();
      return;
    }
    const holder = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (!holder) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (holder.matches("input, textarea")) holder.focus();
    else holder.click();
  },
  true,
);

// A label is sent, and the next item, which is fetched while this one is read, is shown once it has been stored.
document.addEventListener("click", (event) => {
  const button = event.target.closest("form[data-item] button[data-answer]");
  if (button) giveLabel(button.form, button.dataset.answer);
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-item]")) return;
  event.preventDefault();
  if (event.target.elements.answer) giveLabel(event.target, event.target.elements.answer.value);
});

// How long a person takes for a label: the time between what they do counts, but no more than a minute of each pause,
// and none while the page is hidden.
const LONGEST_PAUSE_MS = 60000;
let took = 0;
let acted = performance.now();
function act() {
  const now = performance.now();
  if (!document.hidden) took += Math.min(now - acted, LONGEST_PAUSE_MS);
  acted = now;
}
function secondsTaken() {
  act();
  return (took / 1000).toFixed(1);
}
if (document.querySelector("form[data-item]")) {
  for (const name of ["keydown", "pointerdown", "pointermove", "scroll"]) addEventListener(name, act, { capture: true, passive: true });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) took += Math.min(performance.now() - acted, LONGEST_PAUSE_MS);
    acted = performance.now();
  });
}

let ahead;

function lookAhead() {
  took = 0;
  acted = performance.now();
  const form = document.querySelector("form[data-item]");
  if (!form) return;
  ahead = fetch(form.dataset.ahead, { headers: { Accept: "text/html" } }).then((answer) => (answer.ok ? answer.text() : Promise.reject()));
  ahead.catch(() => {});
}
lookAhead();
if (document.querySelector("form[data-item]")) addEventListener("popstate", () => location.reload());

async function giveLabel(form, answer) {
  if (form.dataset.sending) return;
  form.dataset.sending = "yes";
  const { failed } = await post(`${location.pathname}/labels${location.search}`, {
    item: form.dataset.item,
    answer,
    comment: form.elements.comment.value,
    seconds: secondsTaken(),
    trace: form.elements.trace?.value,
    drawn: form.elements.drawn?.value,
    drawn_from: form.elements.drawn_from?.value,
  });
  if (failed) {
    say(form.querySelector("[role=status]"), failed, true);
    delete form.dataset.sending;
    return;
  }
  try {
    form.closest("[data-review]").outerHTML = await ahead;
    history.pushState(null, "", form.dataset.next);
    scrollTo(0, 0);
    lookAhead();
  } catch {
    location.assign(form.dataset.next);
  }
}

// A person's name is given once in a browser.
const names = document.querySelectorAll('input[name="by"]');
try {
  for (const field of names) {
    field.value ||= localStorage.getItem("name") ?? "";
    field.addEventListener("change", () => localStorage.setItem("name", field.value));
  }
} catch {
  // this browser keeps nothing
}

// Sends JSON, or a file. Returns what the page is told, or `failed`: why it was not stored.
async function post(address, content, type = "application/json") {
  try {
    const answer = await fetch(address, {
      method: "POST",
      headers: { "Content-Type": type, Accept: "application/json", "X-Evalflows-Page": document.body.dataset.proof ?? "" },
      body: type === "application/json" ? JSON.stringify(content) : content,
    });
    const told = await answer.json().catch(() => ({}));
    return answer.ok || answer.status === 409 ? told : { failed: told.error ?? `Not stored: status ${answer.status}` };
  } catch {
    return { failed: "Not stored: the dashboard does not answer, or the file cannot be read." };
  }
}

function say(status, text, isProblem) {
  status.className = isProblem ? "status failed" : "status";
  status.textContent = text;
}

// A form with `data-post` is sent as JSON, to that address or, if it has no slash, below the page's own. With
// `data-file`, its file is sent, and the rest in the address. What was stored is shown: where it is now, in a sentence,
// or by this page anew; so is what others have changed since this page was made (409). Attributes are read by name: a
// field of that name would stand in for `form.dataset`.
const sent = new WeakSet();
document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-post]");
  if (!form) return;
  event.preventDefault();
  if (sent.has(form)) return;
  sent.add(form);
  const status = form.querySelector("[role=status]");
  const given = Object.fromEntries(new FormData(form, event.submitter));
  const file = form.hasAttribute("data-file") && given.file;
  say(status, "Sending …", false);
  const to = form.getAttribute("data-post");
  const address = to.startsWith("/") ? to : `${location.pathname}/${to}${location.search}`;
  const told = file
    ? await post(`${address}?${new URLSearchParams({ ...given, file: file.name })}`, file, "application/octet-stream")
    : await post(address, given);
  sent.delete(form);
  if (told.failed) say(status, told.failed, true);
  else if (told.location) location.assign(told.location);
  else if (told.said) say(status, told.said, false);
  else location.reload();
});

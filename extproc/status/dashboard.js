// Shows /status, or a notice if it cannot. Names in the response come from other parties, so they
// reach the page as text only, never as markup.
"use strict";

const POLL_MS = 1000;
const MAX_SHARE = 0.25; // of the time: if a response takes long, the next request is later
const PATIENCE_MS = 3000;
const MAX_ROWS = 300; // endpoints on the page; if there are more, those with issues come first
const MAX_CELLS = 12; // slots with a cell each; more of them are drawn as shares
const MAX_CHARS = 300;
const MAX_NAME_CHARS = 60;
const MAX_PAST = 300; // the maximum number of points in the small curves
const MIN_PAST = 30; // the number that fills the whole width
const MIN_SHOWN = 8; // fewer are not drawn

const KINDS = ["leased", "foreign", "idle", "unusable"];

const MEANINGS = {
  served: "answered to the end",
  passed: "took no slot",
  withdrawn: "the client left while it waited",
  broken: "cut off after it had a slot",
  "queue-full": "the queue was full",
  "queue-timeout": "no slot within its time limit",
  "no-endpoint": "no server was ready",
  "shutting-down": "the picker was shutting down",
  "bad-request": "the request was invalid",
  cancelled: "an operator ended it",
  "upload-stalled": "the rest of its body did not arrive, or too slowly",
  shed: "sheddable, and no slot was free",
  evicted: "removed from a full queue by a more critical request",
  "model-not-found": "no server has its model",
  "blocked-path": "its path is blocked",
  "poison-request": "servers died while they processed it",
  "internal-error": "the picker lost track of it: a bug",
};
const NO_REJECTIONS = ["served", "passed", "withdrawn"];
const HEALTHS = ["ready", "degraded", "loading", "asleep", "down"];

const byId = (id) => document.getElementById(id);
const byName = new Intl.Collator("en", { numeric: true });
const whole = new Intl.NumberFormat("en");
const rowsByAddress = new Map();
const past = { running: [], queued: [] };
let answeredAt = null; // when the picker last answered, a Date
let failure = "";

// Words

function clipped(text, maxChars = MAX_CHARS) {
  const all = Array.from(String(text));
  return all.length > maxChars ? all.slice(0, maxChars).join("") + "…" : all.join("");
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 9.95) return `${value.toFixed(1)} s`;
  const rounded = Math.round(value);
  if (rounded < 60) return `${rounded} s`;
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
  if (rounded < 86400) return `${Math.floor(rounded / 3600)} h ${Math.floor((rounded % 3600) / 60)} min`;
  return `${Math.floor(rounded / 86400)} d ${Math.floor((rounded % 86400) / 3600)} h`;
}

function counted(number, one, many) {
  return `${whole.format(number)} ${number === 1 ? one : many}`;
}

function slotsInWords(slots) {
  const unusable = slots.unusable ? `, ${slots.unusable} unusable` : "";
  return `${slots.leased} leased, ${slots.foreign} foreign, ${slots.idle} idle${unusable} of ${slots.total} slots`;
}

// Elements: only what differs is touched, so that a reader's place and selection stay

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function describe(element, attribute, text) {
  if (element.getAttribute(attribute) !== text) element.setAttribute(attribute, text);
}

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function replaceWhenChanged(parent, facts, make) {
  const key = JSON.stringify(facts);
  if (parent.dataset.key === key) return;
  parent.dataset.key = key;
  parent.replaceChildren(...make());
}

// Parts of the page

function showSlots(slots) {
  const busy = slots.leased + slots.foreign;
  write(byId("slots-busy"), whole.format(busy));
  write(byId("slots-of"), `of ${whole.format(slots.total)} busy`);
  for (const kind of KINDS) {
    write(byId(`slots-${kind}`), whole.format(slots[kind]));
    const part = byId("slots-bar").querySelector(`.${kind}`);
    part.style.flexGrow = slots[kind];
    part.hidden = !slots[kind];
  }
  describe(byId("slots-bar"), "aria-label", slotsInWords(slots));
}

function showGlance(status, endpoints) {
  const counts = new Map();
  for (const { health } of endpoints) counts.set(health, (counts.get(health) || 0) + 1);
  const ready = counts.get("ready") || 0;
  write(byId("ready"), whole.format(ready));
  write(byId("ready-of"), `of ${whole.format(endpoints.length)} ready`);
  const others = HEALTHS.slice(1).filter((health) => counts.has(health));
  const words = others.map((health) => `${counts.get(health)} ${health}`);
  for (const wanted of ["draining", "disabled"]) {
    const many = endpoints.filter(({ intent }) => intent === wanted).length;
    if (many) words.push(`${many} ${wanted}`);
  }
  write(byId("healths"), words.join(", ") || (endpoints.length ? "no issues" : "none"));
  write(byId("running"), whole.format(status.running));
  const envoys = status.envoys.length;
  const open = `${counted(status.exchanges, "exchange", "exchanges")} open`;
  write(byId("envoys"), envoys ? `${open}, ${counted(envoys, "Envoy", "Envoys")}` : open);
  const queue = status.queue;
  write(byId("queued"), whole.format(queue.queued));
  write(byId("queued-of"), queue.queued === 1 ? "request" : "requests");
  const criticalities = Object.entries(queue.by_criticality).filter(([, count]) => count);
  write(byId("criticalities"), criticalities.map(([name, count]) => `${count} ${name}`).join(", ") || "none");
  showPast("running", status.running);
  showPast("queued", queue.queued);
}

function showPast(name, value) {
  const values = past[name];
  values.push(value);
  if (values.length > MAX_PAST) values.shift();
  const most = Math.max(...values);
  const curve = byId(`${name}-past`);
  const width = Math.max(MIN_PAST, values.length);
  const first = width - values.length;
  const points = values.map((one, index) => `${first + index + 1} ${100 - (100 * one) / Math.max(1, most)}`);
  curve.classList.toggle("is-short", values.length < MIN_SHOWN);
  curve.setAttribute("viewBox", `0 0 ${width} 100`);
  const edge = `${first} ${points[0].split(" ")[1]}L${points.join("L")}`;
  curve.querySelector(".edge").setAttribute("d", `M${edge}`);
  curve.querySelector(".area").setAttribute("d", `M${first} 100L${edge}L${width} 100Z`);
  describe(curve, "aria-label", `at most ${whole.format(most)} since this page was opened, or in the last five minutes`);
}

function showQueue(queue) {
  replaceWhenChanged(byId("queue"), queue.by_criticality, () =>
    Object.entries(queue.by_criticality).map(([name, count]) => {
      const row = element("tr");
      const head = element("th", "", clipped(name));
      head.scope = "row";
      row.append(head, element("td", "number", whole.format(count)));
      return row;
    }),
  );
  write(byId("longest"), seconds(queue.longest_wait_s));
  write(byId("expected"), queue.queued && queue.expected_s === null ? "not known yet" : seconds(queue.expected_s));
  write(byId("max"), whole.format(queue.max_requests));
}

function showEnded(outcomes, uptime) {
  const all = Object.values(outcomes).reduce((sum, count) => sum + count, 0);
  const rank = (name) => (NO_REJECTIONS.includes(name) ? NO_REJECTIONS.indexOf(name) : NO_REJECTIONS.length);
  const entries = Object.entries(outcomes).sort(
    ([a, many], [b, more]) => rank(a) - rank(b) || more - many || byName.compare(a, b),
  );
  byId("nothing-ended").hidden = all > 0;
  byId("ended-table").hidden = all === 0;
  write(byId("uptime"), seconds(uptime));
  replaceWhenChanged(byId("ended"), entries, () =>
    entries.map(([name, count]) => {
      const row = element("tr", NO_REJECTIONS.includes(name) ? "" : "is-rejected");
      const head = element("th", "outcome");
      head.scope = "row";
      head.append(element("b", "", clipped(name)));
      if (Object.hasOwn(MEANINGS, name)) head.append(element("small", "", MEANINGS[name]));
      const share = (100 * count) / all;
      const percent = share > 0 && share < 0.1 ? "< 0.1 %" : `${share.toFixed(1)} %`;
      row.append(head, element("td", "number", whole.format(count)), element("td", "number", percent));
      return row;
    }),
  );
}

function newRows() {
  const body = byId("endpoint-rows").content.firstElementChild.cloneNode(true);
  const rows = { body };
  for (const part of body.querySelectorAll("[data-part]")) rows[part.dataset.part] = part;
  return rows;
}

function alsoShown(endpoint) {
  const words = [];
  if (endpoint.is_removed) words.push("leaving");
  else if (endpoint.intent !== "active") words.push(endpoint.intent);
  else if (!endpoint.is_fresh && ["ready", "degraded"].includes(endpoint.health)) words.push("stale");
  if (endpoint.is_ejected) words.push("ejected");
  if (!endpoint.is_known_to_envoy) words.push("unknown to Envoy");
  return words.join(", ");
}

function slotCells(slots, isShare) {
  return KINDS.flatMap((kind) => {
    if (!isShare) return Array.from({ length: slots[kind] }, () => element("i", kind));
    const share = element("i", kind);
    share.style.flexGrow = slots[kind];
    return slots[kind] ? [share] : [];
  });
}

function showEndpoint(rows, endpoint) {
  write(rows.name, clipped(endpoint.name, MAX_NAME_CHARS));
  write(rows.address, clipped(endpoint.address));
  write(rows.health, clipped(endpoint.health));
  describe(rows.health, "data-health", endpoint.health);
  write(rows.also, alsoShown(endpoint));
  const slots = endpoint.slots;
  const isShare = slots.leased + slots.foreign + slots.idle + slots.unusable > MAX_CELLS;
  rows.cells.classList.toggle("is-share", isShare);
  rows.cells.hidden = !slots.total;
  describe(rows.cells, "aria-label", slotsInWords(slots));
  replaceWhenChanged(rows.cells, slots, () => slotCells(slots, isShare));
  write(rows.count, slots.total ? `${slots.leased + slots.foreign}/${slots.total}` : "none known");
  const models = endpoint.models.map((model) => clipped(model, MAX_NAME_CHARS));
  write(rows.models, models.slice(0, 2).join(", ") + (models.length > 2 ? ` +${models.length - 2}` : ""));
  describe(rows.models, "title", models.join("\n"));
  write(rows.seen, endpoint.observed_age_s === null ? "never" : seconds(endpoint.observed_age_s));
  rows.issues.hidden = !endpoint.issues.length;
  replaceWhenChanged(rows["issue-list"], endpoint.issues, () =>
    endpoint.issues.map((issue) => {
      const item = element("li");
      item.append(element("span", "code", clipped(issue.code)), ` ${clipped(issue.message)}`);
      item.append(element("span", "remedy", clipped(issue.remedy)));
      return item;
    }),
  );
}

function showEndpoints(all) {
  let chosen = all;
  if (all.length > MAX_ROWS) {
    const inOrder = (one) => (one.issues.length || one.health === "down" ? 0 : 1);
    chosen = [...all].sort((a, b) => inOrder(a) - inOrder(b)).slice(0, MAX_ROWS);
  }
  chosen.sort((a, b) => byName.compare(a.name || a.address, b.name || b.address) || byName.compare(a.address, b.address));
  const table = byId("endpoints");
  const gone = new Set(rowsByAddress.keys());
  let before = table.tHead;
  for (const endpoint of chosen) {
    gone.delete(endpoint.address);
    let rows = rowsByAddress.get(endpoint.address);
    if (!rows) rowsByAddress.set(endpoint.address, (rows = newRows()));
    showEndpoint(rows, endpoint);
    if (before.nextElementSibling !== rows.body) before.after(rows.body);
    before = rows.body;
  }
  for (const address of gone) {
    rowsByAddress.get(address).body.remove();
    rowsByAddress.delete(address);
  }
  table.hidden = !all.length;
  byId("empty").hidden = all.length > 0;
  const rest = all.length - chosen.length;
  write(byId("shown"), rest ? `${MAX_ROWS} of ${all.length}, including those with issues; coxswain endpoints lists all` : "");
}

function showNotices(status) {
  const isReady = !status.not_ready.length;
  byId("not-ready").hidden = isReady;
  replaceWhenChanged(byId("obstacles"), status.not_ready, () =>
    status.not_ready.map((line) => element("li", "", clipped(line))),
  );
  byId("problems").hidden = !status.problems.length;
  replaceWhenChanged(byId("problem-list"), status.problems, () =>
    status.problems.map((line) => element("li", "", clipped(line))),
  );
  byId("no-envoy").hidden = status.envoys.length > 0 || status.running > 0;
}

function show(status) {
  const endpoints = Object.entries(status.endpoints).map(([address, endpoint]) => ({ ...endpoint, address }));
  write(byId("about"), `version ${clipped(status.version)}, up ${seconds(status.uptime_s)}`);
  showNotices(status);
  showSlots(status.slots);
  showGlance(status, endpoints);
  showEndpoints(endpoints);
  showQueue(status.queue);
  showEnded(status.outcomes, status.uptime_s);
  document.title = status.queue.queued ? `(${status.queue.queued}) Coxswain` : "Coxswain";
}

// Asking

function showWhetherLive() {
  const isLive = !failure;
  document.body.classList.toggle("is-stale", !isLive);
  byId("stale").hidden = isLive;
  describe(byId("live"), "data-state", isLive ? "live" : "stale");
  write(byId("live"), isLive ? "live" : "no answer");
  if (isLive) return;
  document.title = "No answer: Coxswain";
  write(byId("stale-what"), failure);
  if (answeredAt === null) return;
  const ago = seconds((Date.now() - answeredAt.getTime()) / 1000);
  write(byId("stale-since"), `Stale since ${answeredAt.toLocaleTimeString()}, ${ago} ago. Envoy continues to serve without the picker.`);
}

async function failureOf(asking) {
  let answer;
  try {
    answer = await asking;
  } catch {
    return "The picker does not answer.";
  }
  if (!answer.ok) return `The picker responded with an error (${answer.status}).`;
  try {
    show(await answer.json());
  } catch {
    return "The response of the picker cannot be read.";
  }
  answeredAt = new Date();
  return "";
}

async function poll() {
  const began = performance.now();
  const asking = fetch("status", {
    headers: { "cache-control": "max-age=1" }, // many viewers may share one response
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  failure = await failureOf(asking);
  showWhetherLive();
  const took = performance.now() - began;
  const pause = Math.max(POLL_MS - took, took / MAX_SHARE, 0);
  window.setTimeout(pollWhileVisible, failure ? POLL_MS : pause);
}

function pollWhileVisible() {
  if (!document.hidden) return void poll();
  document.addEventListener("visibilitychange", pollWhileVisible, { once: true });
}

window.setInterval(() => failure && showWhetherLive(), 1000);
pollWhileVisible();

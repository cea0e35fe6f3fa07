// Shows /status and /activity, or a notice if it cannot. Names in the responses come from other
// parties, so they reach the page as text only, never as markup. With `#/endpoints/NAME` in its
// address the page shows one endpoint.
"use strict";

const POLL_MS = 1000;
const MAX_SHARE = 0.25; // of the time: if a response takes long, the next request is later
const PATIENCE_MS = 3000;
const MAX_ROWS = 300; // endpoints on the page; of more the picker sends those with issues first
const MAX_CELLS = 12; // slots with a cell each; more of them are drawn as shares
const MAX_CHARS = 300;
const MAX_NAME_CHARS = 60;
const CHART_HEIGHT = 100; // a chart is as many units wide as it shows seconds
const MAX_GAP = 3; // intervals without a sample, beyond which a curve is interrupted

const QUEUE_ORDERS = {
  shortest_expected: "The order is by expected length, the shortest first",
  started_first: "Requests of sessions that were served before go first",
};
const PLAIN_RUNNERS = ["", "llama-server"];
const KINDS = ["leased", "foreign", "idle", "unusable"];
const BAD_EVENTS = new Set(["issue", "ejected", "bypassed", "unreachable", "overflow", "model-failed", "reload-rejected", "rule-off"]);

const MEANINGS = {
  served: "answered to the end",
  passed: "took no slot",
  withdrawn: "the client left before it got to a server",
  broken: "cut off after it had a slot",
  "queue-full": "the queue was full",
  "rate-limited": "its client was at a limit",
  "budget-used-up": "its client's budget was used up",
  "objective-not-allowed": "its key did not allow its objective",
  "no-pool": "it was for none of the pools",
  "invalid-api-key": "it had no valid API key",
  "unsupported-encoding": "its content-encoding could not be read",
  "queue-timeout": "no slot within its time limit",
  "no-endpoint": "no server was ready",
  "shutting-down": "the picker was shutting down",
  "bad-request": "the request was invalid",
  cancelled: "an operator ended it",
  "upload-stalled": "the rest of its body did not arrive, or too slowly",
  shed: "sheddable, and no slot was free",
  evicted: "removed from a full queue for another request",
  "model-not-found": "no server had its model",
  "model-failed": "the servers of its model failed",
  "conversation-not-found": "no server kept its conversation",
  "context-length-exceeded": "its prompt was longer than every context",
  "rejected-by-rule": "a rule of yours rejected it",
  "bound-reached": "its objective, model or path was at its bound",
  "blocked-path": "its path was blocked",
  "unknown-path": "nothing was served at its path",
  "poison-request": "servers died while they processed it",
  "internal-error": "the picker lost track of it: a bug",
};
const POWERS = { "going-off": ", is being put to sleep", off: ", is off until requests wake it", waking: ", wakes" };
const WAITS = {
  "no-idle-slot": "no idle slot",
  reserved: "the idle slots are reserved",
  "too-few-slots": "needs several slots at once",
  "too-few-tokens": "the context that the slots share is full",
  affinity: "for the endpoint with its prompt in the cache",
  "model-loading": "its model is loading",
  waking: "the machine of a server for it wakes",
  "no-endpoint": "no endpoint for it gets requests",
  "excluded-by-rule": "rules exclude every server",
  "bound-reached": "as many as its bound allows run",
  "limit-reached": "as many of its session or flow as its limit allows run",
  unreported: "not every endpoint has reported its models",
};
const NO_REJECTIONS = ["served", "passed", "withdrawn"];
const HEALTHS = ["ready", "degraded", "loading", "asleep", "off", "down"];

const byId = (id) => document.getElementById(id);
const byName = new Intl.Collator("en", { numeric: true });
const whole = new Intl.NumberFormat("en");
const rowsByAddress = new Map();
let answeredAt = null; // when the picker last answered, a Date
let failure = "";
let timer = null; // of the next request to the picker, null while one is under way
let token = ""; // the operators', once it was typed in and found valid; kept nowhere else

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

function shortTime(value) {
  return value !== null && value < 1 ? `${Math.round(1000 * value)} ms` : seconds(value);
}

function counted(number, one, many) {
  return `${whole.format(number)} ${number === 1 ? one : many}`;
}

function slotsInWords(slots, isForeignKnown = true) {
  const foreign = isForeignKnown ? slots.foreign : "unknown";
  const unusable = slots.unusable ? `, ${slots.unusable} unusable` : "";
  return `${slots.leased} leased, ${foreign} foreign, ${slots.idle} idle${unusable} of ${slots.total} slots`;
}

const SETTLES = "a guess: set context to shared or per_slot at the endpoint, or run an agent on its machine";

function tokensInWords({ held, reserved, free, total, source }) {
  const words = `${whole.format(held)} held, ${whole.format(reserved)} reserved, ${whole.format(free)} free of ${whole.format(total)} tokens`;
  return source === "guess" ? `${words} (${SETTLES})` : words;
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

function showGlance(status, total) {
  const counts = new Map(Object.entries(status.endpoints_by_health));
  const ready = counts.get("ready") || 0;
  write(byId("ready"), whole.format(ready));
  write(byId("ready-of"), `of ${whole.format(total)} ready`);
  const others = HEALTHS.slice(1).filter((health) => counts.has(health));
  const words = others.map((health) => `${counts.get(health)} ${health}`);
  for (const wanted of ["draining", "disabled"]) {
    const many = status.endpoints_by_intent[wanted];
    if (many) words.push(`${many} ${wanted}`);
  }
  write(byId("healths"), words.join(", ") || (total ? "no issues" : "none"));
  write(byId("running"), whole.format(status.running));
  write(byId("running-of"), status.running === 1 ? "request" : "requests");
  const envoys = status.envoys.length;
  const open = `${counted(status.exchanges, "exchange", "exchanges")} open`;
  write(byId("envoys"), envoys ? `${open}, ${counted(envoys, "Envoy", "Envoys")}` : open);
  byId("processes").hidden = !status.processes;
  if (status.processes) write(byId("processes"), processesInWords(status.processes));
  const queue = status.queue;
  write(byId("queued"), whole.format(queue.queued));
  write(byId("queued-of"), queue.queued === 1 ? "request" : "requests");
  const criticalities = Object.entries(queue.by_criticality).filter(([, count]) => count);
  write(byId("criticalities"), criticalities.map(([name, count]) => `${count} ${name}`).join(", ") || "none");
}

function processesInWords({ members, takeovers, last_takeover: last }) {
  const many = new Map();
  for (const { role } of members) many.set(role, (many.get(role) || 0) + 1);
  const roles = [...many].map(([role, count]) => (count === 1 ? role : `${count} ${role}s`));
  const fronts = members.filter(({ number }) => number);
  const calls = fronts.map(({ calls }) => whole.format(calls)).join(", ");
  const took = last ? `, the last in ${shortTime(last.seconds)}` : "";
  return `${roles.join(", ")}; calls of each front: ${calls || "none"}; ${counted(takeovers, "takeover", "takeovers")}${took}`;
}

// Members of a cluster

function showMembers(cluster) {
  byId("cluster").hidden = !cluster;
  if (!cluster) return;
  const silence = cluster.is_in_touch ? "" : `; who leads cannot be learned: ${clipped(cluster.engine_error) || "no answer yet"}`;
  write(byId("cluster-note"), `${cluster.leader ? "" : "nobody leads, "}epoch ${whole.format(cluster.epoch)}${silence}`);
  const rows = cluster.members.slice(0, MAX_ROWS).map((peer) => ({
    key: peer.name,
    cells: [clipped(peer.name, MAX_NAME_CHARS), peer.is_leading ? "leader" : "standby", clipped(peer.address), whole.format(peer.fronts), clipped(peer.version)],
  }));
  showRows(byId("cluster-members"), ["", "", "wide", "number", "wide"], rows);
}

function showQueue(queue, scale) {
  byId("idle-note").hidden = !queue.idle_note;
  write(byId("idle-note"), clipped(queue.idle_note));
  showModels(queue.models, new Map(scale.map((need) => [need.model, need])));
  showBounds(queue.bounds);
  write(byId("longest"), seconds(queue.longest_wait_s));
  write(byId("expected"), queue.queued && queue.expected_s === null ? "not known yet" : seconds(queue.expected_s));
  byId("order-note").hidden = !queue.order;
  write(byId("order-note"), queue.order ? `${QUEUE_ORDERS[queue.order] || clipped(queue.order)}, within each tenant and flow. After ${seconds(queue.max_overtaken_s)} in the queue no other request passes.` : "");
  write(byId("max"), whole.format(queue.max_requests));
}

function showModels(models, needs) {
  models.sort((a, b) => b.queued - a.queued || byName.compare(a.model, b.model));
  byId("models-table").hidden = !models.length;
  const rows = models.slice(0, MAX_ROWS).map(({ model: name, queued, by_reason: reasons, idle_slots: idle }) => {
    const why = Object.entries(reasons).sort(([, many], [, more]) => more - many).map(([reason, count]) => `${whole.format(count)}: ${waitInWords(reason)}`);
    const need = needs.get(name);
    if (need && need.wanted !== need.servers) why.push(`it has ${counted(need.servers, "server", "servers")} and needs ${whole.format(need.wanted)}`);
    return {
      key: name,
      cells: [!name || name.endsWith("/") ? `${clipped(name)}no known model` : clipped(name, MAX_NAME_CHARS), why.join("; "), whole.format(queued), whole.format(idle)],
    };
  });
  showRows(byId("models"), ["name", "", "number", "number"], rows);
}

function showPools(pools) {
  byId("pools-table").hidden = !pools.length;
  const rows = pools.slice(0, MAX_ROWS).map((pool) => ({
    key: pool.name,
    cells: [clipped(pool.name, MAX_NAME_CHARS) + (pool.is_default ? " (default)" : ""), `${whole.format(pool.slots.idle)} of ${whole.format(pool.slots.total)}`, whole.format(pool.running), whole.format(pool.queued)],
  }));
  showRows(byId("pools"), ["name", "number", "number", "number"], rows);
}

function showBounds(bounds) {
  byId("bounds-table").hidden = !bounds.length;
  const of = (count, most) => (most === null ? whole.format(count) : `${whole.format(count)} of ${whole.format(most)}`);
  const rows = bounds.slice(0, MAX_ROWS).map((bound) => ({
    key: `${bound.kind} ${bound.name}`,
    cells: [clipped(bound.name, MAX_NAME_CHARS), bound.kind + (bound.is_lifo ? ", newest first" : ""), of(bound.running, bound.max_running), of(bound.queued, bound.max_queued)],
  }));
  showRows(byId("bounds"), ["name", "", "number", "number"], rows);
}

// Models of machines with a keeper, and of routers

function showMachines(machines, models) {
  byId("machines").hidden = !machines.length;
  const used = machines.slice(0, MAX_CELLS).map((machine) => `${clipped(machine.name, MAX_NAME_CHARS)} ${usedOf(machine)}${whyGone(machine)}`);
  if (machines.length > used.length) used.push("coxswain models lists all");
  write(byId("machines-note"), used.join("; "));
  const byMachine = new Map(machines.map((machine) => [machine.name, machine]));
  const rows = models.slice(0, MAX_ROWS).map((kept) => machineRow(byMachine.get(kept.machine), kept));
  showRows(byId("machine-models"), ["", "", "number wide", "number", "", "act"], rows);
}

function usedOf(machine) {
  if (!machine.is_router && !machine.memory_mb) return "has not attached yet";
  if (!machine.is_router) return `uses ${whole.format(machine.used_mb)} of ${whole.format(machine.memory_mb)} MiB`;
  const most = machine.max_models ? ` of ${whole.format(machine.max_models)}` : "";
  return `has loaded ${whole.format(machine.used_models)}${most} models`;
}

function whyGone(machine) {
  if (Object.hasOwn(POWERS, machine.power)) return POWERS[machine.power];
  if (machine.is_connected) return "";
  return machine.is_router ? ", gets no requests now" : ", its keeper is not connected";
}

function machineRow(machine, kept) {
  const target = `${machine.name}/${kept.name}`;
  const since = `${kept.is_pinned ? "pinned, " : ""}for ${seconds(kept.state_age_s)}`;
  const toggle = kept.is_wanted
    ? { action: "unload", text: "Unload", question: `Unload ${target} after its running requests, until somebody asks for it?` }
    : { action: "load", text: "Load", question: `Load ${target}? Models that are not pinned make way.` };
  const pin = kept.is_pinned
    ? { action: "unpin", text: "Unpin", question: `Let ${target} leave when others need its memory?` }
    : { action: "pin", text: "Pin", question: `Load ${target} and keep it loaded?` };
  return {
    key: target,
    cells: [
      { text: clipped(kept.name, MAX_NAME_CHARS), detail: `${clipped(machine.name, MAX_NAME_CHARS)}${machine.pool ? `, pool ${clipped(machine.pool, MAX_NAME_CHARS)}` : ""}${whyGone(machine)}` },
      { text: clipped(kept.state), detail: since, isBad: ["failed", "restarting"].includes(kept.state) },
      kept.memory_mb ? `${whole.format(kept.memory_mb)} MiB` : "–",
      whole.format(kept.queued),
      { text: clipped(kept.last_change) || "–", detail: clipped(kept.problem) },
      { ...toggle, target, second: { ...pin, target } },
    ],
  };
}

function waitInWords(reason) {
  return Object.hasOwn(WAITS, reason) ? WAITS[reason] : clipped(reason);
}

// History

function showHistory(history) {
  const busy = history.leased.map((leased, index) => leased + history.foreign[index]);
  const rate = (value) => (value < 100 ? value.toFixed(1) : whole.format(Math.round(value)));
  showChart("slots", history, busy, mean, history.total);
  showChart("queued", history, history.queued, mean);
  showChart("tokens", history, history.tokens_per_s, rate);
  showChart("first-token", history, history.first_token_s, shortTime);
}

// A mean over some seconds: "0.04", "1.5", but "2" for exactly two.
function mean(value) {
  return value < 100 ? String(Number(value.toFixed(value < 0.1 ? 2 : 1))) : whole.format(Math.round(value));
}

function showChart(name, history, values, inWords, limits = []) {
  const chart = byId(`chart-${name}`);
  const known = values.filter((value) => value !== null);
  const most = Math.max(0, ...known);
  const scale = Math.max(most, ...limits) || 1;
  const words = known.length ? `last ${inWords(known[known.length - 1])}, at most ${inWords(most)}` : "nothing known yet";
  write(chart.querySelector(".note"), words);
  const svg = chart.querySelector("svg");
  describe(svg, "viewBox", `0 0 ${history.length_s} ${CHART_HEIGHT}`);
  describe(svg, "aria-label", `${words}, in the last ten minutes`);
  const point = (index, value) => `${history.length_s - history.age_s[index]} ${CHART_HEIGHT * (1 - value / scale)}`;
  const runs = unbroken(history, values);
  const edges = runs.map((run) => run.map((index) => point(index, values[index])).join("L"));
  describe(svg.querySelector(".edge"), "d", edges.map((edge, index) => `M${runs[index].length === 1 ? `${edge}L` : ""}${edge}`).join(""));
  const areas = runs.map((run, index) => `M${point(run[0], 0)}L${edges[index]}L${point(run[run.length - 1], 0)}Z`);
  describe(svg.querySelector(".area"), "d", areas.join(""));
  if (limits.length) {
    const edge = limits.map((limit, index) => point(index, limit)).join("L");
    describe(svg.querySelector(".limit"), "d", `M${edge}`);
  }
}

// The places of the values in runs without a gap: nothing is drawn where nothing is known.
function unbroken(history, values) {
  const runs = [];
  let last = -2;
  values.forEach((value, index) => {
    if (value === null) return;
    const isNear = last === index - 1 && history.age_s[last] - history.age_s[index] <= MAX_GAP * history.interval_s;
    if (!isNear) runs.push([]);
    runs[runs.length - 1].push(index);
    last = index;
  });
  return runs;
}

// Requests and events

function showRequests(requests, endpoint) {
  const model = (request) => ({ text: clipped(request.model, MAX_NAME_CHARS) || "–", detail: request.client ? `client ${clipped(request.client, MAX_NAME_CHARS)}` : "" });
  const act = (request) => ({ action: "cancel", target: request.id, text: "Cancel", question: "Cancel this request? Its client gets an error." });
  const place = (request) => ({
    text: clipped(request.endpoint_name, MAX_NAME_CHARS) + (request.tier > 1 ? ` (tier ${request.tier})` : ""),
    link: request.endpoint_name,
  });
  const wide = ["wide", "wide"];
  showTable("queued", ["short", "short", "short", "", ...wide, "act"], [...requests.queued].sort((a, b) => a.position - b.position), (one) => [
    one.expected_slot_s === undefined ? `${one.position} of ${one.queued}` : `${one.position} of ${one.queued}, takes about ${seconds(one.expected_slot_s)}`,
    one.expected_s === null ? "–" : seconds(one.expected_s),
    seconds(one.waited_s),
    one.note ? clipped(one.note) : waitInWords(one.reason),
    model(one),
    clipped(one.criticality),
    act(one),
  ]);
  showTable("running", ["place", "short", "short", "wide", ...wide, "act"], requests.running, (one) => [
    place(one),
    one.state === "responding" ? "responding" : "no response yet",
    seconds(one.age_s),
    seconds(one.waited_s),
    model(one),
    clipped(one.criticality),
    act(one),
  ]);
  showTable("over", ["", "short", "short", ...wide, "place", "wide"], requests.ended, (one) => [
    outcomeInWords(one),
    `${seconds(one.ended_age_s)} ago`,
    seconds(one.duration_s),
    shortTime(one.first_token_s),
    seconds(one.waited_s),
    place(one),
    model(one),
  ]);
  byId("no-requests").hidden = requests.queued.length + requests.running.length + requests.ended.length > 0;
  write(byId("requests-note"), endpoint ? "that run or ran here" : "at most 50 of each; coxswain requests lists all");
}

function outcomeInWords(ended) {
  const word = ended.outcome === "rejected" ? ended.reason : ended.outcome;
  const why = [ended.status ? `status ${ended.status}` : "", Object.hasOwn(MEANINGS, word) ? MEANINGS[word] : ""];
  if (ended.reason && ended.reason !== word) why.push(clipped(ended.reason));
  return { text: clipped(word), detail: why.filter(Boolean).join(": "), isBad: ended.outcome === "rejected" || ended.outcome === "broken" };
}

function showTable(name, classes, listed, cells) {
  byId(`${name}-part`).hidden = !listed.length;
  showRows(byId(`${name}-rows`), classes, listed.map((one) => ({ key: one.id, cells: cells(one) })));
}

function showEvents(events) {
  byId("no-events").hidden = events.length > 0;
  const rows = events.map((event) => ({
    key: String(event.id),
    cells: [
      timeOfDay(event.age_s),
      { text: clipped(event.kind), isBad: BAD_EVENTS.has(event.kind) },
      { text: clipped(event.endpoint_name, MAX_NAME_CHARS), link: event.endpoint && event.kind !== "left" ? event.endpoint_name : "", detail: clipped(event.text) },
    ],
  }));
  showRows(byId("events"), ["when", "kind", ""], rows);
}

function timeOfDay(age_s) {
  return new Date(Date.now() - 1000 * age_s).toLocaleTimeString();
}

// Rows with equal keys stay the same elements, so that a click or a selection is not lost. A cell is
// a text, or an object with `text`, `detail`, `link` (an endpoint), or `action` and its
// `target`; `second` is a further action.
function showRows(body, classes, rows) {
  const before = new Map(Array.from(body.rows, (row) => [row.dataset.key, row]));
  let last = null;
  for (const { key, cells } of rows) {
    let row = before.get(key);
    before.delete(key);
    if (!row) {
      row = element("tr");
      row.dataset.key = key;
      row.append(...classes.map((className) => element("td", className)));
      row.role = "row"; // where a style makes blocks of a table
      for (const cell of row.cells) cell.role = "cell";
    }
    cells.forEach((cell, index) => showCell(row.cells[index], typeof cell === "string" ? { text: cell } : cell));
    const next = last ? last.nextElementSibling : body.firstElementChild;
    if (next !== row) body.insertBefore(row, next);
    last = row;
  }
  for (const row of before.values()) row.remove();
}

function showCell(td, { text, detail = "", link = "", action = "", target = "", question = "", isBad = false, second = null }) {
  if (!td.firstElementChild) td.append(element(action ? "button" : link ? "a" : "span"), element("small"), ...(second ? [" ", element("button")] : []));
  const [main, small, other] = td.children;
  write(main, text);
  write(small, detail);
  main.classList.toggle("is-bad", isBad);
  if (link) describe(main, "href", hrefOf(link));
  if (action) main.onclick = () => window.confirm(question) && act(action, target);
  if (!second) return;
  write(other, second.text);
  other.onclick = () => window.confirm(second.question) && act(second.action, second.target);
}

function hrefOf(name) {
  return `#/endpoints/${encodeURIComponent(name)}`;
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

function isForeignKnown(endpoint) {
  return endpoint.is_foreign_known || !endpoint.runner;
}

function alsoShown(endpoint) {
  const words = [];
  if (endpoint.runner && !PLAIN_RUNNERS.includes(endpoint.runner)) words.push(clipped(endpoint.runner));
  if (endpoint.pool) words.push(`pool ${clipped(endpoint.pool)}`);
  if (endpoint.tier > 1) words.push(`tier ${endpoint.tier}`);
  if (!isForeignKnown(endpoint)) words.push("use by others unknown");
  if (endpoint.is_waking) words.push("its machine is being woken");
  if (endpoint.is_going_off) words.push("its machine is being put to sleep");
  if (endpoint.is_removed) words.push("leaving");
  else if (endpoint.intent !== "active") {
    const isDrained = endpoint.intent === "draining" && !endpoint.slots.leased;
    words.push(`${isDrained ? "drained" : clipped(endpoint.intent)} for ${seconds(endpoint.intent_age_s)}`);
  }
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

function showState(parts, endpoint) {
  write(parts.health, clipped(endpoint.health));
  describe(parts.health, "data-health", endpoint.health);
  write(parts.also, alsoShown(endpoint));
  const slots = endpoint.slots;
  const isShare = slots.leased + slots.foreign + slots.idle + slots.unusable > MAX_CELLS;
  parts.cells.classList.toggle("is-share", isShare);
  parts.cells.hidden = !slots.total;
  describe(parts.cells, "aria-label", slotsInWords(slots, isForeignKnown(endpoint)));
  replaceWhenChanged(parts.cells, slots, () => slotCells(slots, isShare));
  replaceWhenChanged(parts["issue-list"], endpoint.issues, () =>
    endpoint.issues.map((issue) => {
      const item = element("li");
      item.append(element("span", "code", clipped(issue.code)), ` ${clipped(issue.message)}`);
      item.append(element("span", "remedy", clipped(issue.remedy)));
      return item;
    }),
  );
}

function showEndpoint(rows, endpoint) {
  showState(rows, endpoint);
  write(rows.name, clipped(endpoint.name || endpoint.address, MAX_NAME_CHARS));
  describe(rows.name, "href", hrefOf(endpoint.unique_name));
  write(rows.address, endpoint.name ? clipped(endpoint.address) : "");
  const slots = endpoint.slots;
  write(rows.count, slots.total ? `${slots.leased + slots.foreign}/${slots.total}` : "none known");
  const tokens = endpoint.tokens;
  write(rows.tokens, tokens ? `${whole.format(tokens.free)} of ${whole.format(tokens.total)} tokens free${tokens.source === "guess" ? "?" : ""}` : "");
  describe(rows.tokens, "title", tokens ? tokensInWords(tokens) : "");
  const models = endpoint.models.map(({ name }) => clipped(name, MAX_NAME_CHARS));
  write(rows.models, models.slice(0, 2).join(", ") + (models.length > 2 ? ` +${models.length - 2}` : ""));
  describe(rows.models, "title", models.join("\n"));
  write(rows.seen, endpoint.observed_age_s === null ? "never" : seconds(endpoint.observed_age_s));
  rows.issues.hidden = !endpoint.issues.length;
}

// The page of one endpoint

function shownEndpoint() {
  const found = window.location.hash.match(/^#\/endpoints\/(.+)$/);
  try {
    return found ? decodeURIComponent(found[1]) : "";
  } catch {
    return found[1];
  }
}

function showEndpointPage(name, endpoints, learned) {
  const endpoint = endpoints.find((one) => one.unique_name === name || one.address === name);
  byId("endpoint-facts").hidden = !endpoint;
  write(byId("endpoint-title"), clipped(name));
  if (!endpoint) {
    write(byId("endpoint-health"), "not in the fleet");
    describe(byId("endpoint-health"), "data-health", "down");
    write(byId("endpoint-also"), "");
    return;
  }
  const parts = { health: "health", also: "also", cells: "cells", "issue-list": "issues" };
  showState(Object.fromEntries(Object.entries(parts).map(([part, id]) => [part, byId(`endpoint-${id}`)])), endpoint);
  write(byId("endpoint-count"), slotsInWords(endpoint.slots));
  const facts = { Address: endpoint.address, "Host name": endpoint.hostname, Models: endpoint.models.map(({ name: model }) => model).join(", ") };
  if (endpoint.tokens) facts["Context that its slots share"] = tokensInWords(endpoint.tokens);
  facts["Last scrape"] = endpoint.observed_age_s === null ? "never" : `${seconds(endpoint.observed_age_s)} ago`;
  if (endpoint.intent_age_s !== null) facts[`${endpoint.intent === "draining" ? "Draining" : "Disabled"} since`] = `${timeOfDay(endpoint.intent_age_s)}, ${seconds(endpoint.intent_age_s)} ago`;
  if (learned && learned.endpoint === endpoint.address) Object.assign(facts, learnedInWords(learned));
  const rows = Object.entries(facts).filter(([, text]) => text);
  replaceWhenChanged(byId("endpoint-list"), rows, () =>
    rows.map(([term, text]) => {
      const row = element("div");
      row.append(element("dt", "", term), element("dd", "", clipped(text)));
      return row;
    }),
  );
  const isActive = endpoint.intent === "active";
  byId("drain").hidden = !isActive;
  byId("activate").hidden = isActive;
  byId("drain").onclick = () => window.confirm(`Send no new requests to ${name}? Running ones finish.`) && act("drain", endpoint.address);
  byId("activate").onclick = () => act("activate", endpoint.address);
}

function learnedInWords(learned) {
  const ejections = Object.entries(learned.ejections).map(([fault, count]) => `${count} ${fault}`);
  const words = { "Ejected since the start": ejections.join(", ") || "never" };
  if (learned.samples < 1) return { Learned: "nothing yet: it is taken to be like the others", ...words };
  const rate = (value) => (value === null ? "–" : `${whole.format(Math.round(value))} tokens per second`);
  return {
    "Learned from about": counted(Math.round(learned.samples), "request", "requests"),
    "Time to first token": `${shortTime(learned.fixed_s)} and the prompt`,
    "Prompt, where it is not cached": rate(learned.prompt_tokens_per_s),
    "Generation of one response now": rate(learned.tokens_per_s),
    "A request keeps its slot for": seconds(learned.slot_s),
    ...words,
  };
}

function showEndpoints(chosen, total) {
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
  table.hidden = !total;
  byId("empty").hidden = total > 0;
  const rest = total - chosen.length;
  write(byId("shown"), rest ? `${chosen.length} of ${total}, including those with issues; coxswain endpoints lists all` : "");
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

function show(status, activity, name) {
  for (const part of document.querySelectorAll("[data-on]")) part.hidden = (part.dataset.on === "endpoint") !== Boolean(name);
  write(byId("about"), `version ${clipped(status.version)}, up ${seconds(status.uptime_s)}`);
  showNotices(status);
  byId("main").dataset.page = name ? "endpoint" : "overview";
  byId("operator").hidden = !status.takes_actions || Boolean(token);
  byId("keys").hidden = !status.takes_actions;
  if (name) showEndpointPage(name, status.endpoints, activity.learned);
  else {
    showSlots(status.slots);
    const total = Object.values(status.endpoints_by_health).reduce((sum, many) => sum + many, 0);
    showGlance(status, total);
    showHistory(activity.history);
    showEndpoints(status.endpoints, total);
    showQueue(status.queue, status.scale);
    showPools(status.pools);
    showEnded(status.outcomes, status.uptime_s);
  }
  showMachines(name ? [] : status.machines, name ? [] : status.models);
  showMembers(name || !status.processes ? null : status.processes.cluster);
  showRequests(activity.requests, name);
  showEvents(activity.events);
  document.title = status.queue.queued ? `(${status.queue.queued}) Coxswain` : "Coxswain";
}

// Operators

async function act(action, target) {
  const note = byId("action-note");
  try {
    await send(action, target, token);
    write(note, `${action}: done`);
  } catch (error) {
    write(note, `${action}: ${error.message}`);
  }
  note.hidden = false;
  pollNow();
}

async function send(action, target, secret) {
  let answer;
  try {
    answer = await fetch(`actions/${action}`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${secret}` },
      body: JSON.stringify({ target }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch {
    throw new Error("the picker does not answer");
  }
  if (!answer.ok) throw new Error(clipped((await answer.json()).error));
}

byId("operator").addEventListener("submit", async (event) => {
  event.preventDefault();
  const typed = byId("token").value.trim();
  try {
    await send("check", "", typed);
    token = typed;
    document.body.classList.add("can-act");
    byId("operator").hidden = true;
  } catch (error) {
    write(byId("operator-note"), error.message);
  }
  byId("token").value = "";
});

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
  write(byId("stale-since"), `Stale since ${answeredAt.toLocaleTimeString()}, ${ago} ago. Envoy serves without the picker, or responds 503 where it fails closed.`);
}

async function ask(path) {
  const answer = await fetch(path, {
    headers: { "cache-control": "max-age=1" }, // many viewers may share one response
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (!answer.ok) throw new Error(`The picker responded with an error (${answer.status}).`);
  return answer.json();
}

async function failureOf(name) {
  let status, activity;
  try {
    status = await ask(`status?limit=${name ? 0 : MAX_ROWS}&endpoint=${encodeURIComponent(name)}`);
    activity = await ask(name ? `activity?endpoint=${encodeURIComponent(name)}` : "activity");
  } catch (error) {
    if (error instanceof SyntaxError) return "The response of the picker cannot be read.";
    return error.message.startsWith("The picker") ? error.message : "The picker does not answer.";
  }
  if (name !== shownEndpoint()) return failure; // the reader went on; the next answer is for that page
  try {
    show(status, activity, name);
  } catch {
    return "The response of the picker cannot be read.";
  }
  answeredAt = new Date();
  return "";
}

async function poll() {
  const began = performance.now();
  const name = shownEndpoint();
  failure = await failureOf(name);
  showWhetherLive();
  const took = performance.now() - began;
  const pause = Math.max(POLL_MS - took, took / MAX_SHARE, 0);
  timer = window.setTimeout(pollWhileVisible, failure ? POLL_MS : pause);
}

function pollWhileVisible() {
  timer = null;
  if (!document.hidden) return void poll();
  document.addEventListener("visibilitychange", pollWhileVisible, { once: true });
}

// Ask at once, unless an answer is on its way.
function pollNow() {
  if (timer === null) return;
  window.clearTimeout(timer);
  pollWhileVisible();
}

window.addEventListener("hashchange", pollNow);
window.setInterval(() => failure && showWhetherLive(), 1000);
pollWhileVisible();

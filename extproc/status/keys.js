"use strict";

const POLL_MS = 5000;
const PATIENCE_MS = 10000;
const HEIGHT = 100;
const MAX_CHARS = 300;

const whole = new Intl.NumberFormat("en");
const money = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const byId = (id) => document.getElementById(id);
const partsByClient = new Map();
let token = ""; // the operators', once it was found valid; kept nowhere else

function clipped(text) {
  const all = Array.from(String(text));
  return all.length > MAX_CHARS ? all.slice(0, MAX_CHARS).join("") + "…" : all.join("");
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function describe(element, attribute, text) {
  if (element.getAttribute(attribute) !== text) element.setAttribute(attribute, text);
}

function time(unixSeconds) {
  return new Date(1000 * unixSeconds).toISOString().replace("T", " ").slice(0, 16) + " UTC";
}

// Parts of the page

function made(name) {
  const root = byId("client").content.firstElementChild.cloneNode(true);
  const parts = { root };
  for (const part of root.querySelectorAll("[data-part]")) parts[part.dataset.part] = part;
  partsByClient.set(name, parts);
  return parts;
}

// How much of a budget is used, from 0 to 1; of two bounds the one that is nearer.
function shareOf(spent) {
  const shares = [];
  if (spent.max_tokens !== null) shares.push(spent.tokens / spent.max_tokens);
  if (spent.max_cost !== null) shares.push(spent.cost / spent.max_cost);
  return shares.length ? Math.min(1, Math.max(...shares)) : null;
}

function showSpent(parts, period, name, spent, ends) {
  const share = shareOf(spent);
  const tokens = `${whole.format(spent.tokens)}${spent.max_tokens === null ? "" : ` of ${whole.format(spent.max_tokens)}`} tokens`;
  const hasCost = spent.cost > 0 || spent.max_cost !== null;
  const cost = hasCost ? `, cost ${money.format(spent.cost)}${spent.max_cost === null ? "" : ` of ${money.format(spent.max_cost)}`}` : "";
  write(parts[`${period}-name`], name);
  write(parts[`${period}-spent`], tokens + cost);
  const rest = share === null ? "no budget" : share >= 1 ? `used up until ${time(ends)}` : `${Math.floor(100 * share)} % used`;
  write(parts[`${period}-rest`], rest);
  const bar = parts[`${period}-bar`];
  bar.hidden = share === null;
  parts[period].classList.toggle("is-full", share !== null && share >= 1);
  parts[`${period}-used`].style.flexGrow = String(share || 0);
  parts[`${period}-left`].style.flexGrow = String(1 - (share || 0));
  parts[`${period}-left`].hidden = share === 1;
}

function showHours(parts, hours) {
  const most = Math.max(...hours);
  const last = hours.length - 1;
  const words = most ? `now ${whole.format(hours[last])}, at most ${whole.format(most)}, in ${hours.length} hours` : `none in ${hours.length} hours`;
  write(parts["hours-note"], words);
  const edge = hours.map((tokens, at) => `${at} ${HEIGHT * (1 - tokens / (most || 1))}`).join("L");
  describe(parts.hours, "viewBox", `0 0 ${last} ${HEIGHT}`);
  describe(parts.hours, "aria-label", `tokens an hour: ${words}`);
  describe(parts.edge, "d", `M${edge}`);
  describe(parts.area, "d", `M0 ${HEIGHT}L${edge}L${last} ${HEIGHT}Z`);
}

function factsOf(client) {
  const { requests, queued, requests_per_session: ofSession, requests_per_flow: ofFlow, tokens_per_minute: tokens } = client.limits;
  const limits = [
    requests === null ? "" : `${whole.format(requests)} requests at once`,
    queued === null ? "" : `${whole.format(queued)} queued`,
    ofSession === null ? "" : `${whole.format(ofSession)} at once in each session`,
    ofFlow === null ? "" : `${whole.format(ofFlow)} at once in each flow`,
    tokens === null ? "" : `${whole.format(tokens)} tokens a minute`,
  ].filter(Boolean);
  const keys = client.keys.map((key) => `${key.id}, ${key.expires === null ? "does not expire" : `expires ${time(key.expires)}`}`);
  return {
    "Keys": keys.join("; "),
    "Models": client.models === null ? "all" : client.models.map(clipped).join(", "),
    "Objectives": client.objectives === null ? "all" : client.objectives.map(clipped).join(", "),
    "Limits": limits.length ? limits.join(", ") : "none",
    "Cached this month": client.month.tokens ? `${whole.format(client.month.cached_tokens)} tokens` : "–",
  };
}

function showFacts(list, facts) {
  const key = JSON.stringify(facts);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(
    ...Object.entries(facts).map(([name, value]) => {
      const row = document.createElement("div");
      row.append(document.createElement("dt"), document.createElement("dd"));
      row.firstElementChild.textContent = name;
      row.lastElementChild.textContent = value;
      return row;
    }),
  );
}

function show(answer) {
  const shown = new Set(answer.clients.map((client) => client.client));
  for (const [name, parts] of partsByClient) {
    if (shown.has(name)) continue;
    parts.root.remove();
    partsByClient.delete(name);
  }
  answer.clients.forEach((client, place) => {
    const parts = partsByClient.get(client.client) || made(client.client);
    write(parts.name, clipped(client.client));
    write(parts.now, `${whole.format(client.running)} running, ${whole.format(client.queued)} queued`);
    showSpent(parts, "day", "Today", client.day, answer.day_ends);
    showSpent(parts, "month", "This month", client.month, answer.month_ends);
    showHours(parts, client.hours);
    showFacts(parts.facts, factsOf(client));
    const there = byId("clients").children[place];
    if (there !== parts.root) byId("clients").insertBefore(parts.root, there || null);
  });
  const notes = [];
  if (!answer.checks_keys) notes.push("No keys are checked: set clients.keys_file.");
  else if (!answer.total) notes.push("No key opens: add one with coxswain keys add NAME.");
  if (!answer.counts_usage) notes.push("Usage is not counted: set usage.path.");
  if (answer.total > answer.clients.length) notes.push(`Only ${answer.clients.length} of ${answer.total} clients are shown, those who spent most.`);
  byId("note").hidden = !notes.length;
  write(byId("note"), notes.join(" "));
  write(byId("about"), `${whole.format(answer.total)} ${answer.total === 1 ? "client" : "clients"}, ${time(answer.now)}`);
}

// Asking

async function ask(secret) {
  let answer;
  try {
    answer = await fetch("keys.json", {
      headers: { authorization: `Bearer ${secret}` },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch {
    throw new Error("The picker does not answer.");
  }
  const body = await answer.json();
  if (!answer.ok) throw new Error(clipped(body.error));
  return body;
}

async function poll() {
  let failure = "";
  try {
    show(await ask(token));
  } catch (error) {
    failure = error.message;
  }
  byId("failure").hidden = !failure;
  write(byId("failure"), failure);
  document.body.classList.toggle("is-stale", Boolean(failure));
  describe(byId("live"), "data-state", failure ? "stale" : "live");
  write(byId("live"), failure ? "no answer" : "live");
  window.setTimeout(pollWhileVisible, POLL_MS);
}

function pollWhileVisible() {
  if (!document.hidden) return void poll();
  document.addEventListener("visibilitychange", pollWhileVisible, { once: true });
}

byId("operator").addEventListener("submit", async (event) => {
  event.preventDefault();
  const typed = byId("token").value.trim();
  byId("token").value = "";
  try {
    await ask(typed);
  } catch (error) {
    write(byId("operator-note"), error.message);
    return;
  }
  token = typed;
  byId("operator").hidden = true;
  poll();
});

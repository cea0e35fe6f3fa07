"use strict";

const PLACE_MS = 1000;
const PATIENCE_MS = 10000;
const AGAIN_MS = 3000;
const MAX_CHARS = 300;

const whole = new Intl.NumberFormat("en");
const byId = (id) => document.getElementById(id);
const gateway = document.querySelector('meta[name="gateway"]').content;
let running = null; // the AbortController of the request that is under way

function clipped(text) {
  const all = Array.from(String(text));
  return all.length > MAX_CHARS ? all.slice(0, MAX_CHARS).join("") + "…" : all.join("");
}

function write(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

function seconds(value) {
  return value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`;
}

function fail(text) {
  byId("failure").hidden = !text;
  write("failure", text);
}

function say(state, isLive) {
  byId("state").setAttribute("data-state", isLive ? "live" : "new");
  write("state", state);
}

// The key, where one is asked for. It is in its field and nowhere else.
function headers(more) {
  const key = byId("key").value.trim();
  return { ...more, ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// Models

async function showModels() {
  let answer;
  try {
    answer = await fetch(`${gateway}/v1/models`, { headers: headers(), signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch {
    fail(`Envoy does not answer at ${gateway}. If clients reach it elsewhere, set dashboard.gateway_url.`);
    window.setTimeout(showModels, AGAIN_MS); // it may only be starting
    return;
  }
  if (answer.status === 401) {
    byId("key-part").hidden = false;
    fail(byId("key").value ? "This API key is not valid." : "");
    return;
  }
  if (!answer.ok) {
    fail(await errorOf(answer));
    return;
  }
  fail("");
  const names = (await answer.json()).data.map((model) => String(model.id));
  const before = byId("model").value;
  byId("model").replaceChildren(...names.map((name) => new Option(clipped(name), name, false, name === before)));
}

async function errorOf(answer) {
  let message = `The response is an error (${answer.status}).`;
  try {
    message = clipped((await answer.json()).error.message);
  } catch {
    // not one of ours
  }
  const reason = answer.headers.get("x-coxswain-reason");
  const later = Number(answer.headers.get("retry-after"));
  return `${answer.status}${reason ? ` ${clipped(reason)}` : ""}: ${message}${later ? ` Try again in ${seconds(later)}.` : ""}`;
}

// The place in the queue

async function followPlace(id, signal) {
  while (!signal.aborted) {
    try {
      const answer = await fetch(`queue/${id}`, { headers: headers(), signal });
      if (answer.ok && !signal.aborted) showPlace(await answer.json());
    } catch {
      // it is tried again, or over
    }
    await new Promise((resolve) => setTimeout(resolve, PLACE_MS));
  }
}

function showPlace({ queue_position: place, queued, waited_s: waited, expected_s: expected, note }) {
  const left = expected === null ? "" : `, expected in ${seconds(expected)}`;
  say("waits", false);
  write("place", `place ${whole.format(place)} of ${whole.format(queued)} in the queue for ${seconds(waited)}${left}${note ? `: ${clipped(note)}` : ""}`);
}

// The answer

function tokensInWords(count) {
  return `${whole.format(count)} ${count === 1 ? "token" : "tokens"}`;
}

function showServer(answer) {
  const get = (name) => answer.headers.get(`x-coxswain-${name}`);
  const waited = Number(get("queue-ms") || 0) / 1000;
  const attempts = Number(get("attempts") || 1);
  const why = [waited ? "its slot was the first that was free for this request" : "it had a free slot, and the lowest expected time"];
  if (get("tier")) why.push(`of tier ${clipped(get("tier"))}, as the wait in tier 1 would have been too long`);
  if (attempts > 1) why.push(`${attempts - 1} before it failed`);
  write("server", clipped(get("endpoint") || "not said"));
  write("why", why.join("; "));
  write("queued", waited ? seconds(waited) : "none");
}

function showUsage(usage, timings) {
  if (usage && usage.prompt_tokens) {
    const cached = (usage.prompt_tokens_details || {}).cached_tokens ?? (timings || {}).cache_n ?? 0;
    // The spaces do not break: a narrow page breaks the line at the comma.
    write("cached", `${tokensInWords(usage.prompt_tokens)}, ${Math.floor((100 * cached) / usage.prompt_tokens)}\u00a0%\u00a0cached`);
    if (cached) write("why", `${byId("why").textContent}; it had ${tokensInWords(cached)} of the prompt in its cache`);
  }
}

function showRate(tokens, since, timings) {
  const took = (performance.now() - since) / 1000;
  const rate = timings && timings.predicted_per_second ? timings.predicted_per_second : tokens > 1 && took > 0 ? (tokens - 1) / took : 0;
  write("generated", `${tokensInWords(tokens)}${rate ? `, ${rate.toFixed(1)}\u00a0a\u00a0second` : ""}`);
}

async function read(answer, began) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let tokens = 0;
  let first = 0;
  let isOver = false;
  while (!isOver) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") {
        isOver = true;
        break;
      }
      const part = JSON.parse(data);
      if (part.error) throw new Error(clipped(part.error.message));
      const delta = ((part.choices || [])[0] || {}).delta || {};
      if (delta.content || delta.reasoning_content) {
        tokens += 1;
        if (!first) {
          first = performance.now();
          write("first", seconds((first - began) / 1000));
        }
        if (delta.reasoning_content) {
          byId("thoughts").hidden = false;
          byId("thoughts").append(delta.reasoning_content);
        }
        if (delta.content) byId("answer").append(delta.content);
        showRate(tokens, first, null);
      }
      if (part.usage) {
        showUsage(part.usage, part.timings);
        showRate(part.usage.completion_tokens || tokens, first || began, part.timings);
      }
    }
  }
}

function prepare() {
  fail("");
  for (const id of ["answer", "thoughts"]) byId(id).replaceChildren();
  byId("thoughts").hidden = true;
  for (const id of ["server", "why", "queued", "first", "generated", "cached"]) write(id, "–");
  byId("result").hidden = true;
  byId("send").disabled = true;
  byId("stop").hidden = false;
}

async function send() {
  const id = newId();
  const began = performance.now();
  const waiting = new AbortController();
  running = new AbortController();
  prepare();
  say("sent", false);
  const body = {
    messages: [{ role: "user", content: byId("prompt").value }],
    max_tokens: Number(byId("tokens").value) || undefined,
    stream: true,
    stream_options: { include_usage: true },
  };
  if (byId("model").value) body.model = byId("model").value;
  followPlace(id, waiting.signal);
  try {
    const answer = await fetch(`${gateway}/v1/chat/completions`, {
      method: "POST",
      headers: headers({ "content-type": "application/json", "x-request-id": id }),
      body: JSON.stringify(body),
      signal: running.signal,
    });
    waiting.abort();
    write("place", "");
    if (answer.status === 401) byId("key-part").hidden = false;
    if (!answer.ok) throw new Error(await errorOf(answer));
    showServer(answer);
    byId("result").hidden = false;
    say("answers", true);
    await read(answer, began);
    say("done", false);
  } catch (error) {
    if (running.signal.aborted) say("stopped", false);
    else {
      say("failed", false);
      fail(error instanceof TypeError ? `No response from ${gateway} can be read: Envoy is gone, or its server lets no page of another origin read it.` : error.message);
    }
  } finally {
    waiting.abort();
    write("place", "");
    running = null;
    byId("send").disabled = false;
    byId("stop").hidden = true;
  }
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running === null) send();
});
byId("stop").addEventListener("click", () => {
  if (running !== null) running.abort();
});
byId("key").addEventListener("change", showModels);
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
});
showModels();

// The live stream, the list of requests, the key, and the chat.
import { RequestView, element } from "/ninfer/view.js";

const $ = (id) => document.getElementById(id);
const KEY = "ninfer-key";
const HISTORY_S = 120;
const WINDOW_S = 10;
const EXAMPLE = `Repeat this file exactly, with the same comments:

\`\`\`python
import json
from pathlib import Path


class Inventory:
    """Counts of parts, kept in a JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: dict[str, int] = {}

    def load(self) -> None:
        self.counts = json.loads(self.path.read_text())

    def save(self) -> None:
        self.path.write_text(json.dumps(self.counts, indent=2))

    def add(self, part: str, count: int = 1) -> None:
        self.counts[part] = self.counts.get(part, 0) + count
\`\`\``;

const view = new RequestView();
const requests = new Map(); // number -> what the stream told last
const rows = new Map(); // number -> its button
let history = []; // {at, tokens, rounds, copied}
let chosen = null; // the number of the request that is shown
let fetched = null; // `${number} ${state}` of the text that is shown
let stream = new AbortController();

// -- talking to the server ------------------------------------------------------------------

async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, { ...options, headers });
    if (answer.status !== 401) return answer;
    sessionStorage.removeItem(KEY);
    await askForKey();
  }
}

let asking = null;
function askForKey() {
  asking ??= new Promise((done) => {
    $("ask").addEventListener("close", () => {
      sessionStorage.setItem(KEY, $("key").value);
      $("key").value = "";
      asking = null;
      done();
    }, { once: true });
    $("ask").addEventListener("cancel", (event) => event.preventDefault());
    $("ask").showModal();
  });
  return asking;
}

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const blocks = held.split("\n\n");
    held = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) yield data;
    }
  }
}

async function problem(answer) {
  try { return (await answer.json()).error.message; } catch { return `the server answered ${answer.status}`; }
}

function trouble(text) { $("trouble").textContent = text; }

// -- the live stream ------------------------------------------------------------------------

async function follow() {
  let pause = 500;
  for (;;) {
    const controller = stream = new AbortController();
    try {
      const wanted = requests.get(chosen);
      const query = wanted && wanted.state === "running" && view.request === wanted.id
        ? `?request=${encodeURIComponent(wanted.id)}&tokens=${view.tokens}` : "";
      const answer = await call(`/v1/ninfer/live${query}`, { signal: controller.signal });
      if (!answer.ok) throw new Error(await problem(answer));
      trouble("");
      pause = 500;
      for await (const data of events(answer)) take(JSON.parse(data));
      throw new Error("the server has ended the stream");
    } catch (error) {
      if (controller.signal.aborted) continue;
      trouble(`Not connected: ${error.message}. Trying again.`);
      for (const item of $("services").children) item.className = "down";
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(5000, pause * 2);
    }
  }
}

function take(event) {
  if (requests.size && event.oldest > Math.max(...requests.keys()) + 1 || history.at(-1)?.tokens > event.tokens) restart(event);
  $("model").textContent = event.model;
  $("services").replaceChildren(...Object.entries(event.services).map(([name, up]) => {
    const item = element("li", up ? "" : "down", up ? name : `${name} is down`);
    return item;
  }));
  history.push({ at: event.at, tokens: event.tokens, rounds: event.rounds, copied: event.copied });
  history = history.filter((h) => h.at > event.at - HISTORY_S);
  figures(event);
  for (const request of event.requests) requests.set(request.number, request);
  for (const number of requests.keys()) if (number < event.oldest) forget(number);
  for (const request of event.requests) if (request.number >= event.oldest) row(request);
  $("empty").hidden = requests.size > 0;
  if (event.output && event.output.request === view.request) view.append(event.output);
  pick();
}

function restart() {
  for (const number of [...requests.keys()]) forget(number);
  history = [];
  chosen = fetched = null;
}

function figures(event) {
  const first = history.find((h) => h.at > event.at - WINDOW_S) ?? history[0];
  const last = history.at(-1);
  const tokens = last.tokens - first.tokens, rounds = last.rounds - first.rounds, seconds = last.at - first.at;
  const shown = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };
  shown("per-pass", rounds ? (tokens / rounds).toFixed(1) : "–");
  shown("copied", tokens ? `${Math.round(100 * (last.copied - first.copied) / tokens)} %` : "–");
  shown("rate", tokens && seconds ? (tokens / seconds).toFixed(0) : "–");
  shown("running", `${event.running} / ${event.rows}`);
  shown("waiting", String(event.waiting));
  shown("kv", `${Math.round(100 * event.kv)} %`);
  chart(event.at);
}

function chart(now) {
  const bins = new Array(HISTORY_S).fill(null).map(() => ({ tokens: 0, rounds: 0 }));
  for (let i = 1; i < history.length; i++) {
    const bin = bins[HISTORY_S - 1 - Math.floor(now - history[i].at)];
    if (!bin) continue;
    bin.tokens += history[i].tokens - history[i - 1].tokens;
    bin.rounds += history[i].rounds - history[i - 1].rounds;
  }
  const heights = bins.map((b) => b.rounds ? b.tokens / b.rounds : 0);
  const most = Math.max(4, ...heights);
  const svg = $("chart");
  while (svg.children.length < HISTORY_S) {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    bar.setAttribute("x", svg.children.length * 4);
    bar.setAttribute("width", 3);
    svg.append(bar);
  }
  heights.forEach((height, i) => {
    const tall = 64 * height / most;
    svg.children[i].setAttribute("height", tall.toFixed(1));
    svg.children[i].setAttribute("y", (64 - tall).toFixed(1));
  });
  const peak = Math.max(...heights);
  $("peak").textContent = peak ? `(up to ${peak.toFixed(1)})` : "";
}

// -- the list -------------------------------------------------------------------------------

function row(request) {
  let button = rows.get(request.number);
  if (!button) {
    button = element("button");
    button.type = "button";
    button.addEventListener("click", () => { $("follow").checked = false; choose(request.number); });
    const item = element("li");
    item.append(button);
    rows.set(request.number, button);
    $("list").prepend(item);
  }
  const share = request.output_tokens ? request.accepted / request.output_tokens : 0;
  const state = request.state === "running" ? "running" : request.reason;
  const bar = element("span", "bar"), filled = element("i");
  filled.style.width = `${Math.round(100 * share)}%`;
  bar.append(filled);
  const time = new Date(1000 * request.created).toLocaleTimeString("en-GB");
  button.className = request.state;
  button.replaceChildren(element("span", "when", time), element("b", "", state),
    element("small", "", `${request.prompt_tokens.toLocaleString("en")} → ${request.output_tokens.toLocaleString("en")} tokens`
      + (request.tokens_per_pass ? ` · ${request.tokens_per_pass} per pass` : "")
      + (share ? ` · ${Math.round(100 * share)} % copied` : "")),
    element("small", "", client(request)), bar);
}

function client({ client: agent, protocol }) {
  const name = agent?.startsWith("Mozilla/") ? "a browser" : agent?.split(" ")[0];
  return [name, protocol?.replaceAll("_", " ")].filter(Boolean).join(" · ");
}

function forget(number) {
  requests.delete(number);
  rows.get(number)?.parentElement.remove();
  rows.delete(number);
}

function pick() {
  if ($("follow").checked && requests.size) {
    const newest = Math.max(...requests.keys());
    if (newest !== chosen) { choose(newest); return; }
  }
  const request = requests.get(chosen);
  if (request && fetched !== `${request.number} ${request.state}`) load(request);
}

function choose(number) {
  chosen = number;
  for (const [other, button] of rows) button.setAttribute("aria-current", other === number);
  const request = requests.get(number);
  if (request) load(request);
}

async function load(request) {
  fetched = `${request.number} ${request.state}`;
  const answer = await call(`/v1/ninfer/requests/${encodeURIComponent(request.id)}/text`);
  if (!answer.ok || chosen !== request.number) return;
  const body = await answer.json();
  if (chosen !== request.number) return;
  view.show(body);
  // the stream shall tell what comes of this request from here on
  if (body.state === "running") stream.abort();
}

$("list").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const buttons = [...$("list").querySelectorAll("button")];
  const next = buttons[buttons.indexOf(document.activeElement) + step];
  if (step && next) { event.preventDefault(); next.focus(); }
});
$("follow").addEventListener("change", pick);

// -- the chat -------------------------------------------------------------------------------

let messages = [];
let talking = null;

$("example").addEventListener("click", () => { $("say").value = EXAMPLE; $("say").rows = 8; $("say").focus(); });
$("clear").addEventListener("click", () => { talking?.abort(); messages = []; $("talk").replaceChildren(); });
$("stop").addEventListener("click", () => talking?.abort());
$("say").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); $("chat").requestSubmit(); }
});
$("chat").addEventListener("submit", (event) => { event.preventDefault(); send($("say").value); });

async function send(text) {
  if (!text.trim() || talking) return;
  talking = new AbortController();
  $("follow").checked = true;
  $("send").disabled = true;
  $("stop").disabled = false;
  $("say").value = "";
  $("say").rows = 3;
  messages.push({ role: "user", content: text });
  $("talk").append(element("div", "me", text));
  const bubble = element("div"), note = element("p");
  $("talk").append(bubble, note);
  let said = "";
  try {
    const answer = await call("/v1/chat/completions", {
      method: "POST", signal: talking.signal, headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ messages, stream: true, max_tokens: 512 }),
    });
    if (!answer.ok) throw new Error(await problem(answer));
    for await (const data of events(answer)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      const delta = chunk.choices?.[0]?.delta ?? {};
      said += (delta.reasoning_content ?? "") + (delta.content ?? "");
      bubble.replaceChildren(element("span", "", said));
      $("talk").scrollTop = $("talk").scrollHeight;
      if (chunk.ninfer) note.textContent = summary(chunk.ninfer);
    }
  } catch (error) {
    note.textContent = error.name === "AbortError" ? "Stopped." : `Failed: ${error.message}`;
  }
  if (said) messages.push({ role: "assistant", content: said }); else messages.pop();
  talking = null;
  $("send").disabled = false;
  $("stop").disabled = true;
}

function summary(ninfer) {
  const { speculative: s, timings: t } = ninfer;
  const rate = t ? `${Math.round(t.predicted_per_second)} tokens per second` : "";
  return s.num_drafts ? `${s.num_accepted_tokens} of ${s.num_draft_tokens} drafted tokens kept in ${s.num_drafts} passes; ${rate}`
    : `nothing was copied; ${rate}`;
}

follow();

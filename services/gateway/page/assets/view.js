// One request: its output by where each token came from, and the text beside it that it was copied from.
// Everything that a model or a client wrote goes into the page as text nodes, never as markup.

export const NAMES = {
  prompt: "prompt", tool: "tool result", derived: "tool result, rewritten", predicted: "prediction",
  output: "its own output", session: "session", lookup: "lookup", neural: "neural drafter",
  copied: "copied, source known at the end", plain: "written by the model",
};
const WHY = {
  no_match: "nothing before it stood anywhere else", not_worth: "a copy would have cost more than it yields",
  turned_off: "the request turned drafting off",
  source_ends: "the source was about to end", forbidden: "the request's grammar forbade the copy",
};
const $ = (id) => document.getElementById(id);

// Controls and marks of direction would act on the page instead of being seen.
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (c) => c === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => `\u27e8U+${c.charCodeAt(0).toString(16).toUpperCase()}\u27e9`);
}

export function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = visible(text);
  return made;
}

export class RequestView {
  constructor() {
    this.request = null;
    this.tokens = 0;
    this.segments = [];
    this.sources = [];
    this.shownSource = null;
    this.chosen = null;
    const output = $("output");
    output.addEventListener("pointerover", (e) => this.#at(e.target, false));
    output.addEventListener("focusin", (e) => this.#at(e.target, true));
    output.addEventListener("keydown", (e) => this.#key(e));
    $("source").addEventListener("click", (e) => {
      const index = e.target.dataset?.segment;
      if (index !== undefined) this.#choose(Number(index), true, false);
    });
    $("sources").addEventListener("change", () => this.#showSource(Number($("sources").value)));
  }

  // `body` is what GET /v1/ninfer/requests/ID/text answers.
  show(body) {
    this.request = body.id;
    this.segments = body.segments;
    this.sources = body.sources;
    this.tokens = body.segments.reduce((sum, s) => sum + s.tokens, 0);
    this.chosen = null;
    this.shownSource = null;
    $("output").replaceChildren(...body.segments.map((s, i) => this.#segment(s, i)));
    this.#facts(body);
    this.#legend();
    this.#listSources();
    this.#say("");
    const first = this.segments.findIndex((s) => s.source !== undefined);
    if (first >= 0) this.#choose(first, false); else this.#showSource(0);
  }

  // Tokens that have come since, of a request that still runs.
  append(output) {
    const pre = $("output");
    const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
    for (const segment of output.segments) {
      this.segments.push(segment);
      pre.append(this.#segment(segment, this.segments.length - 1));
    }
    this.tokens = output.tokens;
    this.#legend();
    if (atEnd) pre.scrollTop = pre.scrollHeight;
  }

  #segment(segment, index) {
    if (segment.kind === "plain") {
      const plain = element("span", "", segment.text);
      plain.dataset.segment = index;
      return plain;
    }
    const made = element("span", `seg ${segment.kind}`, segment.text);
    made.dataset.segment = index;
    made.tabIndex = -1;
    return made;
  }

  #facts(body) {
    const facts = $("facts");
    facts.replaceChildren();
    const add = (value, label) => {
      if (value === null || value === undefined) return;
      if (facts.childNodes.length) facts.append(" · ");
      facts.append(element("b", "", String(value)), ` ${label}`);
    };
    add(body.prompt_tokens.toLocaleString("en"), "prompt tokens");
    if (body.cached_tokens) add(body.cached_tokens.toLocaleString("en"), "reused");
    add(body.output_tokens.toLocaleString("en"), "output tokens");
    add(body.tokens_per_pass, "per pass");
    add(body.tokens_per_second, "per second");
    if (body.seconds) add(body.seconds.prefill.toFixed(2), "s prefill");
    if (body.seconds && body.seconds.queue >= 0.01) add(body.seconds.queue.toFixed(2), "s in the queue");
    add(body.reason ?? body.state, body.state === "failed" ? "(failed)" : "");
  }

  #legend() {
    const counts = new Map();
    for (const { kind, tokens } of this.segments) counts.set(kind, (counts.get(kind) ?? 0) + tokens);
    const all = Math.max(1, [...counts.values()].reduce((a, b) => a + b, 0));
    const rows = [...counts].sort((a, b) => b[1] - a[1]).map(([kind, tokens]) =>
      element("li", kind, `${NAMES[kind] ?? kind} ${tokens} (${Math.round(100 * tokens / all)} %)`));
    $("legend").replaceChildren(...rows);
  }

  #listSources() {
    $("sources").replaceChildren(...this.sources.map((source, i) => {
      const option = element("option", "", i ? `${NAMES[source.kind] ?? source.kind} (${i})` : "the whole prompt");
      option.value = i;
      return option;
    }));
    $("sources").hidden = this.sources.length < 2;
  }

  #at(target, focused) {
    const index = target.dataset?.segment;
    if (index !== undefined) this.#choose(Number(index), focused, !focused);
  }

  #choose(index, focus, quiet) {
    const segment = this.segments[index];
    const spans = $("output").children;
    if (this.chosen !== null) spans[this.chosen]?.classList.remove("chosen");
    this.chosen = index;
    spans[index].classList.add("chosen");
    if (segment.source !== undefined) this.#showSource(segment.source, index);
    for (const lit of $("source").querySelectorAll(".chosen")) lit.classList.remove("chosen");
    for (const lit of $("source").querySelectorAll(`[data-segments~="${index}"]`)) lit.classList.add("chosen");
    reveal($("source"), $("source").querySelector(".chosen"));
    if (focus) {
      for (const other of $("output").querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
      if (spans[index].classList.contains("seg")) spans[index].tabIndex = 0;
      reveal($("output"), spans[index]);
    }
    this.#say(describe(segment), quiet);
  }

  #say(text) {
    $("told").textContent = text;
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    const copies = [...$("output").querySelectorAll(".seg")];
    if (!copies.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = copies.indexOf(document.activeElement);
    let next;
    if (event.key in steps) {
      // the first arrow goes to what is shown already
      const chosen = copies.findIndex((c) => Number(c.dataset.segment) === this.chosen);
      next = at >= 0 ? at + steps[event.key] : Math.max(0, chosen);
    } else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = copies.length - 1;
    else return;
    event.preventDefault();
    copies[Math.min(copies.length - 1, Math.max(0, next))].focus({ preventScroll: true });
  }

  #showSource(index) {
    if (this.shownSource === index) return;
    this.shownSource = index;
    const source = this.sources[index];
    $("source-title").textContent = index === 0 ? "Copied from the prompt" : `Copied from: ${NAMES[source.kind] ?? source.kind}`;
    $("sources").value = index;
    const ranges = this.segments.map((s, i) => ({ ...s, index: i })).filter((s) => s.source === index);
    $("source").replaceChildren(...lit(source.text, ranges));
    reveal($("source"), $("source").querySelector("mark"));
  }
}

// The text in pieces: what was copied is marked with all segments that copied it, in the last one's colour.
function lit(text, ranges) {
  const edges = new Set([0, text.length]);
  for (const r of ranges) { edges.add(r.from); edges.add(r.to); }
  const sorted = [...edges].sort((a, b) => a - b);
  const owners = new Map();
  const places = new Map(sorted.map((edge, i) => [edge, i]));
  for (const r of ranges) for (let i = places.get(r.from); i < places.get(r.to); i++) owners.set(i, [...(owners.get(i) ?? []), r]);
  const pieces = [];
  for (let i = 0; i + 1 < sorted.length; i++) {
    const piece = text.slice(sorted[i], sorted[i + 1]);
    const owning = owners.get(i);
    if (!owning) { pieces.push(document.createTextNode(visible(piece))); continue; }
    const last = owning[owning.length - 1];
    const mark = element("mark", last.kind, piece);
    mark.dataset.segment = last.index;
    mark.dataset.segments = owning.map((owner) => owner.index).join(" ");
    pieces.push(mark);
  }
  return pieces;
}

// Scrolls the pane alone, not the page.
function reveal(pane, inside) {
  if (!inside) return;
  const top = inside.offsetTop, bottom = top + inside.offsetHeight;
  if (top < pane.scrollTop || bottom > pane.scrollTop + pane.clientHeight) {
    pane.scrollTop = Math.max(0, top - pane.clientHeight / 3);
  }
}

function describe(segment) {
  const round = segment.round;
  const tokens = `${segment.tokens} token${segment.tokens === 1 ? "" : "s"}`;
  if (segment.kind === "plain") {
    if (!round) return `${tokens} written by the model.`;
    if (round.declined) return `${tokens} written by the model: ${WHY[round.declined] ?? round.declined}.`;
    return `The model's own token behind a draft of ${round.drafted} from ${NAMES[round.kind] ?? round.kind}, of which ${round.accepted} were kept.`;
  }
  if (!round) return `${tokens} drafted and kept. The source is known when the request has ended.`;
  const kept = `${round.drafted} were drafted, ${round.accepted} kept.`;
  if (segment.kind === "neural" || segment.kind === "lookup") return `${tokens} from ${NAMES[segment.kind]}. ${kept}`;
  const place = segment.source === undefined ? " (its text is not kept here)" : "";
  return `${tokens} copied from ${NAMES[segment.kind] ?? segment.kind}, position ${round.position}${place}; `
    + `${round.match_length} tokens before it matched. ${kept}`;
}

// The page: one moment of a log, or of two, and all views of it.
import { BacklogView } from "./backlog.js";
import { ClusterView } from "./cluster.js";
import { DetailView, table } from "./detail.js";
import { byId, clock, duration, el, grouped, setUtc, utc, visible } from "./format.js";
import { LanesView } from "./lanes.js";
import { FilePort, HttpPort, NoAnswer, unpack } from "./port.js";
import { QueuesView } from "./queues.js";
import { Model } from "./state.js";

const KEYS = [
  ["← →", "one record back, on"], ["shift ← →", "one decision back, on"], ["Home End", "first record; newest, and follow"],
  ["space", "play or stop"], ["/", "search pods, nodes, groups, budgets"], ["n", "next preemption"], ["f", "next fallback"], ["d", "next difference between A and B"],
  ["a", "A|B on or off"], ["l", "cluster as a list or as cells"], ["t", "axis of time or of records"], ["u", "your time zone or UTC"], ["Esc", "back to the overview"], ["?", "this list"],
];
const FOLLOW_MS = 1000;
const SPANS_MS = 5000; // Bars are asked for less often: they are the largest answer.
const WHOLE_MS = 300;
// Figures whose own name would say something else: who still waits at the end is not among them.
const FIGURES = { pending_seconds: "waits of the pods that were placed", group_seconds: "waits of the groups that are complete", on_nodes: "on a node at the end", unplaced: "pending at the end" };

class Page {
  constructor(a, b) {
    this.a = a;
    this.b = b;
    this.chosen = {};
    this.following = false;
    this.playing = null;
    this.wanted = null;
    this.moving = null;
    const choose = (what) => this.choose(what);
    const hover = (event, text) => this.hover(event, text);
    this.backlog = new BacklogView((seq) => this.go(seq));
    this.queues = new QueuesView(choose);
    this.cluster = new ClusterView(choose, hover);
    this.lanes = new LanesView(choose, hover);
    this.detail = new DetailView(choose, (seq) => this.go(seq), (pod) => this.lanes.spans.filter((span) => span.pod === pod), () => this.marks || {}, () => (this.ab && this.marksOfB) || null);
    this.listen();
  }

  async start() {
    await this.a.open();
    if (this.b) { await this.b.open(); byId("ab-label").hidden = false; byId("ab").checked = true; byId("next-difference").hidden = false; }
    document.title = `${visible(this.a.meta.log)} – tidelog`;
    byId("log-name").textContent = `log ${visible(this.a.meta.log)}`;
    await this.learn();
    const asked = this.permalink();
    this.chosen = asked.chosen;
    this.following = asked.seq === null && !this.a.port.isFile;
    await this.moveTo(asked.seq ?? this.a.head);
    performance.mark("shown");
    if (this.b) { this.showFigures(); this.linesOfB(); }
    if (!this.a.port.isFile) setInterval(() => this.follow(), FOLLOW_MS);
  }

  get ab() { return this.b && byId("ab").checked; }

  /** What is asked about the whole log. */
  async learn() {
    const data = await this.a.port.ask("backlog", { bins: 1200 });
    this.marks = data;
    this.backlog.show(data, this.a);
    if (data.seqs.length && (performance.now() - this.spansAt > SPANS_MS || this.spansAt === undefined)) {
      this.spansAt = performance.now();
      this.lanes.show(await this.a.port.ask("spans", { first: this.a.first, last: this.a.head }), this.a, this.backlog);
    }
    const { complete, reached, head, left } = this.a.meta;
    byId("reached").textContent = complete ? (left ? `not in this file: ${visible(left)}` : "") : `reading the log: ${grouped(reached)} of ${grouped(head)} records`;
  }

  async follow() {
    if (this.learning) return;
    this.learning = true;
    try {
      const before = this.a.meta;
      await this.a.refresh();
      const grown = this.a.head !== before.head || this.a.meta.reached !== before.reached;
      if (grown) await this.learn();
      const newest = this.following ? this.newest(grown, before.reached) : this.a.seq;
      if (newest !== this.a.seq) await this.moveTo(newest);
      else if (grown) this.render();
      byId("reached").classList.remove("bad");
    } catch (error) {
      byId("reached").textContent = `no answer: ${visible(error.message)}`;
      byId("reached").classList.add("bad");
    } finally { this.learning = false; }
  }

  /** Where to stand while following: at the newest record that has a step if the log's reader keeps up, so that nothing is computed twice. */
  newest(grown, before) {
    const { seq, meta, head } = this.a;
    if (meta.reached > before && meta.reached >= seq) return meta.reached;
    return grown && performance.now() < this.a.computeAfter ? seq : head;
  }

  // --- moving ----------------------------------------------------------------------------------------------------------

  go(seq) {
    this.following = seq >= this.a.head && !this.a.port.isFile;
    return this.moveTo(seq);
  }

  /** Only the last of many wishes counts. */
  async moveTo(seq) {
    this.wanted = seq;
    if (this.moving) return this.moving;
    this.moving = (async () => {
      while (this.wanted !== null) {
        const next = this.wanted;
        this.wanted = null;
        const began = performance.now();
        await this.a.goto(next);
        if (this.ab) await this.alongside();
        this.said("");
        this.render();
        performance.measure("step", { start: began, end: performance.now() });
      }
    })();
    try { await this.moving; } finally { this.moving = null; }
  }

  /** Let B stand where A stands: at the same record while the logs are alike, else at the same time. */
  async alongside() {
    await this.b.goto(this.a.seq);
    if (this.b.seq !== this.a.seq || this.b.at !== this.a.at || JSON.stringify(this.b.step) !== JSON.stringify(this.a.step)) await this.b.goto(await this.b.seqAt(this.a.at));
  }

  async decision(direction) { await this.go(await this.a.decision(direction)); }

  async next(mark) {
    if (mark === "difference") return this.nextDifference();
    const seqs = (this.marks.exact || {})[mark] || [];
    const found = seqs.find((seq) => seq > this.a.seq) ?? seqs[0];
    if (found === undefined) return this.say(`no pod ${{ preempted: "was preempted", "fell back": "fell back" }[mark]} in this log`);
    await this.go(found);
    const step = this.a.step;
    if (step && step.key.startsWith("Pod/")) this.choose({ pod: step.key.slice(4) });
  }

  /** Go from decision to decision until a pod is elsewhere in B than in A, and was not before. */
  async nextDifference() {
    if (!this.ab) return;
    const before = this.differing();
    const stood = this.a.seq;
    for (let tries = 0; tries < 5000; tries += 1) {
      const seq = await this.a.decision(1);
      await this.a.goto(seq);
      await this.alongside();
      const now = this.differing();
      const fresh = [...now].find((name) => !before.has(name));
      if (fresh !== undefined) { await this.go(seq); this.choose({ pod: fresh }); return; }
      if (seq >= this.a.head) break;
    }
    await this.go(stood);
    this.say(before.size ? "no further pod is placed differently after this moment" : "A and B place every pod alike from here on");
  }

  differing() {
    const found = new Set();
    for (const [name, row] of this.a.pods()) { const other = this.b.pod(name); if ((other ? other.node : undefined) !== row.node) found.add(name); }
    for (const [name, row] of this.b.pods()) if (row.node && !this.a.pod(name)) found.add(name);
    return found;
  }

  play() {
    if (this.playing) { clearInterval(this.playing); this.playing = null; }
    else {
      this.playing = setInterval(() => {
        if (this.a.seq >= this.a.head) return this.play();
        const speed = Number(byId("speed").value);
        if (!this.moving) this.go(this.a.seq + speed);
        return undefined;
      }, 250);
    }
    byId("play").textContent = this.playing ? "stop" : "play";
    byId("play").setAttribute("aria-pressed", String(Boolean(this.playing)));
  }

  async jump(text) {
    const word = text.trim();
    if (/^\d+$/.test(word)) return this.go(Number(word));
    const name = word.includes("/") ? word : `default/${word}`;
    if (this.a.pod(name) || this.lanes.spans.some((span) => span.pod === name)) return this.choose({ pod: name });
    const today = new Date(this.a.at);
    const time = /^\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?$/.test(word) ? `${today.getFullYear()}-${String(today.getMonth() + 1).padStart(2, "0")}-${String(today.getDate()).padStart(2, "0")}T${word.padStart(word.indexOf(":") === 1 ? word.length + 1 : word.length, "0")}` : word.replace(" ", "T");
    const at = Date.parse(utc && !/[zZ]|[+-]\d\d:?\d\d$/.test(time) ? `${time}Z` : time);
    if (Number.isNaN(at)) return this.say(`${visible(word)} is no record, time or pod here`);
    return this.go(await this.a.seqAt(at));
  }

  // --- choosing --------------------------------------------------------------------------------------------------------

  choose(what) {
    this.chosen = what;
    this.said("");
    this.render();
  }

  search() {
    const dialog = byId("search");
    dialog.showModal();
    byId("search-text").value = "";
    this.find("");
    byId("search-text").focus();
  }

  find(text) {
    const word = text.toLowerCase();
    const found = [];
    const kinds = { Pod: "pod", Node: "node", PodGroup: "group", PodDisruptionBudget: "budget" };
    const take = (kind, name) => { if (found.length < 50 && name.toLowerCase().includes(word)) found.push([kind, name]); };
    for (const key of this.a.rows.keys()) { const cut = key.indexOf("/"); take(kinds[key.slice(0, cut)], key.slice(cut + 1).replace(/^\//, "")); if (found.length >= 50) break; }
    const gone = new Set();
    for (const span of this.lanes.spans) if (!this.a.pod(span.pod) && !gone.has(span.pod)) { gone.add(span.pod); take("pod", span.pod); }
    byId("search-found").replaceChildren(...found.map(([kind, name], i) => el("button", { type: "button", role: "option", "aria-selected": String(i === 0), onclick: () => this.found(kind, name) }, `${kind} ${visible(name)}`)));
    this.best = found[0];
  }

  found(kind, name) {
    byId("search").close();
    this.choose({ [kind]: name });
    byId("detail").focus();
  }

  // --- showing ---------------------------------------------------------------------------------------------------------

  render() {
    const { a } = this;
    const differing = this.ab ? this.differing() : null;
    byId("record-of").textContent = `record ${grouped(a.seq)} of ${grouped(a.head)}${this.following ? ", following" : ""}${differing ? ` · ${grouped(differing.size)} pods differ now` : ""}`;
    byId("clock").textContent = clock(a.at);
    this.backlog.draw();
    this.lanes.chosen = this.chosen.pod;
    this.lanes.draw();
    this.queues.show(a, this.chosen.pod, differing, this.b);
    this.cluster.show(a, this.ab ? this.b : null, this.chosen);
    for (const note of document.querySelectorAll(".of-a")) note.textContent = this.ab ? "(of A)" : "";
    this.detail.show(a, this.ab ? this.b : null, this.chosen);
    this.showRecord();
    const words = Object.entries(this.chosen).map(([kind, name]) => `&${kind}=${encodeURIComponent(name).replaceAll("%2F", "/")}`).join("");
    const link = `#at=${a.seq}${words}`;
    byId("permalink").setAttribute("href", link);
    if (location.hash !== link) history.replaceState(null, "", link);
    byId("command").textContent = this.command();
  }

  command() {
    const at = `--at ${this.a.seq} --log ${visible(this.a.meta.log)}`;
    if (this.chosen.pod) return `tidelog why ${visible(this.chosen.pod)} ${at}`;
    if (this.chosen.node) return `tidelog get node ${visible(this.chosen.node)} -o yaml ${this.chosen.side === "b" && this.b ? `--at ${this.b.seq} --log ${visible(this.b.meta.log)}` : at}`;
    if (this.chosen.group) return `tidelog get podgroup ${visible(this.chosen.group)} -o yaml ${at}`;
    if (this.chosen.budget) return `tidelog get pdb ${visible(this.chosen.budget)} -o yaml ${at}`;
    return `tidelog queue ${at}`;
  }

  showRecord() {
    const { step } = this.a;
    const woken = step ? (step.woken || []).map((one) => `wakes ${visible(one.pod)}`) : [];
    byId("record-line").textContent = step ? `record ${step.seq}  ${clock(step.at)}  ${visible(step.author || "")}  ${step.kind} ${visible(step.key || "")}  ${visible(step.text || "")}${woken.length ? `  (${woken.slice(0, 3).join(", ")}${woken.length > 3 ? ` and ${woken.length - 3} more` : ""})` : ""}` : "before the first record";
    if (byId("record-part").open) this.fillRecord();
  }

  async fillRecord() {
    const { step } = this.a;
    if (!step) return;
    try { byId("record-json").textContent = visible(JSON.stringify(await this.a.port.ask("record", { seq: step.seq }), null, 2)).replaceAll("\\u000a", "\n"); } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      byId("record-json").textContent = error.message;
    }
  }

  /** How full the zones of B were over time, for the overview. */
  async linesOfB() {
    await this.wholly(this.b);
    this.marksOfB = await this.b.port.ask("backlog", { bins: 1200 });
    this.render();
  }

  /** Wait until the server has gone through the log: what is asked about the whole of it is right only then. */
  async wholly({ port }) {
    if (port.isFile) return;
    while (!(await port.ask("meta")).complete) await new Promise((done) => setTimeout(done, WHOLE_MS));
  }

  /** What differs between A and B as a whole: settings first, since they are why; then the figures. */
  async showFigures() {
    const part = byId("figures");
    try {
      await this.wholly(this.a);
      await this.wholly(this.b);
      const ask = (question) => Promise.all([this.a.port.ask(question), this.b.port.ask(question)]);
      const [mine, its] = await ask("settings");
      const settings = [...new Set([...Object.keys(mine), ...Object.keys(its)])].filter((name) => mine[name] !== its[name]).map((name) => [visible(name), visible(mine[name] ?? "–"), visible(its[name] ?? "–")]);
      const [one, other] = await ask("figures");
      const rows = Object.keys(one).map((name) => [FIGURES[name] || name.replaceAll("_", " "), figure(name, one[name]), figure(name, other[name])]);
      const differ = rows.filter(([, x, y]) => x !== y);
      part.hidden = false;
      const heads = (what) => [what, `A: ${this.a.meta.log}`, `B: ${this.b.meta.log}`];
      const alike = rows.filter(([, x, y]) => x === y);
      part.replaceChildren(
        settings.length ? table(heads("setting that differs"), settings) : el("p", {}, "A and B are configured alike."),
        differ.length ? table(heads("figure"), differ) : "",
        el("details", {}, el("summary", {}, differ.length ? `${alike.length} more figures are the same` : `all ${alike.length} figures of A and B are the same`), table(heads("figure"), alike)),
      );
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      part.hidden = false;
      part.textContent = error.message;
    }
  }

  hover(event, text) {
    const box = byId("hover");
    box.hidden = !text;
    box.textContent = text;
    box.style.left = `${Math.min(event.clientX + 12, innerWidth - 320)}px`;
    box.style.top = `${Math.min(event.clientY + 14, innerHeight - 60)}px`;
  }

  /** Answer the reader, until the next step. */
  say(text) { this.said(text); }

  said(text) { byId("answer").textContent = text; }

  // --- links and keys --------------------------------------------------------------------------------------------------

  permalink() {
    const words = new URLSearchParams(location.hash.slice(1));
    const seq = /^\d+$/.test(words.get("at") || "") ? Number(words.get("at")) : null;
    const chosen = {};
    for (const kind of ["pod", "node", "group", "budget", "side"]) if (words.get(kind)) chosen[kind] = words.get(kind);
    return { seq, chosen };
  }

  listen() {
    const click = (id, does) => byId(id).addEventListener("click", does);
    click("first", () => this.go(this.a.first));
    click("back", (event) => (event.shiftKey ? this.decision(-1) : this.go(this.a.seq - 1)));
    click("forth", (event) => (event.shiftKey ? this.decision(1) : this.go(this.a.seq + 1)));
    click("last", () => this.go(this.a.head));
    click("play", () => this.play());
    click("clock", () => this.toggleUtc());
    click("search-open", () => this.search());
    click("help-open", () => byId("help").showModal());
    for (const button of document.querySelectorAll("[data-next]")) button.addEventListener("click", () => this.next(button.dataset.next));
    byId("jump").addEventListener("submit", (event) => { event.preventDefault(); this.jump(byId("jump-to").value); });
    byId("axis").addEventListener("change", (event) => { this.backlog.axis = event.target.value; this.render(); });
    byId("ab").addEventListener("change", () => this.moveTo(this.a.seq));
    byId("search-text").addEventListener("input", (event) => this.find(event.target.value));
    byId("search").addEventListener("submit", (event) => { event.preventDefault(); if (this.best) this.found(...this.best); });
    byId("record-part").addEventListener("toggle", () => this.showRecord());
    byId("help-keys").append(...KEYS.flatMap(([key, what]) => [el("dt", {}, key), el("dd", {}, what)]));
    addEventListener("hashchange", () => { const { seq, chosen } = this.permalink(); this.chosen = chosen; this.go(seq ?? this.a.head); });
    addEventListener("resize", () => this.render());
    document.addEventListener("keydown", (event) => this.key(event));
  }

  toggleUtc() { setUtc(!utc); this.render(); }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("search").open || byId("help").open) return;
    if (/INPUT|SELECT|TEXTAREA/.test(event.target.tagName) && event.target.type !== "checkbox") return;
    if (event.key === " " && /BUTTON|SUMMARY|INPUT/.test(event.target.tagName)) return;
    const does = {
      ArrowLeft: () => (event.shiftKey ? this.decision(-1) : this.go(this.a.seq - 1)),
      ArrowRight: () => (event.shiftKey ? this.decision(1) : this.go(this.a.seq + 1)),
      Home: () => this.go(this.a.first), End: () => this.go(this.a.head), " ": () => this.play(),
      "/": () => this.search(), "?": () => byId("help").showModal(), Escape: () => this.choose({}),
      n: () => this.next("preempted"), f: () => this.next("fell back"), d: () => this.next("difference"),
      a: () => { if (this.b) { byId("ab").checked = !byId("ab").checked; this.moveTo(this.a.seq); } },
      l: () => { byId("as-list").checked = !byId("as-list").checked; this.cluster.redraw(); },
      t: () => { byId("axis").value = byId("axis").value === "time" ? "record" : "time"; this.backlog.axis = byId("axis").value; this.render(); },
      u: () => this.toggleUtc(),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }
}

function figure(name, value) {
  if (value && typeof value === "object") return value.count ? `${grouped(value.count)} ${name === "group_seconds" ? "groups" : "pods"}, half within ${duration(value.p50 * 1000)}, 99 % within ${duration(value.p99 * 1000)}` : "none";
  return String(value);
}

async function begin() {
  const index = document.getElementById("index");
  let ports;
  if (index) {
    const found = await unpack(index);
    ports = ["a", "b"].filter((side) => found[side]).map((side) => new FilePort(side, found[side]));
  } else {
    const sides = await (await fetch("api/sides")).json();
    ports = sides.map((side) => new HttpPort(side));
  }
  const [a, b] = ports.map((port) => new Model(port));
  const page = new Page(a, b);
  window.tidelogPage = page;
  await page.start();
}

begin().catch((error) => { byId("reached").textContent = `this page cannot go on: ${visible(error.message)}`; byId("reached").classList.add("bad"); throw error; });

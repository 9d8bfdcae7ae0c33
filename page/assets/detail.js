// The chosen thing: a pod with its story, what it waits for and what would help; a node, a group, a budget.
import { amount, byId, clock, duration, el, grouped, visible } from "./format.js";
import { NoAnswer } from "./port.js";
import { reasonOf } from "./queues.js";
import { valueAt } from "./lanes.js";
import { PROMISED, fullness } from "./state.js";

const MATRIX_NODES = 60;
const WOKEN_SHOWN = 20;
const UNTIL = { unschedulable: "retried anyway at", backoff: "backs off until", permit: "given up at", answers: "given up at" };

/** A moment of the command line's JSON, in milliseconds. */
const ms = (at) => (typeof at === "string" ? Date.parse(at) : at / 1e6);

export class DetailView {
  /** `spansOf(pod)`: its bars in the lanes. `lines()`: how full zones were over time; `others()`: in B, or null. */
  constructor(choose, go, spansOf, lines, others) {
    this.others = others;
    this.spansOf = spansOf;
    this.lines = lines;
    this.choose = choose;
    this.go = go;
    this.asked = 0;
    this.told = null;
  }

  async show(model, other, chosen) {
    this.model = model;
    const asked = ++this.asked;
    const [title, quick] = this.quick(model, other, chosen);
    if (byId("detail-title").textContent !== visible(title)) byId("detail-body").scrollTop = 0;
    byId("detail-title").replaceChildren(visible(title));
    const slot = el("div");
    byId("detail-body").replaceChildren(...quick, slot);
    if (!chosen.pod) return;
    if (this.told && this.told.pod === chosen.pod && (model.port.isFile || this.told.seq === model.seq)) { slot.replaceChildren(...this.story(this.told.why)); return; }
    if (this.told && this.told.pod === chosen.pod) slot.replaceChildren(...this.story(this.told.why));
    else slot.replaceChildren(el("p", {}, "asking …"));
    if (!model.port.isFile) await new Promise((done) => setTimeout(done, 120));
    if (asked !== this.asked) return;
    try {
      const why = await model.port.ask("why", { pod: chosen.pod, seq: model.seq });
      if (asked !== this.asked) return;
      this.told = { pod: chosen.pod, seq: model.seq, why };
      slot.replaceChildren(...this.story(why));
    } catch (error) {
      if (!(error instanceof NoAnswer)) throw error;
      if (asked === this.asked) slot.replaceChildren(el("p", {}, error.message));
    }
  }

  quick(model, other, chosen) {
    if (chosen.pod) return [`Pod ${chosen.pod}`, this.pod(model, other, chosen.pod)];
    if (chosen.node) return [`Node ${chosen.node}${other ? ` in ${chosen.side === "b" ? "B" : "A"}` : ""}`, this.node(chosen.side === "b" && other ? other : model, chosen.node)];
    if (chosen.group) return [`Group ${chosen.group}`, this.group(model, chosen.group)];
    if (chosen.budget) return [`Budget ${chosen.budget}`, this.budget(model, chosen.budget)];
    return ["The cluster", this.overview(model)];
  }

  link(kind, name, text = name) { return name ? el("button", { class: "link", onclick: () => this.choose({ [kind]: name }) }, text) : "–"; }
  moment(seq, text = `record ${grouped(seq)}`) { return el("button", { class: "link", onclick: () => this.go(seq) }, text); }

  overview(model) {
    const budgets = [...model.rows].filter(([key]) => key.startsWith("PodDisruptionBudget/"));
    const groups = [...model.rows].filter(([key]) => key.startsWith("PodGroup/"));
    const waiting = [...model.waiting()].filter(([, row]) => row.fallbackAt || (row.fallback || []).length);
    const parts = [el("p", {}, "Choose a pod, a node, a group or a budget; drag on the backlog to go to another moment.")];
    if (waiting.length) {
      parts.push(el("h3", {}, "Spread constraints that can fall back"), table(["pod", "falls back", "state"], waiting.map(([name, row]) => [this.link("pod", name), countdown(row, model.at), (row.fallback || []).join("; ")])));
    }
    const zones = this.lines().zones || {};
    const others = this.others();
    const inB = (others && others.zones) || {};
    const names = [...new Set([...Object.keys(zones), ...Object.keys(inB)])];
    if (names.length) {
      const most = (points) => Math.max(...points.map(([, value]) => value));
      const heads = others ? ["zone", "now in A", "fullest in A", "first reached", "fullest in B"] : ["zone", "now", "fullest", "first reached"];
      const row = (zone) => {
        const points = zones[zone];
        const own = points ? [`${valueAt(points, model.seq)} %`, `${most(points)} %`, this.reached(points.find(([, value]) => value === most(points))[0])] : ["–", "–", "–"];
        return [visible(zone), ...own, ...(others ? [inB[zone] ? `${most(inB[zone])} %` : "–"] : [])];
      };
      parts.push(el("h3", {}, "How full the zones are"), table(heads, names.map(row)));
    }
    if (budgets.length) parts.push(el("h3", {}, "Disruption budgets"), table(["budget", "allowed", "healthy", "charged by"], budgets.map(([key, row]) => [this.link("budget", key.slice(20)), row.allowed, `${row.healthy || 0} of ${row.desired || 0} wanted`, (row.disrupted || []).join(", ")])));
    if (groups.length) parts.push(el("h3", {}, "Pod groups"), table(["group", "placed", "needs", "state"], groups.map(([key, row]) => { const [all, placed] = this.members(model, key.slice(9)); return [this.link("group", key.slice(9)), `${placed.length} of ${all.length}`, row.minimum || "–", row.condition || ""]; })));
    return parts;
  }

  /** A record of the past, with its time. */
  reached(seq) {
    const { seqs, at } = this.lines();
    return el("span", {}, clock(at[Math.max(seqs.findIndex((one) => one >= seq), 0)]), " ", this.moment(seq));
  }

  members(model, group) {
    const [namespace, name] = group.split("/");
    const all = [...model.pods()].filter(([key, row]) => row.group === name && key.startsWith(`${namespace}/`));
    return [all, all.filter(([, row]) => row.node && !PROMISED.has(row.where))];
  }

  pod(model, other, name) {
    const row = model.pod(name);
    const ended = this.spansOf(name).find((span) => span.preemptedBy);
    const preempted = ended ? [["preempted", el("span", {}, "for ", this.link("pod", ended.preemptedBy), " at ", this.moment(ended.last))]] : [];
    if (!row) return [el("p", {}, `not there at record ${grouped(model.seq)}`), list(preempted)];
    const facts = [...preempted, ["state", el("strong", {}, row.where)]];
    if (row.node) facts.push(["node", this.link("node", row.node)]);
    if (row.nominated) facts.push(["room is kept on", this.link("node", row.nominated)]);
    if (!row.node) facts.push(["because", row.reason || reasonOf(row)]);
    for (const text of row.awaited || []) facts.push(["waits for", text]);
    for (const text of row.claims || []) facts.push(["claims", text]);
    if (row.gate) facts.push(["gate", row.gate]);
    if (row.since) facts.push(["in this state for", duration(model.at - row.since)]);
    if (row.until) facts.push([UNTIL[row.where] || "until", `${clock(row.until)} (${duration(row.until - model.at)} left)`]);
    if (row.attempts) facts.push(["attempts", row.attempts]);
    if (row.victim) {
      const preemptors = [...model.waiting()].filter(([, one]) => one.nominated === row.node && (one.priority || 0) > (row.priority || 0)).map(([other]) => this.link("pod", other));
      facts.push(["has to go", el("span", {}, "to make room for ", preemptors.length ? preemptors : "another pod")]);
    }
    facts.push(["priority", row.priority || 0], ["asks for", Object.entries(row.requests || {}).map(([k, v]) => (k === "cpu" || k === "memory" ? amount(k, v) : `${amount(k, v)} ${k}`)).join(", ") || "nothing"]);
    if (row.group) facts.push(["group", this.link("group", `${name.split("/")[0]}/${row.group}`)]);
    for (const [key, skew, hard] of row.spread || []) facts.push(["spread over", `${key}, maxSkew ${skew}, ${hard ? "hard as written" : "a preference"}`]);
    for (const text of row.fallback || []) facts.push(["fallback", text]);
    if (row.fallbackAt) facts.push(["falls back", countdown(row, model.at)]);
    if (other) { const b = other.pod(name); facts.push(["in B", !b ? "not there" : b.node ? el("span", { class: b.node === row.node ? "good" : "bad" }, `on ${visible(b.node)}`) : el("span", { class: row.node ? "bad" : "" }, b.reason === row.reason && b.where === row.where ? "the same" : `${b.where}: ${visible(b.reason || reasonOf(b))}`)]); }
    return [list(facts)];
  }

  node(model, name) {
    const node = model.nodes.get(name);
    if (!node || !node.row) return [el("p", {}, `not there at record ${grouped(model.seq)}`)];
    const { most, which } = fullness(node);
    const facts = [["full", `${Math.floor(most * 100)} % of ${which || "nothing"}`], ["state", node.row.cordoned ? "cordoned" : "takes pods"], ["taints", (node.row.taints || []).join(", ") || "none"]];
    const resources = Object.entries(node.row.allocatable).map(([resource, all]) => { const used = resource === "pods" ? node.pods.size : node.used[resource] || 0; return [resource, amount(resource, used), amount(resource, all), meter(used / (all || 1))]; });
    const pods = [...node.pods].map((key) => [this.link("pod", key.slice(4)), model.rows.get(key).where, model.rows.get(key).priority || 0, model.rows.get(key).victim ? "has to go" : ""]);
    const labels = Object.entries(node.row.labels || {}).map(([k, v]) => `${k}=${v}`).join(" ");
    return [list([...facts, ["labels", labels]]), table(["resource", "used", "of", "share"], resources), el("h3", {}, `${grouped(pods.length)} pods`), table(["pod", "state", "priority", "note"], pods.slice(0, 300))];
  }

  group(model, name) {
    const row = model.rows.get(`PodGroup/${name}`);
    const [all, placed] = this.members(model, name);
    const facts = [["placed", `${placed.length} of ${all.length} pods`], ["needs", row && row.minimum ? `${row.minimum} at once` : "no minimum"], ["together in one", ((row && row.levels) || []).join(", ") || "–"]];
    if (row && row.condition) facts.push(["state", row.condition]);
    const tiles = row && row.message ? [el("h3", {}, "Candidate placements"), el("div", { class: "tiles" }, row.message.split(/; (?=[^ ]+: )|\n/).map((text) => el("div", { class: "tile" }, text)))] : [];
    const slot = el("div");
    this.placement(model, name, slot);
    return [list(facts), slot, ...tiles, table(["member", "state", "node"], all.map(([key, pod]) => [this.link("pod", key), pod.where, pod.node ? this.link("node", pod.node) : "–"]))];
  }

  /** How the group's placement was chosen: told by the record that made it. */
  async placement(model, name, slot) {
    const chunk = model.chunk;
    if (!chunk) return;
    const step = chunk.steps.slice(0, model.place).findLast((one) => one.kind === "PlacementChosen" && one.key.endsWith(`/${name}`));
    if (!step) return;
    try {
      const record = await model.port.ask("record", { seq: step.seq });
      const body = record.body;
      const tiles = [el("div", { class: "tile won" }, `✓ ${visible(body.placement || "the whole cluster")}`, ...Object.entries((body.scores || {})[body.placement] || {}).map(([plugin, score]) => el("div", {}, `${visible(plugin)} ${score}`)))];
      for (const text of body.explanation || []) tiles.push(el("div", { class: "tile" }, text));
      slot.replaceChildren(el("h3", {}, "Placements at ", this.moment(step.seq)), el("div", { class: "tiles" }, tiles));
    } catch (error) { if (!(error instanceof NoAnswer)) throw error; }
  }

  budget(model, name) {
    const row = model.rows.get(`PodDisruptionBudget/${name}`);
    if (!row) return [el("p", {}, `not there at record ${grouped(model.seq)}`)];
    const facts = [["allows now", `${row.allowed} disruptions`], ["healthy", `${row.healthy || 0}, wanted ${row.desired || 0}, expected ${row.expected || 0}`], ["charged by", (row.disrupted || []).join(", ") || "nobody"]];
    if (row.note) facts.push(["note", row.note]);
    const refused = (model.chunk ? model.chunk.steps.slice(0, model.place) : []).filter((step) => step.kind === "EvictionRefused" && (step.text || "").includes(name.split("/")[1]));
    const lines = refused.slice(-20).map((step) => [this.moment(step.seq), this.link("pod", step.key.slice(4)), step.text]);
    return [list(facts), ...(lines.length ? [el("h3", {}, "Refused evictions"), table(["when", "victim", "because"], lines)] : [])];
  }

  story(why) {
    const parts = [];
    const { waits, choice } = why;
    const current = why.seq === this.model.seq || (waits && this.model.seq === this.model.head);
    if (waits && current) parts.push(...this.waits(why));
    parts.push(el("h3", {}, "What happened"), this.entries(why.story.entries));
    if (choice && choice.scores.length) parts.push(...this.scores(choice));
    else if (choice && choice.note) parts.push(el("p", {}, choice.note));
    if (current) parts.push(...this.matrix(why));
    if (why.story.judged.length) {
      const judged = why.story.judged.filter((one) => one.seq <= this.model.seq);
      const woke = judged.filter((one) => one.answer === "Queue");
      if (woke.length) parts.push(el("h3", {}, "What woke it"), el("ul", {}, woke.slice(-WOKEN_SHOWN).map((one) => el("li", {}, this.moment(one.seq), ` ${visible(one.event)} ${visible(one.object)}: ${visible(one.plugin)} said that it may help`))));
      const slept = why.story.slept_through ?? why.story.sleptThrough ?? 0;
      if (slept) parts.push(el("details", {}, el("summary", {}, `${grouped(slept)} more events were judged and did not help; the last of all`), table(["record", "event", "object", "plugin", "answer"], judged.map((one) => [this.moment(one.seq, String(one.seq)), one.event, one.object, one.plugin, one.answer]))));
    }
    return parts;
  }

  waits({ waits, help, feasible, nodes }) {
    const parts = [];
    if (help.length || feasible.length) {
      parts.push(el("h3", {}, `What would help (${grouped(nodes)} nodes)`));
      if (feasible.length) parts.push(el("p", {}, `${grouped(feasible.length)} nodes would take it now: ${feasible.slice(0, 8).map(visible).join(", ")}`));
      for (const one of help) {
        const reasons = Object.entries(one.reasons || {}).map(([text, count]) => `${count} ${text}`).join(", ");
        parts.push(el("div", {}, el("strong", {}, one.plugin), ` rejects ${one.nodes} nodes, ${one.only || 0} of them by it alone${reasons ? `: ${visible(reasons)}` : ""}`, el("ul", {}, (one.advice || []).map((text) => el("li", {}, text)))));
      }
    }
    const events = Object.entries(waits.events || {});
    if (events.length) parts.push(el("details", {}, el("summary", {}, "events that can wake it"), list(events.map(([plugin, names]) => [plugin, names.join(", ")]))));
    return parts;
  }

  entries(entries) {
    const now = this.model.seq;
    return el("ol", { class: "story" }, entries.map((entry) => {
      const woken = Object.entries(entry.woken_by || entry.wokenBy || {}).map(([name, count]) => `${name}${count > 1 ? ` ×${count}` : ""}`).join(", ");
      const often = entry.count > 1 ? ` (${entry.count} times, last at record ${entry.last_seq ?? entry.lastSeq})` : "";
      return el("li", { class: entry.seq > now ? "later" : "now" },
        this.moment(entry.seq, `${entry.seq}`), ` ${clock(ms(entry.at))} `, el("strong", {}, entry.what), `: ${visible(entry.text)}${often}`,
        (entry.rejections || []).map((one) => el("div", {}, `${visible(one.plugin)}: ${visible(one.reason)} on ${one.nodes} of ${entry.nodes} nodes`)),
        (entry.notes || []).map((text) => el("div", {}, text)),
        woken && entry.what !== "woken" ? el("div", {}, `woken by ${visible(woken)}`) : "");
    }));
  }

  scores(choice) {
    const plugins = Object.keys(choice.weights).filter((name) => choice.scores.some((score) => score.plugins[name].weighted));
    const rows = choice.scores.map((score, i) => [i ? this.link("node", score.node) : el("strong", {}, "✓ ", visible(score.node)), score.total, ...plugins.map((name) => score.plugins[name].weighted)]);
    const rejected = Object.entries(choice.rejected).map(([plugin, count]) => `${visible(plugin)} ruled out ${count}`).join(", ");
    const best = choice.tied > 1 ? `${grouped(choice.tied)} of them equally good` : "none as good as this one";
    const scores = table(["node", "points", ...plugins.map((name) => `${name} ×${choice.weights[name]}`)], rows);
    scores.classList.add("scores");
    return [el("h3", {}, `Why this node: ${grouped(choice.feasible)} of ${grouped(choice.nodes)} nodes would do, ${best}`), scores, rejected ? el("p", {}, rejected) : ""];
  }

  /** Nodes × plugins for a pending pod: nodes that hear the same are one line. */
  matrix({ by_node: snake, byNode, nodes }) {
    const verdicts = snake || byNode || {};
    const alike = new Map();
    for (const [node, reasons] of Object.entries(verdicts)) {
      const key = JSON.stringify(Object.entries(reasons));
      if (!alike.has(key)) alike.set(key, { reasons, nodes: [] });
      alike.get(key).nodes.push(node);
    }
    if (!alike.size) return [];
    const plugins = [...new Set([...alike.values()].flatMap(({ reasons }) => Object.keys(reasons)))].sort();
    const lines = [...alike.values()].sort((a, b) => b.nodes.length - a.nodes.length).slice(0, MATRIX_NODES);
    const named = (names) => el("span", { title: names.slice(0, 200).map(visible).join(", ") }, names.length > 4 ? `${names.slice(0, 3).map(visible).join(", ")} and ${grouped(names.length - 3)} more` : names.map(visible).join(", "));
    return [el("h3", {}, `Every plugin's verdict on ${grouped(nodes)} nodes`), table(["nodes", ...plugins], lines.map((one) => [named(one.nodes), ...plugins.map((name) => (one.reasons[name] ? el("span", { class: "bad" }, "✕ ", visible(one.reasons[name])) : el("span", { class: "good" }, "✓")))]))];
  }
}

function countdown(row, at) { return row.fallbackAt ? (row.fallbackAt > at ? `in ${duration(row.fallbackAt - at)} (${clock(row.fallbackAt)})` : `since ${clock(row.fallbackAt)}`) : "when its criteria hold"; }

export function list(facts) { return el("dl", {}, facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])); }

export function table(heads, rows) {
  const isNumber = (value) => typeof value === "number";
  return el("table", {}, el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value) => el("td", { class: isNumber(value) ? "number" : undefined }, isNumber(value) ? grouped(value) : value))))));
}

function meter(share) {
  const fill = el("i");
  fill.style.width = `${Math.min(share, 1) * 100}%`;
  return el("span", { class: "meter", title: `${Math.round(share * 100)} %` }, fill);
}

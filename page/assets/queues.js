// Every pending pod, grouped by what keeps it waiting; with A and B, the pods that differ.
import { byId, duration, el, grouped } from "./format.js";
import { LongList } from "./list.js";
import { PENDING } from "./state.js";

export class QueuesView {
  constructor(choose) {
    this.list = new LongList(byId("queue-list"), (item) => (item.head ? [el("span", { class: "name" }, item.text), el("span", { class: "time" }, grouped(item.count))] : line(item)), (item) => choose({ pod: item.pod }));
  }

  /** `differing`: of A|B the names of the pods that differ, or null. */
  show(model, chosen, differing, other) {
    const groups = new Map();
    let count = 0;
    for (const name of new Set([...model.pending, ...(differing || [])])) {
      const differs = Boolean(differing && differing.has(name));
      const row = model.pod(name) || (differs ? other.pod(name) : undefined);
      if (!row || (!PENDING.includes(row.where) && !differs)) continue;
      if (PENDING.includes(row.where)) count += 1;
      const because = differs ? "differs between A and B" : reasonOf(row);
      if (!groups.has(because)) groups.set(because, []);
      groups.get(because).push({ pod: name, row, at: model.at, chosen: name === chosen, how: differs ? `${place(model.pod(name))} → ${place(other.pod(name))}` : "" });
    }
    const order = [...groups].sort((a, b) => rank(a) - rank(b) || b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
    const items = [];
    for (const [text, pods] of order) {
      pods.sort((a, b) => (b.row.priority || 0) - (a.row.priority || 0) || (a.row.since || 0) - (b.row.since || 0) || (a.pod < b.pod ? -1 : 1));
      items.push({ head: true, text, count: pods.length }, ...pods);
    }
    byId("queue-count").textContent = `${grouped(count)} pending`;
    this.list.show(items);
  }
}

function rank([because, pods]) { return because.startsWith("differs") ? -1 : PENDING.indexOf(pods[0].row.where); }

/** What keeps the pod waiting, in a few words. */
export function reasonOf(row) {
  if (row.where === "gated") return `gated by ${row.gate}`;
  if (row.where === "permit") return `waits for ${(row.plugins || []).join(", ")} to permit it`;
  if (row.where === "answers") return `waits for ${(row.awaited || []).join(", ") || "its volumes and devices"}`;
  if (row.where === "in flight") return "is being tried";
  if (row.where === "active") return "its turn comes";
  if (row.where === "nowhere") return "no scheduler has it";
  const by = (row.plugins || []).join(", ");
  return row.where === "backoff" ? `backs off${by ? ` after ${by}` : ""}` : `rejected by ${by || "an error"}`;
}

/** Where a pod is, in a word: of A or of B. */
function place(row) { return row ? row.node || row.where : "not there"; }

function line({ pod, row, at, how }) {
  if (how) return [el("span", { class: "name", title: pod }, pod), el("span", { class: "what", title: `in A → in B: ${how}` }, how)];
  const left = row.until ? `${duration(row.until - at)} left` : row.since ? `for ${duration(at - row.since)}` : "";
  return [
    el("span", { class: "name", title: pod }, pod),
    el("span", { class: `place ${row.where.replace(" ", "-")}` }, row.where),
    el("span", { class: "what", title: row.reason || "" }, row.reason || (row.priority ? `priority ${row.priority}` : "")),
    el("span", { class: "time" }, left),
  ];
}

// The nodes as cells, grouped by a label: how full, cordoned or tainted, for whom room is kept, who has to go.
import { amount, byId, el, fitted, grouped, inks, visible } from "./format.js";
import { LongList } from "./list.js";
import { fullness } from "./state.js";

const GAP = 3;
const HEAD = 18;
const BAR = 14;
export const ZONE = "topology.kubernetes.io/zone";

export class ClusterView {
  constructor(choose, hover) {
    this.choose = choose;
    this.hover = hover;
    this.boxes = new Map();
    this.by = "";
    this.grouped = new WeakMap();
    for (const id of ["cells", "cells-b"]) {
      const canvas = byId(id);
      this.boxes.set(id, []);
      canvas.addEventListener("click", (event) => { const box = this.under(id, event); if (box) choose(id === "cells-b" ? { node: box.name, side: "b" } : { node: box.name }); });
      canvas.addEventListener("mousemove", (event) => { const box = this.under(id, event); hover(event, box ? summary(box.name, box.node) : ""); });
      canvas.addEventListener("mouseleave", (event) => hover(event, ""));
    }
    byId("cells").addEventListener("keydown", (event) => this.key(event));
    byId("group-by").addEventListener("change", (event) => { this.by = event.target.value; this.redraw(); });
    byId("as-list").addEventListener("change", () => this.redraw());
    this.list = new LongList(byId("node-list"), nodeLine, (item) => choose({ node: item.name }));
    byId("cells-legend").append(
      el("span", {}, "fill: the fullest resource"), el("span", {}, "thick border: cordoned"), el("span", {}, "dotted border: tainted"),
      el("span", {}, "○ room is kept for a nominated pod"), el("span", {}, "✕ a pod has to go"),
    );
  }

  /** `other` is B, or null. */
  show(model, other, chosen) {
    this.model = model;
    this.other = other;
    this.chosen = chosen;
    this.redraw();
  }

  redraw() {
    const { model, other } = this;
    if (!model) return;
    this.offerKeys();
    const asList = byId("as-list").checked;
    byId("cells-part").hidden = asList;
    byId("node-list").hidden = !asList;
    const count = [...model.living()].length;
    byId("cluster-count").textContent = `${grouped(count)} nodes`;
    if (asList) {
      this.list.show([...model.living()].sort(byName).map(([name, node]) => ({ name, node, chosen: name === this.chosen.node, zone: (node.row.labels || {})[this.by] || "" })));
      return;
    }
    byId("cells-b").hidden = !other;
    this.draw("cells", model);
    if (other) this.draw("cells-b", other);
  }

  /** The label keys that make groups: not as many values as nodes. Looked for when nodes have changed. */
  offerKeys() {
    if (this.offeredFor === this.model.shape) return;
    this.offeredFor = this.model.shape;
    const counts = new Map();
    let nodes = 0;
    for (const [, node] of this.model.living()) {
      nodes += 1;
      for (const [key, value] of Object.entries(node.row.labels || {})) {
        if (!counts.has(key)) counts.set(key, new Set());
        if (counts.get(key).size <= 300) counts.get(key).add(value);
      }
    }
    const keys = [...counts].filter(([key, values]) => values.size <= 300 && (values.size < nodes || nodes < 2 || key === ZONE)).map(([key]) => key).sort();
    const offered = ["", ...keys];
    const select = byId("group-by");
    if (offered.join("\n") === this.offered) return;
    this.offered = offered.join("\n");
    select.replaceChildren(...offered.map((key) => el("option", { value: key }, key || "nothing")));
    if (!offered.includes(this.by) || !this.by) this.by = offered.includes(ZONE) ? ZONE : keys.find((key) => /rack|zone|block/.test(key)) || "";
    select.value = this.by;
  }

  /** Groups in order, each with its nodes in order; kept as long as nodes are the same. */
  groups(model) {
    const known = this.grouped.get(model);
    if (known && known.shape === model.shape && known.by === this.by) return known.groups;
    const groups = this.sorted(model);
    this.grouped.set(model, { shape: model.shape, by: this.by, groups });
    return groups;
  }

  sorted(model) {
    const groups = new Map();
    for (const [name, node] of model.living()) {
      const value = this.by ? (node.row.labels || {})[this.by] ?? "(no such label)" : "all nodes";
      if (!groups.has(value)) groups.set(value, []);
      groups.get(value).push([name, node]);
    }
    for (const members of groups.values()) members.sort(byName);
    return [...groups].sort((a, b) => collator.compare(a[0], b[0]));
  }

  draw(id, model) {
    const canvas = byId(id);
    const groups = this.groups(model);
    const width = Math.max(canvas.parentElement.clientWidth / (this.other ? 2 : 1) - 6, 120);
    const nodes = groups.reduce((sum, [, members]) => sum + members.length, 0);
    const area = width * Math.max(canvas.parentElement.clientHeight - groups.length * (HEAD + BAR), 120);
    const size = Math.max(Math.min(Math.floor(Math.sqrt(area / Math.max(nodes, 1))) - GAP, 96), 6);
    const across = Math.max(Math.floor(width / (size + GAP)), 1);
    const tall = Math.min(size, 44);
    const skew = this.skewOf(model, groups);
    const height = groups.reduce((sum, [, members]) => sum + HEAD + (skew ? BAR : 0) + Math.ceil(members.length / across) * (tall + GAP), this.other ? HEAD + 4 : 4);
    const pen = fitted(canvas, width, height);
    const ink = inks();
    const boxes = [];
    let y = 2;
    if (this.other) {
      pen.fillStyle = ink.text;
      pen.textAlign = "left";
      pen.fillText(fit(pen, `${id === "cells" ? "A" : "B"}: ${visible(model.meta.log)}`, width - 8), 4, y + 12);
      y += HEAD;
    }
    for (const [value, members] of groups) {
      pen.fillStyle = ink.faint;
      pen.textAlign = "left";
      pen.fillText(fit(pen, visible(`${value} · ${members.length}`), width - 8), 4, y + 12);
      y += HEAD;
      if (skew) {
        const here = skew.counts.get(value) || 0;
        pen.fillStyle = ink.fill;
        pen.fillRect(4, y, (here / Math.max(skew.most, 1)) * Math.max(width - 190, 40), BAR - 5);
        pen.fillStyle = ink.text;
        pen.fillText(`${here} like the chosen pod`, 10 + (here / Math.max(skew.most, 1)) * Math.max(width - 190, 40), y + 9);
        y += BAR;
      }
      members.forEach(([name, node], i) => {
        const x = 2 + (i % across) * (size + GAP);
        const top = y + Math.floor(i / across) * (tall + GAP);
        cell(pen, ink, name, node, x, top, size, tall, name === this.chosen.node && (this.chosen.side === "b") === (id === "cells-b"));
        boxes.push({ name, node, x, y: top, w: size, h: tall });
      });
      y += Math.ceil(members.length / across) * (tall + GAP);
    }
    this.boxes.set(id, boxes);
    canvas.setAttribute("aria-label", `${nodes} nodes in ${groups.length} groups by ${this.by || "nothing"}; arrow keys choose one, or show them as a list`);
  }

  /** How many pods with the chosen pod's labels are in each group, if it has a spread constraint over this label. */
  skewOf(model, groups) {
    const row = this.chosen.pod ? model.pod(this.chosen.pod) : null;
    if (!row || !(row.spread || []).some(([key]) => key === this.by)) return null;
    const namespace = this.chosen.pod.split("/")[0];
    const labels = Object.entries(row.labels || {});
    const counts = new Map();
    for (const [value, members] of groups) {
      let here = 0;
      for (const [, node] of members) {
        for (const key of node.pods) {
          const other = model.rows.get(key);
          if (key.split("/")[1] === namespace && labels.every(([name, text]) => (other.labels || {})[name] === text)) here += 1;
        }
      }
      counts.set(value, here);
    }
    return { counts, most: Math.max(...counts.values()) };
  }

  under(id, event) { return this.boxes.get(id).find((b) => event.offsetX >= b.x && event.offsetX < b.x + b.w && event.offsetY >= b.y && event.offsetY < b.y + b.h); }

  key(event) {
    const boxes = this.boxes.get("cells");
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !boxes.length) return;
    event.preventDefault();
    event.stopPropagation();
    const now = boxes.findIndex((box) => box.name === this.chosen.node);
    this.choose({ node: boxes[(now + step + boxes.length) % boxes.length].name });
  }
}

export const collator = new Intl.Collator("en", { numeric: true });
const byName = ([a], [b]) => collator.compare(a, b);

/** Text that can be read across the edge of what is filled. */
function clear(pen, ink, text, x, y) {
  pen.strokeStyle = ink.back;
  pen.lineWidth = 3;
  pen.lineJoin = "round";
  pen.strokeText(text, x, y);
  pen.lineWidth = 1;
  pen.fillStyle = ink.text;
  pen.fillText(text, x, y);
}

function cell(pen, ink, name, node, x, y, w, h, chosen) {
  const { most } = fullness(node);
  pen.fillStyle = most > 0.95 ? ink.full : ink.fill;
  const tall = Math.min(most, 1) * (h - 2);
  pen.fillRect(x + 1, y + h - 1 - tall, w - 2, tall);
  pen.lineWidth = node.row.cordoned ? 3 : 1;
  pen.setLineDash((node.row.taints || []).length ? [2, 2] : []);
  pen.strokeStyle = node.row.cordoned ? ink.text : ink.line;
  pen.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
  pen.setLineDash([]);
  pen.lineWidth = 1;
  pen.textAlign = "left";
  if (w >= 40 && h >= 14) {
    clear(pen, ink, fit(pen, visible(name), w - 6), x + 3, y + 12);
    if (h >= 28) clear(pen, ink, `${Math.floor(most * 100)} %`, x + 3, y + h - 5);
  }
  pen.textAlign = "right";
  if (node.nominated > 0) { pen.fillStyle = ink.accent; pen.fillText("○", x + w - 2, y + h - 3); }
  if (node.victims > 0) { pen.fillStyle = ink.bad; pen.fillText("✕", x + w - (w > 24 ? 12 : 2), y + h - 3); }
  if (chosen) { pen.strokeStyle = ink.select; pen.lineWidth = 3; pen.strokeRect(x + 1.5, y + 1.5, w - 3, h - 3); pen.lineWidth = 1; }
}

export function fit(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let short = text;
  while (short.length > 1 && pen.measureText(`${short}…`).width > width) short = short.slice(0, -1);
  return `${short}…`;
}

export function summary(name, node) {
  const { most, which } = fullness(node);
  const marks = [node.row.cordoned ? "cordoned" : "", ...(node.row.taints || []), node.nominated > 0 ? `room kept for ${node.nominated}` : "", node.victims > 0 ? `${node.victims} to go` : ""];
  return [visible(name), `${node.pods.size} pods, ${Math.floor(most * 100)} % of ${which || "nothing"}`, ...marks.filter(Boolean).map(visible)].join("\n");
}

function nodeLine({ name, node, zone }) {
  const used = (resource) => `${amount(resource, node.used[resource] || 0)} of ${amount(resource, node.row.allocatable[resource] || 0)}`;
  return [el("span", { class: "name" }, name), el("span", { class: "what" }, [zone, used("cpu"), used("memory")].filter(Boolean).join(" · ")), el("span", { class: "time" }, `${node.pods.size} pods`)];
}


// Pods as bars over time, a lane for each node, zone or group; arrows from a preemptor to its victims.
import { byId, clock, duration, fitted, grouped, inks, visible } from "./format.js";
import { ZONE, collator, fit } from "./cluster.js";

const LANE = 18;
const NAME = 170;
const LINES = { zone: "zones", budget: "budgets" }; // The lanes over which a line is drawn, and where the backlog has it.

/** The value of a line at a record. */
export function valueAt(points, seq) { const point = points.findLast(([first]) => first <= seq); return point ? point[1] : 0; }

export class LanesView {
  constructor(choose, hover) {
    this.scroll = byId("lanes-scroll");
    this.canvas = byId("lanes");
    this.by = "node";
    this.spans = [];
    this.bars = [];
    this.scroll.addEventListener("scroll", () => this.draw());
    byId("lanes-by").addEventListener("change", (event) => { this.by = event.target.value; this.arrange(); });
    this.canvas.addEventListener("click", (event) => { const bar = this.under(event); if (bar) choose({ pod: bar.span.pod }); });
    this.canvas.addEventListener("mousemove", (event) => { const bar = this.under(event); hover(event, bar ? says(bar.span) : ""); });
    this.canvas.addEventListener("mouseleave", (event) => hover(event, ""));
    new ResizeObserver(() => this.draw()).observe(this.scroll);
  }

  /** `found` is what the port says of spans; `share(seq)` is a record's place on the common axis. */
  show(found, model, axis) {
    this.spans = found.spans;
    this.model = model;
    this.axis = axis;
    byId("lanes-note").textContent = found.leftOut ? `${grouped(found.leftOut)} older bars are left out` : "";
    this.arrange();
  }

  laneOf(span) {
    if (this.by === "node") return span.node;
    if (this.by === "group") { const row = this.model.pod(span.pod); return (row && row.group) || "(no group)"; }
    const node = this.model.nodes.get(span.node);
    return (node && node.row && (node.row.labels || {})[ZONE]) || "(no zone)";
  }

  /** Sort the bars into lanes; where bars overlap, a lane gets thinner lines. */
  arrange() {
    const lanes = new Map();
    const lines = this.axis ? this.axis.data[LINES[this.by]] || {} : {};
    for (const name of Object.keys(lines)) lanes.set(name, []);
    if (this.by !== "budget") for (const span of this.spans) {
      const lane = this.laneOf(span);
      if (!lanes.has(lane)) lanes.set(lane, []);
      lanes.get(lane).push(span);
    }
    this.lanes = [...lanes].sort(([a], [b]) => collator.compare(a, b)).map(([name, spans]) => {
      const ends = [];
      const placed = spans.map((span) => {
        let line = ends.findIndex((end) => end !== 0 && end <= span.first);
        if (line < 0) line = ends.length;
        ends[line] = span.last || Infinity;
        return { span, line };
      });
      const points = lines[name];
      return { name, placed, lines: Math.max(ends.length, 1), points, most: this.by === "zone" ? 100 : points ? Math.max(...points.map(([, value]) => value), 1) : 0 };
    });
    byId("lanes-height").style.height = `${Math.max(this.lanes.length * LANE - this.scroll.clientHeight, 0)}px`;
    this.draw();
  }

  draw() {
    if (!this.lanes) return;
    const width = this.scroll.clientWidth;
    const height = Math.max(this.scroll.clientHeight, 40);
    const pen = fitted(this.canvas, width, height);
    const ink = inks();
    const top = this.scroll.scrollTop;
    const first = Math.floor(top / LANE);
    const last = Math.min(first + Math.ceil(height / LANE) + 1, this.lanes.length);
    const x = (seq) => NAME + this.axis.shareOf(seq) * (width - NAME - 4);
    this.bars = [];
    pen.textAlign = "left";
    for (let i = first; i < last; i += 1) {
      const { name, placed, lines, points } = this.lanes[i];
      const y = i * LANE - top;
      pen.fillStyle = ink.faint;
      pen.fillText(fit(pen, visible(name), points ? NAME - 80 : NAME - 8), 4, y + 13);
      pen.fillStyle = ink.line;
      pen.fillRect(0, y + LANE - 1, width, 1);
      const tall = Math.max((LANE - 3) / lines, 1);
      for (const { span, line } of placed) {
        const left = x(span.first);
        const right = x(span.last || this.model.head);
        const bar = { span, x: left, y: y + 1 + Math.min(line * tall, LANE - 4), w: Math.max(right - left, 1.5), h: Math.max(tall - 0.5, 1) };
        pen.fillStyle = tint(span.pod);
        pen.fillRect(bar.x, bar.y, bar.w, bar.h);
        if (span.pod === this.chosen) { pen.strokeStyle = ink.text; pen.lineWidth = 2; pen.strokeRect(bar.x, bar.y, bar.w, bar.h); pen.lineWidth = 1; }
        if (bar.h > 9 && bar.w > 40) { pen.fillStyle = "#10131a"; pen.fillText(fit(pen, visible(span.pod.split("/")[1]), bar.w - 6), bar.x + 3, bar.y + 10); }
        this.bars.push(bar);
      }
    }
    for (let i = first; i < last; i += 1) if (this.lanes[i].points) this.line(pen, ink, this.lanes[i], i * LANE - top, x);
    this.arrows(pen, ink);
    pen.fillStyle = ink.text;
    pen.fillRect(x(this.model.seq) - 1, 0, 2, height);
    this.canvas.setAttribute("aria-label", `${this.lanes.length} lanes with ${this.spans.length} bars; the details of a pod tell the same in words`);
  }

  /** How full a zone was, or what a budget allowed: a line in its lane, and the value at this moment. */
  line(pen, ink, { points, most }, y, x) {
    const end = x(this.model.head);
    const level = (value) => y + LANE - 3 - (value / most) * (LANE - 6);
    pen.strokeStyle = ink.text;
    pen.beginPath();
    points.forEach(([seq, value], i) => {
      pen.lineTo(x(seq), level(value));
      pen.lineTo(i + 1 < points.length ? x(points[i + 1][0]) : end, level(value));
    });
    pen.stroke();
    const unit = this.by === "zone" ? " %" : " allowed";
    pen.fillStyle = ink.text;
    pen.textAlign = "right";
    pen.fillText(`${valueAt(points, this.model.seq)}${unit}`, NAME - 6, y + 13);
    pen.textAlign = "left";
  }

  arrows(pen, ink) {
    const begun = new Map();
    for (const bar of this.bars) if (!begun.has(bar.span.pod)) begun.set(bar.span.pod, bar);
    pen.strokeStyle = ink.bad;
    pen.fillStyle = ink.bad;
    pen.textAlign = "center";
    for (const bar of this.bars) {
      if (!bar.span.preemptedBy) continue;
      const end = bar.x + bar.w;
      pen.fillText("✕", end, bar.y + Math.min(bar.h, 10));
      const by = begun.get(bar.span.preemptedBy);
      if (!by) continue;
      pen.beginPath();
      pen.moveTo(by.x, by.y + by.h / 2);
      pen.lineTo(end, bar.y + bar.h / 2);
      pen.stroke();
    }
    pen.textAlign = "left";
  }

  under(event) { return this.bars.findLast((b) => event.offsetX >= b.x && event.offsetX <= b.x + b.w && event.offsetY >= b.y && event.offsetY <= b.y + b.h); }
}

const tints = new Map();
/** A light colour by the name without its last part, so that replicas look alike. */
function tint(pod) {
  const family = pod.replace(/[-.][a-z0-9]*$/, "");
  if (!tints.has(family)) {
    let hash = 0;
    for (const c of family) hash = (hash * 31 + c.charCodeAt(0)) >>> 0;
    tints.set(family, `hsl(${hash % 360} 55% 68%)`);
  }
  return tints.get(family);
}

function says(span) {
  const how = span.preemptedBy ? `\npreempted by ${visible(span.preemptedBy)}` : "";
  const until = span.last ? `${clock(span.until)} (${duration(span.until - span.since)})` : "now";
  return `${visible(span.pod)} on ${visible(span.node)}\n${clock(span.since)} to ${until}${how}`;
}

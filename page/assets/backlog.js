// How many pods waited where over the whole log, with marks; dragging on it is the main gesture.
import { byId, clock, el, fitted, grouped, inks } from "./format.js";

const PLACES = [["active", "active"], ["in flight", "flight"], ["permit", "permit"], ["answers", "answers"], ["backoff", "backoff"], ["unschedulable", "unschedulable"], ["gated", "gated"]];
export const MARKS = [["bound", "|"], ["group placed", "◆"], ["preempted", "✕"], ["fell back", "↓"], ["aborted", "○"]];
const HEIGHT = 92;
const MARK_ROOM = 30;

export class BacklogView {
  /** `go(seq)` moves the page. */
  constructor(go) {
    this.canvas = byId("backlog");
    this.go = go;
    this.data = null;
    this.axis = "time";
    const drag = (event) => { if (event.buttons & 1) this.go(this.seqOf(event.offsetX)); };
    this.canvas.addEventListener("pointerdown", (event) => { this.canvas.setPointerCapture(event.pointerId); drag(event); });
    this.canvas.addEventListener("pointermove", drag);
  }

  /** Name what occurs in this log, and no more. */
  explain() {
    const occurs = (name) => this.data.places[name].some((count) => count);
    byId("backlog-legend").replaceChildren(
      ...PLACES.filter(([name]) => occurs(name)).map(([name, css]) => { const i = el("i"); i.style.background = `var(--${css})`; return el("span", {}, i, name); }),
      ...MARKS.filter(([name]) => (this.data.marks[name] || []).length).map(([name, sign]) => el("span", {}, `${sign} ${name}`)),
    );
  }

  show(data, model) {
    this.data = data;
    this.model = model;
    this.explain();
    this.draw();
  }

  /** Where on the axis a bin ends, 0 to 1. */
  position(i) {
    const { seqs, at } = this.data;
    if (this.axis === "record") return seqs.length > 1 ? (seqs[i] - this.model.first) / Math.max(seqs.at(-1) - this.model.first, 1) : 0;
    return at.length > 1 ? (at[i] - this.begins) / Math.max(at.at(-1) - this.begins, 1) : 0;
  }

  /** The first moment that the axis shows: log time before the first record says nothing. */
  get begins() { return this.data.at[0]; }

  seqOf(x) {
    const { seqs } = this.data;
    const share = Math.max(0, Math.min(x / this.canvas.clientWidth, 1));
    let low = 0;
    let high = seqs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.position(middle) < share) low = middle + 1;
      else high = middle;
    }
    const before = low ? this.position(low - 1) : 0;
    const from = low ? seqs[low - 1] : this.model.first;
    const part = (share - before) / Math.max(this.position(low) - before, 1e-9);
    return Math.round(from + (seqs[low] - from) * Math.max(0, Math.min(part, 1)));
  }

  /** Where a record is on the axis, 0 to 1. */
  shareOf(seq) {
    const { seqs } = this.data;
    let low = 0;
    let high = seqs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (seqs[middle] < seq) low = middle + 1;
      else high = middle;
    }
    const from = low ? seqs[low - 1] : this.model.first - 1;
    const before = low ? this.position(low - 1) : 0;
    return before + (this.position(low) - before) * Math.max(0, Math.min((seq - from) / Math.max(seqs[low] - from, 1), 1));
  }

  /** The curve is drawn once for each axis and width; a step only moves the line on it. */
  draw() {
    const { canvas, data } = this;
    if (!data || !data.seqs.length) return;
    const width = canvas.parentElement.clientWidth - 20;
    const wanted = `${this.axis} ${width} ${inks().text}`;
    if (this.drawn !== wanted || this.drawnData !== data) {
      this.picture = this.picture || document.createElement("canvas");
      this.curve(fitted(this.picture, width, HEIGHT), width);
      this.drawn = wanted;
      this.drawnData = data;
    }
    const pen = fitted(canvas, width, HEIGHT);
    pen.drawImage(this.picture, 0, 0, width, HEIGHT);
    const x = this.shareOf(this.model.seq) * width;
    pen.fillStyle = inks().text;
    pen.fillRect(Math.round(x) - 1, 0, 2, HEIGHT);
    canvas.setAttribute("aria-valuemin", this.model.first);
    canvas.setAttribute("aria-valuemax", this.model.head);
    canvas.setAttribute("aria-valuenow", this.model.seq);
    canvas.setAttribute("aria-valuetext", `record ${this.model.seq}, ${clock(this.model.at)}`);
  }

  curve(pen, width) {
    const { data } = this;
    const room = HEIGHT - MARK_ROOM;
    const sums = data.seqs.map((_, i) => PLACES.reduce((sum, [name]) => sum + data.places[name][i], 0));
    const most = Math.max(...sums, 1);
    // What holds after a record holds until the next one; a bin of several records is drawn where they are.
    const single = data.seqs.length < 2 || data.seqs[1] - data.seqs[0] === 1;
    const edge = (i) => (i < 0 ? 0 : i >= data.seqs.length ? 1 : this.position(i)) * width;
    for (let i = 0; i < data.seqs.length; i += 1) {
      const left = edge(single ? i : i - 1);
      const wide = Math.max(edge(single ? i + 1 : i) - left, 1);
      let top = room;
      for (const [name, css] of PLACES) {
        const tall = (data.places[name][i] / most) * (room - 12);
        if (!tall) continue;
        pen.fillStyle = inks()[css];
        pen.fillRect(left, top - tall, wide, tall);
        top -= tall;
      }
    }
    pen.fillStyle = inks().faint;
    pen.textAlign = "left";
    pen.fillText(`at most ${grouped(most)} pending`, 2, 10);
    this.drawMarks(pen, width, room);
  }

  drawMarks(pen, width, room) {
    pen.textAlign = "center";
    MARKS.forEach(([name, sign], line) => {
      let free = -10;
      pen.fillStyle = name === "preempted" || name === "aborted" ? inks().bad : inks().text;
      for (const [bin] of this.data.marks[name] || []) {
        const x = this.position(bin) * width;
        if (name === "bound") { pen.fillRect(x, room + 1, 1, 4); continue; }
        if (x < free) continue;
        pen.fillText(sign, x, room + 8 + line * 5.5);
        free = x + 7;
      }
    });
  }
}

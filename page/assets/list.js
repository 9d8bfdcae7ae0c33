// A list of any length: only the lines in sight exist.
import { el } from "./format.js";

const LINE = 22;
const AROUND = 8;

export class LongList {
  /** `draw(item)` makes the children of a line; `pick(item)` is called for one that is chosen. */
  constructor(container, draw, pick) {
    this.container = container;
    this.draw = draw;
    this.pick = pick;
    this.items = [];
    this.cursor = -1;
    this.spacer = el("div", { role: "presentation" });
    this.spacer.style.position = "relative";
    container.append(this.spacer);
    container.addEventListener("scroll", () => this.render());
    container.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.render()).observe(container);
  }

  show(items) {
    this.items = items;
    this.spacer.style.height = `${items.length * LINE}px`;
    this.render();
  }

  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && this.items[this.cursor]) this.pick(this.items[this.cursor]);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    let next = this.cursor + step;
    while (this.items[next] && this.items[next].head) next += step;
    if (!this.items[next]) return;
    this.cursor = next;
    const top = next * LINE;
    const { scrollTop, clientHeight } = this.container;
    if (top < scrollTop) this.container.scrollTop = top;
    else if (top + LINE > scrollTop + clientHeight) this.container.scrollTop = top + LINE - clientHeight;
    this.pick(this.items[next]);
  }

  render() {
    const first = Math.max(Math.floor(this.container.scrollTop / LINE) - AROUND, 0);
    const last = Math.min(Math.ceil((this.container.scrollTop + this.container.clientHeight) / LINE) + AROUND, this.items.length);
    const lines = [];
    for (let i = first; i < last; i += 1) {
      const item = this.items[i];
      const line = el("div", { class: `row ${item.head ? "head" : ""} ${item.chosen ? "chosen" : ""}`, role: item.head ? "presentation" : "option", "aria-selected": item.head ? undefined : String(Boolean(item.chosen)), onclick: item.head ? undefined : () => { this.cursor = i; this.pick(item); } }, this.draw(item));
      line.style.top = `${i * LINE}px`;
      if (item.chosen) this.cursor = i;
      lines.push(line);
    }
    this.spacer.replaceChildren(...lines);
  }
}

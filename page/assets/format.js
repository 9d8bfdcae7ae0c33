// Words for times, durations and amounts, and elements made of text only: names of a log never become markup.

export let utc = false;
export function setUtc(on) { utc = on; }

const two = (n) => String(n).padStart(2, "0");

/** A moment in the reader's zone or UTC, to the millisecond. */
export function clock(ms) {
  if (!ms) return "–";
  const d = new Date(ms);
  const parts = utc
    ? [d.getUTCFullYear(), d.getUTCMonth(), d.getUTCDate(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds(), d.getUTCMilliseconds()]
    : [d.getFullYear(), d.getMonth(), d.getDate(), d.getHours(), d.getMinutes(), d.getSeconds(), d.getMilliseconds()];
  const [year, month, day, hour, minute, second, milli] = parts;
  return `${year}-${two(month + 1)}-${two(day)} ${two(hour)}:${two(minute)}:${two(second)}.${String(milli).padStart(3, "0")} ${zone(d)}`;
}

function zone(d) {
  if (utc) return "UTC";
  const minutes = -d.getTimezoneOffset();
  if (!minutes) return "UTC";
  const rest = Math.abs(minutes);
  return `UTC${minutes < 0 ? "−" : "+"}${two(Math.floor(rest / 60))}:${two(rest % 60)}`;
}

/** A duration in words: 340 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 4 d 3 h. */
export function duration(ms) {
  const sign = ms < 0 ? "−" : "";
  const all = Math.abs(ms);
  if (all < 1000) return `${sign}${Math.round(all)} ms`;
  const seconds = all / 1000;
  if (seconds < 60) return `${sign}${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const steps = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = steps.findIndex(([, size]) => seconds >= size);
  const [unit, size] = steps[first];
  const [smaller, part] = steps[first + 1];
  const rest = Math.floor((seconds % size) / part);
  return `${sign}${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
}

/** An amount of a resource with its unit. */
export function amount(resource, value) {
  if (resource === "cpu") return value % 1000 ? `${value} m` : `${value / 1000} cpu`;
  if (resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-")) {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let place = 0;
    let rest = value;
    while (rest >= 1024 && place < units.length - 1) { rest /= 1024; place += 1; }
    return `${rest >= 100 || Number.isInteger(rest) ? Math.round(rest) : rest.toFixed(1)} ${units[place]}`;
  }
  return String(value);
}

export function grouped(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, ","); }

/** An element; children are elements or text. */
export function el(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false || value === null) continue;
    if (name === "class") found.className = value;
    else if (name.startsWith("on")) found.addEventListener(name.slice(2), value);
    else found.setAttribute(name, value === true ? "" : value);
  }
  found.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== "").map((child) => (child instanceof Node ? child : visible(child))));
  return found;
}

/** Control characters and marks that turn the direction of text are shown, not obeyed. */
export function visible(text) {
  return String(text).replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export const byId = (id) => document.getElementById(id);

let ink = null;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { ink = null; });
/** The page's colours for canvases: dark or light, as the system wishes. */
export function inks() {
  if (!ink) {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(`--${name}`).trim();
    ink = { full: of("fill-full") };
    for (const name of ["back", "text", "faint", "line", "fill", "bad", "select", "accent", "active", "flight", "permit", "answers", "backoff", "unschedulable", "gated"]) ink[name] = of(name);
  }
  return ink;
}

/** A canvas as sharp as the screen; returns its context, in CSS pixels. */
export function fitted(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const w = Math.round(width * scale);
  const h = Math.round(height * scale);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return context;
}

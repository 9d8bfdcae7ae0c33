// The state of the cluster at one record: a chunk's frame, and its steps up to there. Steps are undone as quickly as they are done.

export const PENDING = ["in flight", "permit", "answers", "active", "backoff", "unschedulable", "gated", "nowhere"];
export const PROMISED = new Set(["permit", "answers"]); // They have a node, and are not on it yet.
const CHUNKS_KEPT = 4;
const COMPUTED_SHARE = 20; // A state that took a second to compute is not computed again for twenty, if the page only follows.

export class Model {
  constructor(port) {
    this.port = port;
    this.meta = null;
    this.seq = 0;
    this.at = 0;
    this.step = null;
    this.rows = new Map();
    this.nodes = new Map();
    this.pending = new Set();
    this.shape = 0; // Changes with the nodes and their labels.
    this.chunks = new Map();
    this.current = -1;
    this.place = 0;
    this.undo = [];
    this.computeAfter = 0;
  }

  async open() { this.meta = await this.port.ask("meta"); }

  /** Learn what has come since; of a chunk that was open, only the steps that are new are asked for. */
  async refresh() {
    const { first, chunks } = this.meta;
    this.meta = await this.port.ask("meta");
    if (this.meta.first !== first) { this.chunks.clear(); this.current = -1; return; } // Retention has cut the log.
    const n = chunks.length - 1;
    const chunk = await this.chunks.get(n);
    if (!chunk) return;
    const { steps } = await this.port.ask("chunk", { n, after: chunk.first + chunk.steps.length - 1 });
    chunk.steps.push(...steps);
  }

  get first() { return this.meta.first; }
  get head() { return this.meta.head; }

  chunkOf(seq) { return this.meta.chunks.findIndex(([first, last]) => first <= seq && seq <= last); }

  async load(n) {
    if (!this.chunks.has(n)) {
      const asked = this.port.ask("chunk", { n });
      asked.catch(() => this.chunks.delete(n));
      this.chunks.set(n, asked);
      for (const old of [...this.chunks.keys()]) {
        if (this.chunks.size <= CHUNKS_KEPT) break;
        if (old !== n && old !== this.current) this.chunks.delete(old);
      }
    }
    return this.chunks.get(n);
  }

  /** Stand after record `seq`. */
  async goto(seq) {
    const wanted = Math.max(this.first - 1, Math.min(seq, this.head));
    const n = this.chunkOf(Math.max(wanted, this.first));
    if (n < 0) return this.computed(wanted);
    const chunk = await this.load(n);
    if (n !== this.current || chunk !== this.chunk || wanted < this.chunk.first - 1) this.begin(n, chunk);
    while (this.seq < wanted && this.place < chunk.steps.length) this.forward();
    while (this.seq > wanted && this.place > 0) this.backward();
    this.step = this.place ? chunk.steps[this.place - 1] : null;
    this.at = this.step ? this.step.at : this.meta.chunks[n][2];
  }

  /** A moment that the log's reader has not come to yet. */
  async computed(seq) {
    if (this.isComputed && this.seq === seq) return;
    const began = performance.now();
    const found = await this.port.ask("state", { seq });
    this.computeAfter = performance.now() + COMPUTED_SHARE * (performance.now() - began);
    this.current = -1;
    this.chunk = null;
    this.isComputed = true;
    this.reset(found.rows);
    this.seq = found.seq;
    this.at = found.at;
    this.step = found.step;
  }

  begin(n, chunk) {
    this.isComputed = false;
    this.current = n;
    this.chunk = chunk;
    this.place = 0;
    this.undo = [];
    this.seq = chunk.first - 1;
    this.reset(chunk.frame);
  }

  reset(rows) {
    this.rows = new Map(Object.entries(rows));
    this.nodes = new Map();
    this.pending = new Set();
    this.shape += 1;
    for (const [key, row] of this.rows) if (key.startsWith("Node/")) this.nodes.set(key.slice(6), emptyNode(row));
    for (const [key, row] of this.rows) if (key.startsWith("Pod/")) this.count(key, row, 1);
  }

  forward() {
    const step = this.chunk.steps[this.place];
    const old = [];
    for (const [key, row] of Object.entries(step.rows || {})) {
      old.push([key, this.rows.get(key) || null]);
      this.put(key, row);
    }
    this.undo.push(old);
    this.place += 1;
    this.seq = step.seq;
  }

  backward() {
    for (const [key, row] of this.undo.pop().reverse()) this.put(key, row);
    this.place -= 1;
    this.seq -= 1;
  }

  put(key, row) {
    const before = this.rows.get(key);
    if (key.startsWith("Pod/")) {
      if (before) this.count(key, before, -1);
      if (row) this.count(key, row, 1);
    } else if (key.startsWith("Node/")) {
      this.putNode(key.slice(6), row);
    }
    if (row) this.rows.set(key, row);
    else this.rows.delete(key);
  }

  putNode(name, row) {
    this.shape += 1;
    const known = this.nodes.get(name);
    if (!row) {
      if (known && known.pods.size) known.row = null;
      else this.nodes.delete(name);
    } else if (known) {
      known.row = row;
    } else {
      this.nodes.set(name, emptyNode(row));
    }
  }

  /** Let a pod count on its node, or not any more. */
  count(key, row, by) {
    if (!row.node || PROMISED.has(row.where)) {
      if (by > 0) this.pending.add(key.slice(4));
      else this.pending.delete(key.slice(4));
    }
    if (row.nominated) this.at_(row.nominated).nominated += by;
    if (!row.node || row.where === "finished") return;
    const node = this.at_(row.node);
    for (const [resource, value] of Object.entries(row.requests || {})) node.used[resource] = (node.used[resource] || 0) + by * value;
    if (by > 0) node.pods.add(key);
    else node.pods.delete(key);
    if (row.victim) node.victims += by;
    if (!node.row && !node.pods.size && !node.nominated) this.nodes.delete(row.node);
  }

  at_(name) {
    let node = this.nodes.get(name);
    if (!node) { node = emptyNode(null); this.nodes.set(name, node); }
    return node;
  }

  pod(name) { return this.rows.get(`Pod/${name}`); }

  *pods() { for (const [key, row] of this.rows) if (key.startsWith("Pod/")) yield [key.slice(4), row]; }

  /** The pods that wait for a node. */
  *waiting() { for (const name of this.pending) yield [name, this.rows.get(`Pod/${name}`)]; }

  /** Nodes that exist. */
  *living() { for (const [name, node] of this.nodes) if (node.row) yield [name, node]; }

  /** The record at which a moment of time falls: the last at or before it. */
  async seqAt(ms) {
    const chunks = this.meta.chunks;
    let n = chunks.length - 1;
    while (n > 0 && chunks[n][2] > ms) n -= 1;
    if (!chunks.length) return this.head;
    const { steps } = await this.load(n);
    let low = 0;
    let high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle].at <= ms) low = middle + 1;
      else high = middle;
    }
    return low ? steps[low - 1].seq : chunks[n][0] - 1;
  }

  /** The next record after this one, or before it, that is a decision. */
  async decision(direction) {
    for (let n = this.current; n >= 0 && n < this.meta.chunks.length; n += direction) {
      const { steps } = await this.load(n);
      const found = direction > 0
        ? steps.find((step) => step.seq > this.seq && isDecision(step))
        : steps.findLast((step) => step.seq < this.seq && isDecision(step));
      if (found) return found.seq;
    }
    return direction > 0 ? this.head : this.first;
  }
}

const DECISIONS = new Set(["Scheduled", "Unschedulable", "Waiting", "AttemptAborted", "AttemptError", "PlacementChosen"]);
export const isDecision = (step) => DECISIONS.has(step.kind);

function emptyNode(row) { return { row, used: {}, pods: new Set(), nominated: 0, victims: 0 }; }

/** How full a node is, 0 to 1, by its fullest resource, and which that is. */
export function fullness(node) {
  let most = 0;
  let which = "";
  for (const [resource, all] of Object.entries(node.row ? node.row.allocatable : {})) {
    if (!all) continue;
    const used = resource === "pods" ? node.pods.size : node.used[resource] || 0;
    if (used / all > most) { most = used / all; which = resource; }
  }
  return { most, which };
}

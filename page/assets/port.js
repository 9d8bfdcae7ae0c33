// Where the page asks: a process that has the log open, or the data in this very file. Both answer the same questions (page/source.py).

export class NoAnswer extends Error {}

/** Answers by fetch; `side` is "a" or "b". */
export class HttpPort {
  constructor(side) { this.side = side; this.isFile = false; }

  async ask(question, query = {}) {
    const words = new URLSearchParams(query);
    const answer = await fetch(`api/${this.side}/${question}?${words}`);
    if (!answer.ok) throw new NoAnswer((await answer.text()).trim());
    return answer.json();
  }
}

/** Answers from the data blocks of an exported page. */
export class FilePort {
  constructor(side, index) { this.side = side; this.isFile = true; this.index = index; this.unpacked = new Map(); }

  async ask(question, query = {}) {
    switch (question) {
      case "meta": return this.index.meta;
      case "backlog": return this.index.backlog;
      case "settings": return this.index.settings || {};
      case "figures": return this.need(this.index.figures, "tidelog replay what-if");
      case "chunk": return this.block(`chunk-${query.n}`);
      case "spans": return this.spans(Number(query.first), Number(query.last));
      case "why": return this.why(query.pod);
      case "record": return this.record(Number(query.seq));
      default: throw new NoAnswer("this file has no answer to that");
    }
  }

  need(found, command) {
    if (!found) throw new NoAnswer(`left out of this file; ask the log: ${command}`);
    return found;
  }

  async spans(first, last) {
    const all = await this.block("spans");
    return { spans: all.filter((span) => span.first <= last && (!span.last || span.last >= first)), leftOut: 0 };
  }

  async why(pod) {
    const bucket = await this.block(`why-${bucketOf(pod, this.index.buckets)}`);
    return this.need(bucket[pod], `tidelog why ${pod}`);
  }

  async record(seq) {
    const part = this.index.records.find(([first, last]) => first <= seq && seq <= last);
    if (!part) throw new NoAnswer(`left out of this file; ask the log: tidelog log show ${seq}`);
    return (await this.block(`records-${part[0]}`))[seq - part[0]];
  }

  /** A data block: base64 of gzipped JSON. A few are kept unpacked. */
  async block(name) {
    const id = `${this.side}-${name}`;
    if (this.unpacked.has(id)) return this.unpacked.get(id);
    const found = unpack(document.getElementById(id));
    this.unpacked.set(id, found);
    if (this.unpacked.size > 6) this.unpacked.delete(this.unpacked.keys().next().value);
    return found;
  }
}

export async function unpack(element) {
  if (!element) throw new NoAnswer("this part is not in the file");
  const text = atob(element.textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

/** FNV-1a over UTF-16 units; page/export.py sorts by the same. */
export function bucketOf(text, buckets) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i += 1) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193) >>> 0;
  return hash % buckets;
}

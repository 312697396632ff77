// Reads the embedded data into rows.

const data = JSON.parse(document.getElementById("data").textContent);
const section = document.getElementById("timeline");
const one = (selector) => section.querySelector(selector);

// Buttons that copy commands, also without a timeline.
for (const code of document.querySelectorAll(".command code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code);
    }
  });
  code.after(button);
}
if (!section) return;

// ---- Decoding; timeline.rs describes the format.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const VALUE = new Uint8Array(128);
for (let i = 0; i < 64; i++) VALUE[DIGITS.charCodeAt(i)] = i;

function numbers(text) {
  const all = [];
  let number = 0, scale = 1;
  for (let i = 0; i < text.length; i++) {
    const digit = VALUE[text.charCodeAt(i) & 127];
    number += (digit & 31) * scale;
    if (digit & 32) { scale *= 32; continue; }
    all.push(number);
    number = 0; scale = 1;
  }
  return all;
}

/** Spans of time in ascending order; `kind` is an index into a list of colours. */
function spans(count) {
  return { start: new Float64Array(count), end: new Float64Array(count), kind: new Uint8Array(count) };
}

const OTHER = 3;
function jvmOf(jvm, name) {
  const read = numbers(jvm.pauses), pauses = spans(read.length / 7), sums = jvm.kinds.map(() => 0);
  let at = 0;
  for (let i = 0; i < pauses.start.length; i++) {
    at += read[7 * i];
    pauses.start[i] = at;
    pauses.end[i] = at + read[7 * i + 1];
    sums[read[7 * i + 2]] += read[7 * i + 1];
  }
  jvm.order = jvm.kinds.map((_, kind) => kind).sort((a, b) => sums[b] - sums[a]);
  const rank = [];
  jvm.order.forEach((kind, n) => { rank[kind] = Math.min(n, OTHER); });
  for (let i = 0; i < pauses.start.length; i++) pauses.kind[i] = rank[read[7 * i + 2]];
  const found = numbers(jvm.safepoints), stopped = spans(found.length / 4), ttsp = spans(found.length / 4);
  at = 0;
  for (let i = 0; i < stopped.start.length; i++) {
    at += found[4 * i];
    stopped.start[i] = ttsp.start[i] = at;
    stopped.end[i] = at + found[4 * i + 1];
    ttsp.end[i] = at + Math.max(0, found[4 * i + 2] - 1);
  }
  return { what: "pauses", name, height: 34, jvm, read, found, spans: pauses, stopped, ttsp };
}

function threadOf(thread) {
  const read = numbers(thread.stalls), stalls = spans(read.length / 2);
  let at = 0, waited = 0;
  for (let i = 0; i < stalls.start.length; i++) {
    stalls.start[i] = at += read[2 * i];
    stalls.end[i] = at += Math.floor(read[2 * i + 1] / 4);
    stalls.kind[i] = read[2 * i + 1] % 4;
    waited += stalls.end[i] - stalls.start[i];
  }
  const requests = numbers(thread.pages), moments = [[], []];
  at = 0;
  for (const page of requests) moments[page % 2].push(at += Math.floor(page / 2));
  const [failed, got] = moments.map((all) => ({ start: all, end: all, kind: new Uint8Array(all.length) }));
  return { what: "stalls", name: `${thread.name} ${thread.tid}`, height: 26, thread, waited, spans: stalls, failed, got };
}

function memoryOf(process) {
  const read = numbers(process.samples), samples = [];
  let at = 0;
  for (let i = 0; i < read.length; i += 6) {
    at += read[i];
    const [resident, thp, hugetlb, heap, huge] = read.slice(i + 1, i + 6);
    samples.push({ at, resident, thp, hugetlb, share: heap > 1 ? (huge - 1) / (heap - 1) : null });
  }
  return { what: "memory", name: `${process.name} ${process.pid}`.trim(), height: 160, samples };
}

const jvms = data.jvms.map((jvm) => jvmOf(jvm, ["pauses of", jvm.name, jvm.pid].filter(Boolean).join(" ")))
  .filter((row) => row.spans.start.length + row.stopped.start.length > 0);
const threads = data.threads.map(threadOf);
const memories = data.memory.map(memoryOf);

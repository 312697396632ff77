// The descriptions of items.

const moment = (us) => {
  const digits = Math.min(6, Math.max(3, Math.ceil(-Math.log10((to - from) / 1e6)) + 3));
  return seconds(us).toFixed(digits);
};
function length(us) {
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1e3).toFixed(us < 1e4 ? 2 : 1)} ms`;
  return `${(us / 1e6).toFixed(2)} s`;
}
const size = (kib) => kib < 1 << 20 ? `${Math.round(kib / 1024)} MiB` : `${(kib / (1 << 20)).toFixed(1)} GiB`;
const span = (list, at) => `${seconds(list.start[at]).toFixed(6)} – ${seconds(list.end[at]).toFixed(6)} s, ${length(list.end[at] - list.start[at])}`;

function pauseLines(row, at) {
  const [, , kind, cause, id, stalled, huge] = row.read.slice(7 * at, 7 * at + 7);
  const lines = [`${row.jvm.kinds[kind]}${cause ? ` (${row.jvm.causes[cause - 1]})` : ""}${id ? `, GC(${id - 1})` : ""}`, span(row.spans, at)];
  if (stalled > 1) lines.push(`for ${length(stalled - 1)} of it a thread waited for the kernel${huge > 1 ? `, for ${length(huge - 1)} of it to get a huge page` : ""}`);
  const safepoint = near(row.stopped, (row.spans.start[at] + row.spans.end[at]) / 2, 0);
  if (safepoint >= 0 && row.found[4 * safepoint + 2]) lines.push(`time to safepoint before it: ${length(row.found[4 * safepoint + 2] - 1)}`);
  return lines;
}

function safepointLines(row, at) {
  const [, , ttsp, operation] = row.found.slice(4 * at, 4 * at + 4);
  const lines = [`safepoint${operation ? ` for ${row.jvm.operations[operation - 1]}` : ""}`, span(row.stopped, at)];
  if (ttsp) lines.push(`time to safepoint: ${length(ttsp - 1)}`);
  return lines;
}

function stallLines(row, at) {
  const kind = row.spans.kind[at];
  const lines = [row.name, `${kind & 2 ? "reclaim" : "compaction"}${kind & 1 ? ", for a huge page" : ""}`, span(row.spans, at)];
  const jvm = jvms.find((other) => other.jvm.pid === row.thread.pid);
  if (!jvm) return lines;
  const pause = near(jvm.spans, row.spans.start[at], 0);
  const toSafepoint = near(jvm.ttsp, row.spans.start[at], 0);
  if (pause >= 0) lines.push(`in ${jvm.jvm.kinds[jvm.read[7 * pause + 2]]} at ${seconds(jvm.spans.start[pause]).toFixed(3)} s`);
  else if (toSafepoint >= 0) lines.push("during the time to safepoint");
  else lines.push("outside of pauses");
  return lines;
}

function memoryLines(row, us) {
  const sample = row.samples.findLast((other) => other.at <= us) || row.samples[0];
  if (!sample) return [];
  const lines = [`${row.name} at ${seconds(sample.at).toFixed(3)} s`, `resident ${size(sample.resident)}`, `on THP ${size(sample.thp)}`, `on pool pages ${size(sample.hugetlb)}`];
  if (sample.share !== null) lines.push(`coverage of the heap ${(100 * sample.share).toFixed(0)} %`);
  return lines;
}

/** Index of the span at this time, or of the longest span less than `slack` away; -1 if there is none. */
function near(list, us, slack) {
  let best = -1;
  for (let i = after(list.end, us - slack); i < list.end.length && list.start[i] <= us + slack; i++) {
    if (list.start[i] <= us && us < list.end[i]) return i;
    if (slack && (best < 0 || list.end[i] - list.start[i] > list.end[best] - list.start[best])) best = i;
  }
  return best;
}

function count(list, us, slack) {
  let n = 0;
  for (let i = after(list.end, us - slack); i < list.end.length && list.start[i] <= us + slack; i++) n++;
  return n;
}

/** The item at a position: its description, its row, and the index of its span; null if there is none. */
function itemAt(px, py) {
  const n = rows.findIndex((row) => py >= row.y && py < row.y + row.height);
  if (n < 0 || px < gutter) return null;
  const row = rows[n], us = time(px), slack = 3 * (to - from) / (width - gutter);
  if (row.what === "memory") return { row: n, at: -1, lines: memoryLines(row, us) };
  const at = near(row.spans, us, slack);
  const lines = [];
  if (at >= 0) {
    lines.push(...(row.what === "pauses" ? pauseLines(row, at) : stallLines(row, at)));
    const others = count(row.spans, us, slack) - 1;
    if (others > 0) lines.push(`and ${others} more here: zoom in`);
  } else if (row.what === "pauses") {
    const safepoint = near(row.stopped, us, slack);
    if (safepoint >= 0) lines.push(...safepointLines(row, safepoint));
  }
  if (row.what === "stalls") {
    const got = count(row.got, us, slack), failed = count(row.failed, us, slack);
    if (got || failed) lines.push(`huge-page allocations here: ${got} got, ${failed} failed`);
    if (lines.length && at < 0) lines.unshift(row.name);
  }
  return lines.length ? { row: n, at, lines } : null;
}

"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const section = document.getElementById("timeline");
const one = (selector) => section.querySelector(selector);

// Commands are there to be copied, also where there is no timeline.
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

// ---- What is embedded: see timeline.rs.

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

/** Spans of time in their order, and of what class each is: a place in the list of its colours. */
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
  const found = numbers(jvm.safepoints), stopped = spans(found.length / 4), reaching = spans(found.length / 4);
  at = 0;
  for (let i = 0; i < stopped.start.length; i++) {
    at += found[4 * i];
    stopped.start[i] = reaching.start[i] = at;
    stopped.end[i] = at + found[4 * i + 1];
    reaching.end[i] = at + Math.max(0, found[4 * i + 2] - 1);
  }
  return { what: "pauses", name, height: 34, jvm, read, found, spans: pauses, stopped, reaching };
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
  const asked = numbers(thread.pages), moments = [[], []];
  at = 0;
  for (const page of asked) moments[page % 2].push(at += Math.floor(page / 2));
  const [vain, got] = moments.map((all) => ({ start: all, end: all, kind: new Uint8Array(all.length) }));
  return { what: "stalls", name: `${thread.name} ${thread.tid}`, height: 26, thread, waited, spans: stalls, vain, got };
}

function memoryOf(process) {
  const read = numbers(process.looks), looks = [];
  let at = 0;
  for (let i = 0; i < read.length; i += 6) {
    at += read[i];
    const [resident, thp, hugetlb, heap, huge] = read.slice(i + 1, i + 6);
    looks.push({ at, resident, thp, hugetlb, share: heap > 1 ? (huge - 1) / (heap - 1) : null });
  }
  return { what: "memory", name: `${process.name} ${process.pid}`.trim(), height: 160, looks };
}

const jvms = data.jvms.map((jvm) => jvmOf(jvm, ["pauses of", jvm.name, jvm.pid].filter(Boolean).join(" ")))
  .filter((row) => row.spans.start.length + row.stopped.start.length > 0);
const threads = data.threads.map(threadOf);
const memories = data.memory.map(memoryOf);

// ---- What is shown: from when to when, which rows, and what was chosen in them.

const begin = data.begin_us;
let last = Math.max(data.end_us, begin + 1000);
for (const row of [...jvms, ...threads]) {
  if (row.spans.end.length) last = Math.max(last, row.spans.end[row.spans.end.length - 1]);
}
const LEAST = 20;
const FIRST_THREADS = 12, MORE_THREADS = 24, MOST_THREADS = 132;
let from = begin, to = last, shown = FIRST_THREADS, memory = memories[0];
let rows = [], chosen = { row: 0, at: -1 };

function choose() {
  const words = one("#named").value.trim().toLowerCase();
  const fitting = threads.filter((row) => row.name.toLowerCase().includes(words));
  rows = [...jvms, ...fitting.slice(0, shown), ...(memory ? [memory] : [])];
  let y = AXIS;
  for (const row of rows) { row.y = y; y += row.height + (row.what === "memory" ? 14 : 0); }
  chosen = { row: Math.min(chosen.row, rows.length - 1), at: -1 };
  const left = Math.min(fitting.length, MOST_THREADS) - shown;
  const more = one("[data-do=more]");
  more.hidden = left <= 0;
  more.textContent = `${Math.min(left, MORE_THREADS)} more of ${fitting.length} threads`;
  one("[data-do=fewer]").hidden = shown <= FIRST_THREADS;
  one("#named").hidden = threads.length <= FIRST_THREADS;
  height = y + 4;
  draw();
}

function show(a, b) {
  const length = Math.min(Math.max(b - a, LEAST), last);
  from = Math.min(Math.max(a, 0), last - length);
  to = from + length;
  leave();
  draw();
}

const zoom = (factor, around = (from + to) / 2) =>
  show(around - (around - from) * factor, around + (to - around) * factor);
const move = (share) => show(from + share * (to - from), to + share * (to - from));

const seconds = (us) => (us - begin) / 1e6;
let keeping;
function keep() {
  clearTimeout(keeping);
  keeping = setTimeout(() => {
    const all = from === begin && to === last;
    const kept = all ? "" : `#t=${seconds(from).toFixed(6)},${seconds(to).toFixed(6)}`;
    if (location.hash !== kept) {
      // A page in a frame without an origin may not.
      try { history.replaceState(null, "", kept || location.pathname + location.search); } catch { }
    }
  }, 300);
}
function restore(hash) {
  const found = /^#t=(-?[\d.]+),(-?[\d.]+)$/.exec(hash);
  if (!found) return false;
  const [a, b] = [begin + 1e6 * Number(found[1]), begin + 1e6 * Number(found[2])];
  if (!(a < b)) return false;
  show(a, b);
  return true;
}

// ---- Drawing.

const AXIS = 26;
const canvas = one("canvas"), paper = canvas.getContext("2d");
let colors = {}, width = 0, height = 0, gutter = 0, wanted = false;
const PAUSES = ["--c1", "--c3", "--c6", "--c0"], STALLS = ["--c2", "--c2", "--c4", "--c4"];
const LETTERS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif';

function theme() {
  const style = getComputedStyle(document.documentElement);
  colors = {};
  for (const name of ["--card", "--line", "--text", "--muted", "--band", ...[0, 1, 2, 3, 4, 5, 6].map((n) => `--c${n}`)]) {
    colors[name] = style.getPropertyValue(name).trim();
  }
  draw();
}

function draw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(() => { wanted = false; paint(); });
}

const x = (us) => gutter + (us - from) / (to - from) * (width - gutter);
const time = (px) => from + (px - gutter) / (width - gutter) * (to - from);

/** The first of `ends`, which rise, that is later. */
function after(ends, us) {
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] < us) low = middle + 1; else high = middle;
  }
  return low;
}

/** Spans as bars; those of less than a pixel are summed, and the kind with most of a pixel colours it. */
function bars(list, names, y, tall, striped, faintest = 0.5) {
  const scale = (width - gutter) / (to - from), pixels = Math.ceil(width - gutter) + 1, kinds = names.length;
  const sums = new Float64Array(pixels * kinds);
  const { start, end, kind } = list;
  for (let i = after(end, from); i < end.length && start[i] <= to; i++) {
    const a = (start[i] - from) * scale, b = (end[i] - from) * scale;
    if (b - a >= 1.5) {
      bar(names, kind[i], a, Math.min(b, pixels + 9), y, tall, striped, 1);
    } else if (a >= 0) {
      sums[Math.floor(a) * kinds + kind[i]] += Math.max(b - a, 0.02);
    }
  }
  for (let pixel = 0; pixel < pixels; pixel++) {
    let all = 0, best = 0;
    for (let k = 0; k < kinds; k++) {
      const sum = sums[pixel * kinds + k];
      all += sum;
      if (sum > sums[pixel * kinds + best]) best = k;
    }
    if (all > 0) bar(names, best, pixel, pixel + 1, y, tall, striped, faintest + (1 - faintest) * Math.min(all, 1));
  }
  paper.globalAlpha = 1;
}

function bar(names, kind, a, b, y, tall, striped, alpha) {
  const left = Math.max(a, -1);
  paper.globalAlpha = alpha;
  paper.fillStyle = colors[names[kind]];
  paper.fillRect(gutter + left, y, b - left, tall);
  if (striped && kind % 2) {
    paper.fillStyle = colors["--text"];
    paper.fillRect(gutter + left, y, b - left, 2);
  }
}

function text(words, px, y, color, align = "left", size = 12, weight = "") {
  paper.font = `${weight} ${size}px ${LETTERS}`;
  paper.textAlign = align;
  paper.textBaseline = "middle";
  paper.fillStyle = colors[color];
  paper.fillText(words, px, y);
}

function shortened(words, most) {
  paper.font = `12px ${LETTERS}`;
  if (paper.measureText(words).width <= most) return words;
  let length = words.length;
  while (length > 1 && paper.measureText(`${words.slice(0, length)}…`).width > most) length--;
  return `${words.slice(0, length)}…`;
}

/** A round step, of which about one takes `px` pixels. */
function step(length, pixels, px) {
  const least = length * px / pixels, power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => power * factor >= least);
}

function axis() {
  const by = step(to - from, width - gutter, 96);
  const decimals = Math.max(0, -Math.floor(Math.log10(by / 1e6) + 1e-9));
  for (let n = Math.ceil((from - begin) / by); n * by <= to - begin; n++) {
    const px = Math.round(x(begin + n * by)) + 0.5;
    paper.fillStyle = colors["--line"];
    paper.fillRect(px - 0.5, AXIS - 6, 1, height - AXIS);
    const words = `${(n * by / 1e6).toFixed(decimals)} s`;
    if (px < width - 24) text(words, Math.max(px, gutter + 14), 10, "--muted", "center");
  }
}

function label(row, words, sum) {
  const room = gutter - 10 - (sum ? paper.measureText(sum).width + 8 : 0);
  const middle = row.y + (row.what === "stalls" ? 10 : row.height / 2);
  text(shortened(words, room), 0, middle, "--text");
  if (sum) text(sum, gutter - 8, middle, "--muted", "right");
}

function paint() {
  const ratio = devicePixelRatio || 1;
  width = canvas.clientWidth;
  gutter = width < 560 ? 92 : 210;
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.clearRect(0, 0, width, height);
  axis();
  rows.forEach((row, n) => {
    if (row.what === "stalls" && n > 0) {
      paper.fillStyle = colors["--line"];
      paper.fillRect(0, row.y - 0.5, width, 0.5);
    }
    paper.save();
    paper.beginPath();
    paper.rect(gutter, row.y, width - gutter, row.height + 20);
    paper.clip();
    if (row.what === "pauses") {
      bars(row.stopped, ["--band"], row.y + 4, 22);
      bars(row.reaching, ["--c5"], row.y + 4, 22);
      bars(row.spans, PAUSES, row.y + 4, 22);
    } else if (row.what === "stalls") {
      bars(row.spans, STALLS, row.y + 3, 13, true);
      bars(row.vain, ["--c0"], row.y + 21, 4, false, 1);
      bars(row.got, ["--c3"], row.y + 17, 4, false, 1);
    } else {
      curves(row);
    }
    if (n === chosen.row && chosen.at >= 0) {
      const { start, end } = row.spans, a = x(start[chosen.at]), b = x(end[chosen.at]);
      paper.strokeStyle = colors["--text"];
      paper.lineWidth = 2;
      paper.strokeRect(a - 2, row.y + 2, Math.max(b - a, 1) + 4, row.height - 4);
    }
    paper.restore();
    if (row.what === "memory") return;
    label(row, row.name, row.waited && gutter > 100 ? length(row.waited) : "");
    if (n === chosen.row && document.activeElement === canvas) {
      paper.fillStyle = colors["--c1"];
      paper.fillRect(gutter - 4, row.y + 2, 3, row.height - 4);
    }
  });
  one(".range").textContent = `${moment(from)} – ${moment(to)} s (${length(to - from)})`;
  keep();
}

function curves(row) {
  const top = row.y + 24, bottom = row.y + row.height;
  const most = row.looks.reduce((most, look) => Math.max(most, look.resident, look.thp, look.hugetlb), 1);
  const line = (of, scale, color, dashes) => {
    paper.beginPath();
    let drawn = false;
    for (const look of row.looks) {
      const value = of(look);
      if (value === null) { drawn = false; continue; }
      const px = x(look.at), py = bottom - value / scale * (bottom - top);
      if (drawn) paper.lineTo(px, py); else paper.moveTo(px, py);
      drawn = true;
    }
    paper.strokeStyle = colors[color];
    paper.lineWidth = 2;
    paper.setLineDash(dashes || []);
    paper.stroke();
    paper.setLineDash([]);
    if (row.looks.length > 200) return;
    paper.fillStyle = colors[color];
    for (const look of row.looks) {
      if (of(look) !== null) paper.fillRect(x(look.at) - 2, bottom - of(look) / scale * (bottom - top) - 2, 4, 4);
    }
  };
  line((look) => look.resident, most, "--c0");
  line((look) => look.hugetlb, most, "--c3");
  line((look) => look.thp, most, "--c1");
  const known = row.looks.some((look) => look.share !== null);
  line((look) => look.share, 1, "--c5", [5, 4]);
  paper.restore();
  paper.save();
  paper.fillStyle = colors["--muted"];
  paper.fillRect(gutter, bottom, width - gutter, 1);
  text(size(most), gutter - 8, top, "--muted", "right");
  if (known) text("100 % of the heap", width, top - 12, "--c5", "right");
  text("0", gutter - 8, bottom - 4, "--muted", "right");
  text("memory of", 0, (top + bottom) / 2 - 8, "--text");
  text(shortened(row.name, gutter - 10), 0, (top + bottom) / 2 + 8, "--text");
}

// ---- Words.

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

function pauseTold(row, at) {
  const [, , kind, cause, id, stalled, huge] = row.read.slice(7 * at, 7 * at + 7);
  const told = [`${row.jvm.kinds[kind]}${cause ? ` (${row.jvm.causes[cause - 1]})` : ""}${id ? `, GC(${id - 1})` : ""}`, span(row.spans, at)];
  if (stalled > 1) told.push(`for ${length(stalled - 1)} of it a thread waited for the kernel${huge > 1 ? `, for ${length(huge - 1)} to get a huge page` : ""}`);
  const safepoint = near(row.stopped, (row.spans.start[at] + row.spans.end[at]) / 2, 0);
  if (safepoint >= 0 && row.found[4 * safepoint + 2]) told.push(`before, until all threads stood still: ${length(row.found[4 * safepoint + 2] - 1)}`);
  return told;
}

function safepointTold(row, at) {
  const [, , reached, operation] = row.found.slice(4 * at, 4 * at + 4);
  const told = [`safepoint${operation ? ` for ${row.jvm.operations[operation - 1]}` : ""}`, span(row.stopped, at)];
  if (reached) told.push(`until all threads stood still: ${length(reached - 1)}`);
  return told;
}

function stallTold(row, at) {
  const kind = row.spans.kind[at];
  const told = [row.name, `${kind & 2 ? "reclaim" : "compaction"}${kind & 1 ? ", for a huge page" : ""}`, span(row.spans, at)];
  const jvm = jvms.find((other) => other.jvm.pid === row.thread.pid);
  if (!jvm) return told;
  const pause = near(jvm.spans, row.spans.start[at], 0);
  const way = near(jvm.reaching, row.spans.start[at], 0);
  if (pause >= 0) told.push(`in ${jvm.jvm.kinds[jvm.read[7 * pause + 2]]} at ${seconds(jvm.spans.start[pause]).toFixed(3)} s`);
  else if (way >= 0) told.push("while a safepoint was being reached");
  else told.push("outside of pauses");
  return told;
}

function memoryTold(row, us) {
  const look = row.looks.findLast((other) => other.at <= us) || row.looks[0];
  if (!look) return [];
  const told = [`${row.name} at ${seconds(look.at).toFixed(3)} s`, `resident ${size(look.resident)}`, `on THP ${size(look.thp)}`, `on pages of pools ${size(look.hugetlb)}`];
  if (look.share !== null) told.push(`${(100 * look.share).toFixed(0)} % of the heap on huge pages`);
  return told;
}

/** Which of the spans is at this time, or the longest less than `slack` away; -1 where there is none. */
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

/** What is to be told of a place: lines, and which span of the row it is. */
function told(px, py) {
  const n = rows.findIndex((row) => py >= row.y && py < row.y + row.height);
  if (n < 0 || px < gutter) return null;
  const row = rows[n], us = time(px), slack = 3 * (to - from) / (width - gutter);
  if (row.what === "memory") return { row: n, at: -1, lines: memoryTold(row, us) };
  const at = near(row.spans, us, slack);
  const lines = [];
  if (at >= 0) {
    lines.push(...(row.what === "pauses" ? pauseTold(row, at) : stallTold(row, at)));
    const others = count(row.spans, us, slack) - 1;
    if (others > 0) lines.push(`and ${others} more here: zoom in`);
  } else if (row.what === "pauses") {
    const safepoint = near(row.stopped, us, slack);
    if (safepoint >= 0) lines.push(...safepointTold(row, safepoint));
  }
  if (row.what === "stalls") {
    const got = count(row.got, us, slack), vain = count(row.vain, us, slack);
    if (got) lines.push(`${got === 1 ? "1 huge page" : `${got} huge pages`} got here`);
    if (vain) lines.push(`${vain} asked for in vain here`);
    if (lines.length && at < 0) lines.unshift(row.name);
  }
  return lines.length ? { row: n, at, lines } : null;
}

// ---- What the user does.

function select(found) {
  chosen = found && found.at >= 0 ? { row: found.row, at: found.at } : { row: chosen.row, at: -1 };
  one(".chosen").textContent = found ? found.lines.join(" · ") : "";
  draw();
}

function next(by) {
  const row = rows[chosen.row];
  if (!row || !row.spans || !row.spans.start.length) return;
  const { start, end } = row.spans, count = start.length;
  const first = by > 0 ? after(end, from) : after(end, to) - 1;
  const at = Math.min(Math.max(chosen.at >= 0 ? chosen.at + by : first, 0), count - 1);
  const middle = (start[at] + end[at]) / 2;
  if (start[at] < from || end[at] > to) {
    const half = Math.max((to - from) / 2, (end[at] - start[at]) * 0.6);
    show(middle - half, middle + half);
  }
  select({ row: chosen.row, at, lines: row.what === "pauses" ? pauseTold(row, at) : stallTold(row, at) });
}

function row(by) {
  const count = rows.filter((other) => other.what !== "memory").length;
  if (!count) return;
  chosen = { row: (chosen.row + by + count) % count, at: -1 };
  one(".chosen").textContent = rows[chosen.row].name;
  draw();
}

const actions = {
  in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.3), right: () => move(0.3),
  all: () => show(begin, last),
  more: () => { shown = Math.min(shown + MORE_THREADS, MOST_THREADS); choose(); },
  fewer: () => { shown = FIRST_THREADS; choose(); },
};
const keys = {
  "+": actions.in, "=": actions.in, "-": actions.out, "0": actions.all, Home: actions.all,
  ArrowLeft: actions.left, ArrowRight: actions.right,
  ArrowUp: () => row(-1), ArrowDown: () => row(1), n: () => next(1), p: () => next(-1),
  Escape: () => select(null),
};

one(".tools").addEventListener("click", (event) => actions[event.target.dataset.do]?.());
one("#named").addEventListener("input", choose);
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
canvas.addEventListener("focus", draw);
canvas.addEventListener("blur", draw);

// Who scrolls the page past the timeline does not mean to zoom.
let scrolled = -1e9;
addEventListener("scroll", (event) => { scrolled = event.timeStamp; }, { passive: true });
canvas.addEventListener("wheel", (event) => {
  const whole = from <= 0 && to >= last;
  if (!event.ctrlKey && (event.timeStamp - scrolled < 250 || (whole && event.deltaY > 0))) return;
  event.preventDefault();
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) return move(sideways / 800);
  const lines = event.deltaMode === 1 ? 30 : 1;
  zoom(Math.exp(Math.min(Math.max(event.deltaY * lines, -300), 300) * (event.ctrlKey ? 0.008 : 0.002)), time(event.offsetX));
}, { passive: false });

const pointers = new Map();
let held = null, dragged = 0;
const hold = () => { held = [...pointers.values()].map((px) => time(px)); };
const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
canvas.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  canvas.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, place(event));
  dragged = 0;
  hold();
});
canvas.addEventListener("pointermove", (event) => {
  if (!pointers.has(event.pointerId)) return hover(event);
  const before = pointers.get(event.pointerId), now = place(event);
  dragged += Math.abs(now - before);
  pointers.set(event.pointerId, now);
  if (dragged < 4) return;
  const at = [...pointers.values()], room = width - gutter;
  if (at.length === 1) {
    const length = to - from, start = held[0] - (at[0] - gutter) / room * length;
    show(start, start + length);
  } else if (Math.abs(at[0] - at[1]) > 8) {
    // What is below each of two fingers stays there.
    const length = Math.abs((held[1] - held[0]) / (at[1] - at[0])) * room;
    const start = held[0] - (at[0] - gutter) / room * length;
    show(start, start + length);
  }
});
for (const ending of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(ending, (event) => {
    if (!pointers.delete(event.pointerId)) return;
    hold();
    if (ending === "pointerup" && dragged < 4 && !pointers.size) select(told(event.offsetX, event.offsetY));
  });
}
canvas.addEventListener("dblclick", (event) => zoom(0.25, time(event.offsetX)));

const here = one(".here"), box = one(".told");
function hover(event) {
  const px = event.offsetX, py = event.offsetY;
  here.hidden = px < gutter;
  here.style.left = `${px}px`;
  const found = told(px, py);
  box.hidden = !found;
  if (!found) return;
  box.textContent = found.lines.join("\n");
  const left = px + 14 + box.offsetWidth > width ? px - 14 - box.offsetWidth : px + 14;
  box.style.left = `${Math.max(left, 0)}px`;
  box.style.top = `${py + 14}px`;
}
function leave() { here.hidden = box.hidden = true; }
canvas.addEventListener("pointerleave", leave);

// ---- The beginning.

function key(words, color) {
  const item = document.createElement("span"), square = document.createElement("i");
  square.className = `key ${color}`;
  item.append(square, words);
  return item;
}

const heading = document.createElement("b");
heading.textContent = "pauses";
const kinds = one("#kinds");
kinds.append(heading);
for (const { jvm } of jvms) {
  const of = jvms.length > 1 ? ` (${jvm.pid})` : "";
  jvm.order.slice(0, OTHER).forEach((kind, n) => kinds.append(key(jvm.kinds[kind] + of, PAUSES[n].slice(2))));
  if (jvm.kinds.length > OTHER) kinds.append(key(`others${of}`, PAUSES[OTHER].slice(2)));
}
kinds.append(key("until all threads stood still", "c5"), key("safepoint", "band"));
kinds.hidden = !jvms.length;
one("#lines").hidden = !memories.length;
memories.forEach((row, n) => one("#of").append(new Option(`memory of ${row.name}`, n)));
one("#of").hidden = memories.length < 2;
one("#of").addEventListener("change", (event) => { memory = memories[event.target.value]; choose(); });

canvas.closest("[hidden]").hidden = false;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
new ResizeObserver(draw).observe(one(".drawing"));
for (const link of document.querySelectorAll('a[href^="#t="]')) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (restore(link.hash)) section.scrollIntoView({ block: "start" });
  });
}
addEventListener("hashchange", () => restore(location.hash));
choose();
theme();
restore(location.hash);
})();

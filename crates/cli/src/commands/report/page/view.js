// The visible range and rows, and the selected item.

const begin = data.begin_us;
let last = Math.max(data.end_us, begin + 1000);
for (const row of [...jvms, ...threads]) {
  if (row.spans.end.length) last = Math.max(last, row.spans.end[row.spans.end.length - 1]);
}
/** Shortest visible range, in microseconds. */
const MIN_RANGE_US = 20;
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
  const length = Math.min(Math.max(b - a, MIN_RANGE_US), last);
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
      // Throws in a frame without an origin.
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

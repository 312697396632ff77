// Handling of user input.

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
  select({ row: chosen.row, at, lines: row.what === "pauses" ? pauseLines(row, at) : stallLines(row, at) });
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

// A wheel event during or just after scrolling of the page does not zoom.
let scrolled = -1e9;
addEventListener("scroll", (event) => { scrolled = event.timeStamp; draw(); }, { passive: true });
addEventListener("resize", draw);
addEventListener("beforeprint", () => paint(true));
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
    // The times below both fingers stay below them.
    const length = Math.abs((held[1] - held[0]) / (at[1] - at[0])) * room;
    const start = held[0] - (at[0] - gutter) / room * length;
    show(start, start + length);
  }
});
for (const ending of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(ending, (event) => {
    if (!pointers.delete(event.pointerId)) return;
    hold();
    if (ending === "pointerup" && dragged < 4 && !pointers.size) select(itemAt(event.offsetX, event.offsetY));
  });
}
canvas.addEventListener("dblclick", (event) => zoom(0.25, time(event.offsetX)));

const here = one(".here"), box = one(".tooltip");
function hover(event) {
  const px = event.offsetX, py = event.offsetY;
  here.hidden = px < gutter;
  here.style.left = `${px}px`;
  const found = itemAt(px, py);
  box.hidden = !found;
  if (!found) return;
  box.textContent = found.lines.join("\n");
  const left = px + 14 + box.offsetWidth > width ? px - 14 - box.offsetWidth : px + 14;
  box.style.left = `${Math.max(left, 0)}px`;
  box.style.top = `${py + 14}px`;
}
function leave() { here.hidden = box.hidden = true; }
canvas.addEventListener("pointerleave", leave);

// ---- Initialisation.

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
kinds.append(key("time to safepoint", "c5"), key("safepoint", "band"));
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

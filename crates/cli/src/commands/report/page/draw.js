// Drawing.

const AXIS = 26;
const canvas = one("canvas"), paper = canvas.getContext("2d");
let colors = {}, width = 0, height = 0, gutter = 0, scheduled = false;
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
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; paint(); });
}

const x = (us) => gutter + (us - from) / (to - from) * (width - gutter);
const time = (px) => from + (px - gutter) / (width - gutter) * (to - from);

/** Index of the first of the ascending `ends` that is not before `us`. */
function after(ends, us) {
  let low = 0, high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] < us) low = middle + 1; else high = middle;
  }
  return low;
}

/** Draws spans as bars. Spans shorter than a pixel are summed; a pixel has the colour of the kind with most time. */
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

/** A round step of at least `px` pixels. */
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

function paint(whole) {
  const ratio = devicePixelRatio || 1;
  width = canvas.clientWidth;
  gutter = width < 560 ? 92 : 210;
  if (width <= gutter) return;
  canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  paper.setTransform(ratio, 0, 0, ratio, 0, 0);
  paper.clearRect(0, 0, width, height);
  axis();
  const above = canvas.getBoundingClientRect().top;
  rows.forEach((row, n) => {
    // Rows outside of the visible area are skipped: there may be hundreds.
    if (!whole && height > 2000 && (above + row.y > innerHeight + 100 || above + row.y + row.height < -100)) return;
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
      bars(row.ttsp, ["--c5"], row.y + 4, 22);
      bars(row.spans, PAUSES, row.y + 4, 22);
    } else if (row.what === "stalls") {
      bars(row.spans, STALLS, row.y + 3, 13, true);
      bars(row.failed, ["--c0"], row.y + 21, 4, false, 1);
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
  const most = row.samples.reduce((most, sample) => Math.max(most, sample.resident, sample.thp, sample.hugetlb), 1);
  const line = (of, scale, color, dashes) => {
    paper.beginPath();
    let drawn = false;
    for (const sample of row.samples) {
      const value = of(sample);
      if (value === null) { drawn = false; continue; }
      const px = x(sample.at), py = bottom - value / scale * (bottom - top);
      if (drawn) paper.lineTo(px, py); else paper.moveTo(px, py);
      drawn = true;
    }
    paper.strokeStyle = colors[color];
    paper.lineWidth = 2;
    paper.setLineDash(dashes || []);
    paper.stroke();
    paper.setLineDash([]);
    if (row.samples.length > 200) return;
    paper.fillStyle = colors[color];
    for (const sample of row.samples) {
      if (of(sample) !== null) paper.fillRect(x(sample.at) - 2, bottom - of(sample) / scale * (bottom - top) - 2, 4, 4);
    }
  };
  line((sample) => sample.resident, most, "--c0");
  line((sample) => sample.hugetlb, most, "--c3");
  line((sample) => sample.thp, most, "--c1");
  const known = row.samples.some((sample) => sample.share !== null);
  line((sample) => sample.share, 1, "--c5", [5, 4]);
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

// The heat map of one run: when its calls ended, and how long they took.
const heated = results.filter(r => r.heat);
let shown = 0;

function runName(r) {
  const round = results.slice(0, results.indexOf(r)).filter(x => runKey(x) === runKey(r)).length;
  return (r.job ? r.job + ": " : "") + `${r.pattern}, ${way(r)}, ${size(r.block)}, ${r.threads} thread${r.threads === 1 ? "" : "s"}` + (r.batch > 1 ? `, batch ${r.batch}` : "") + (round ? `, round ${round + 1}` : "");
}

function heatMap() {
  const box = document.getElementById("heat");
  box.replaceChildren();
  if (!heated.length) { make("p", {}, box, "No run has one."); return; }
  const r = heated[shown], { column_us, rows_us, calls } = r.heat, rows = rows_us.length - 1;
  const W = Math.max(box.clientWidth, 320), H = 300, L = 70, R = 12, T = 8, B = 44;
  const w = (W - L - R) / calls.length, h = (H - T - B) / rows;
  const most = Math.max(...calls.flat(), 1);
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: "0", "aria-label": `heat map of ${runName(r)}: ${calls.length} columns of ${micros(column_us)}, latency ${micros(rows_us[0])} to ${micros(rows_us[rows])}; arrow keys move through it` }, box);
  const x = i => L + i * w, y = row => H - B - (row + 1) * h;
  calls.forEach((column, i) => column.forEach((n, row) => {
    // One call in a thousand must be visible: the shade follows the logarithm.
    if (n) make("rect", { x: x(i), y: y(row), width: w, height: h, class: "cell", "fill-opacity": 0.18 + 0.82 * Math.log(n + 1) / Math.log(most + 1), "data-at": i + " " + row }, svg);
  }));
  // Rows are narrow at the bottom and wide at the top, so a round latency is between two.
  const up = v => { const row = Math.max(rows_us.findLastIndex((from, i) => i < rows && from <= v), 0); return H - B - (row + (v - rows_us[row]) / (rows_us[row + 1] - rows_us[row])) * h; };
  for (const v of ticks(Math.max(rows_us[0], 1e-3), rows_us[rows], true)) {
    make("text", { x: L - 8, y: up(v) + 4, "text-anchor": "end" }, svg, micros(v));
    make("line", { x1: L - 5, x2: L, y1: up(v), y2: up(v), class: "axis" }, svg);
  }
  const end = column_us * calls.length, times = ticks(0, end, false), skip = W < 560 ? 2 : 1; // a narrow screen has room for half of them
  times.forEach((t, i) => { if (i % skip === 0) make("text", { x: Math.min(L + (W - L - R) * t / end, W - R - 20), y: H - B + 18, "text-anchor": i ? "middle" : "start" }, svg, i ? micros(t) : "0"); });
  make("line", { x1: L, x2: W - R, y1: H - B, y2: H - B, class: "axis" }, svg);
  make("line", { x1: L, x2: L, y1: T, y2: H - B, class: "axis" }, svg);
  make("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, svg, "time since the start; stronger colour: more calls");
  heatTip(svg, r, make("rect", { class: "cursor", width: w, height: h, visibility: "hidden" }, svg), x, y);
}

// heatTip shows what a cell counts, under the mouse or where the arrow keys went.
function heatTip(svg, r, cursor, x, y) {
  const { column_us, rows_us, calls } = r.heat, rows = rows_us.length - 1;
  let at = [0, 0];
  const unmark = () => cursor.setAttribute("visibility", "hidden");
  const show = (i, row) => {
    at = [i, row];
    for (const [k, v] of Object.entries({ x: x(i), y: y(row), visibility: "visible" })) cursor.setAttribute(k, v);
    showTip(cursor, `${micros(column_us * i || 0)} to ${micros(column_us * (i + 1))} after the start\nlatency ${micros(rows_us[row])} to ${micros(rows_us[row + 1])}\ncalls: ${calls[i][row] || 0}`, unmark);
  };
  svg.addEventListener("mouseover", e => { if (e.target.dataset.at) show(...e.target.dataset.at.split(" ").map(Number)); });
  for (const on of ["mouseleave", "blur"]) svg.addEventListener(on, hideTip);
  svg.addEventListener("keydown", e => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[e.key];
    if (!step) return;
    e.preventDefault();
    show(Math.min(Math.max(at[0] + step[0], 0), calls.length - 1), Math.min(Math.max(at[1] + step[1], 0), rows - 1));
  });
}

const run = document.getElementById("run");
heated.forEach((r, i) => make("option", { value: i }, run, runName(r)));
run.hidden = heated.length < 2;
run.addEventListener("change", () => { shown = Number(run.value); heatMap(); });
heatMap();
addEventListener("resize", heatMap);

"use strict";
const { results } = JSON.parse(document.getElementById("data").textContent);
const size = n => n % (1 << 30) === 0 && n ? n / (1 << 30) + "G" : n % (1 << 20) === 0 && n ? n / (1 << 20) + "M" : n % 1024 === 0 && n ? n / 1024 + "K" : String(n);
const digits = v => String(Number(v.toPrecision(3)));
const aligned = v => v < 0.01 ? v.toFixed(5) : v < 999.5 ? v.toPrecision(3) : v.toFixed(0); // zeros at the end keep a column of numbers in line
const micros = us => us < 1e3 ? digits(us) + " \u00b5s" : us < 1e6 ? digits(us / 1e3) + " ms" : digits(us / 1e6) + " s";
const speed = v => !v ? "0" : v < 1 ? digits(1e3 * v) + " MB/s" : digits(v) + " GB/s";
const axes = { block: { name: "block size", of: r => r.block, text: size }, threads: { name: "threads", of: r => r.threads, text: n => n + (n === 1 ? " thread" : " threads"), tick: String } };
const other = { block: "threads", threads: "block" };
const tick = v => (axes[along].tick || axes[along].text)(v);
const distinct = of => [...new Set(results.map(of))];
const count = key => distinct(axes[key].of).length;
let along = count("threads") > count("block") ? "threads" : "block";
let scale = "linear";
const way = r => r.engine.replace(/\/.*/, "") + (r.receipt ? " by " + r.receipt.route : "");
const off = new Set();

// A kind has a colour: what moved the bytes and, if they differ, how and in which job.
const several = of => distinct(of).length > 1;
const kindOf = r => (several(x => x.job) && r.job ? r.job + ": " : "") + way(r) + (several(x => x.pattern) ? ", " + r.pattern : "") + (several(x => x.batch) ? ", batch " + r.batch : "");
const kinds = distinct(kindOf);
const colour = kind => `var(--c${Math.max(kinds.indexOf(kind), 0) % 8})`;

// The value on the other axis has a mark: the same route has one colour at all of them.
const restOf = r => axes[other[along]].of(r);
const rests = () => distinct(restOf).sort((a, b) => a - b);

function series() {
  const all = new Map();
  for (const r of results) {
    const kind = kindOf(r), rest = restOf(r), key = kind + "\n" + rest;
    if (off.has(kind) || off.has(rest)) continue;
    if (!all.has(key)) all.set(key, { name: kind + (count(other[along]) > 1 ? ", " + axes[other[along]].text(rest) : ""), kind, rows: [], mark: rests().indexOf(rest) % marks.length });
    all.get(key).rows.push(r);
  }
  const list = [...all.values()];
  for (const s of list) s.rows.sort((a, b) => axes[along].of(a) - axes[along].of(b));
  return list;
}

const marks = [
  (x, y, s) => `M${x - s} ${y}a${s} ${s} 0 1 0 ${2 * s} 0a${s} ${s} 0 1 0 ${-2 * s} 0z`,
  (x, y, s) => `M${x - s} ${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
  (x, y, s) => `M${x} ${y - 1.3 * s}l${1.3 * s} ${1.3 * s}l${-1.3 * s} ${1.3 * s}l${-1.3 * s} ${-1.3 * s}z`,
  (x, y, s) => `M${x} ${y - 1.2 * s}l${1.2 * s} ${2.2 * s}h${-2.4 * s}z`,
];

// places groups the rounds of a series by their place on the axis.
const places = rows => [...new Set(rows.map(axes[along].of))].map(at => ({ at, rounds: rows.filter(r => axes[along].of(r) === at) }));

// median is the round in the middle.
const median = (rounds, value) => rounds.slice().sort((a, b) => value(a) - value(b))[Math.floor((rounds.length - 1) / 2)];

function make(tag, attributes, parent, text) {
  const e = document.createElementNS(["svg", "path", "line", "circle", "rect", "text", "g"].includes(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}

const tip = document.getElementById("tip");
let hideShown = () => {};
function showTip(e, text, hide) {
  if (hide !== hideShown) hideShown();
  hideShown = hide;
  tip.textContent = text;
  tip.hidden = false;
  const box = e.getBoundingClientRect(), above = box.y - tip.offsetHeight - 8;
  tip.style.left = Math.max(4, Math.min(box.x + 12, document.documentElement.clientWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = (above < 4 ? box.bottom + 8 : above) + "px";
}
function hideTip() { tip.hidden = true; hideShown(); hideShown = () => {}; }
addEventListener("keydown", e => { if (e.key === "Escape") hideTip(); });
addEventListener("scroll", hideTip, { passive: true });

// explore shows what is at points {e, group, x, y, text}, under the mouse or where the arrow keys go:
// left and right to the next place, up and down at the same one. A chart is one stop of the tab key.
function explore(svg, points, near) {
  let at = -1;
  const hide = () => { svg.classList.remove("chosen"); for (const p of points) { p.e.classList.remove("on"); p.group.classList.remove("on"); } };
  const show = i => {
    hide();
    const p = points[at = i];
    svg.classList.add("chosen");
    p.e.classList.add("on");
    p.group.classList.add("on");
    showTip(p.e, p.text, hide);
  };
  const nearest = (cost, from) => points.map((p, i) => [cost(p), i]).filter(([c, i]) => c < Infinity && i !== from).sort((a, b) => a[0] - b[0]).map(([, i]) => i)[0];
  svg.addEventListener("mousemove", e => {
    const box = svg.getBoundingClientRect(), k = svg.viewBox.baseVal.width / box.width, mx = (e.clientX - box.x) * k, my = (e.clientY - box.y) * k;
    const i = nearest(p => near(p, mx, my));
    if (i === undefined) { if (at >= 0) { hideTip(); at = -1; } } else if (i !== at || tip.hidden) show(i);
  });
  for (const on of ["mouseleave", "blur"]) svg.addEventListener(on, () => { at = -1; hideTip(); });
  svg.addEventListener("keydown", e => {
    const now = points[at] || { x: -1e9, y: 0 }, end = e.key === "End";
    const to = {
      ArrowRight: () => nearest(p => p.x > now.x + 0.5 ? (p.x - now.x) * 1e4 + Math.abs(p.y - now.y) + (p.group === now.group ? -5e3 : 0) : Infinity),
      ArrowLeft: () => nearest(p => p.x < now.x - 0.5 ? (now.x - p.x) * 1e4 + Math.abs(p.y - now.y) + (p.group === now.group ? -5e3 : 0) : Infinity),
      ArrowUp: () => nearest(p => Math.abs(p.x - now.x) < 0.5 && (p.y < now.y || p.y === now.y && points.indexOf(p) > at) ? now.y - p.y : Infinity, at),
      ArrowDown: () => nearest(p => Math.abs(p.x - now.x) < 0.5 && (p.y > now.y || p.y === now.y && points.indexOf(p) < at) ? p.y - now.y : Infinity, at),
      Home: () => 0, End: () => points.length - 1,
    }[e.key];
    if (!to || !points.length) return;
    e.preventDefault();
    const i = at < 0 && !end ? nearest(p => p.x) : to();
    if (i !== undefined) show(i);
  });
}

const facts = (s, r) => `${s.name}\n${axes[along].name} ${tick(axes[along].of(r))}\n${speed(r.gb_per_second)}, ${Math.round(r.ops_per_second)} IOPS\np50 ${micros(r.latency_us.p50)}, p99 ${micros(r.latency_us.p99)}\np99.9 ${micros(r.latency_us["p99.9"])}, max ${micros(r.latency_us.max)}`;

// ticks are round numbers from low to high: steps of 1, 2 or 5, on a logarithmic scale powers of ten
// and, if those are few, 2 and 5 times them.
function ticks(low, high, log) {
  if (!log) {
    const rough = (high - low) / 6, ten = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = ten * [1, 2, 5, 10].find(m => m * ten >= rough);
    return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
  }
  const list = [];
  const few = Math.log10(high / low) < 2.5;
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++) for (const m of few ? [1, 2, 5] : [1]) list.push(m * Math.pow(10, e));
  return list.filter(v => v >= low * 0.999 && v <= high * 1.001);
}

// chart draws lines over one axis. lines: {series, value, text, dashed}; log: a logarithmic scale.
function chart(id, title, lines, { log, text, ceiling }) {
  const box = document.getElementById(id);
  box.replaceChildren();
  const W = Math.max(box.clientWidth, 320), H = 340, L = 70, R = 20, T = 14, B = 44, pad = W < 560 ? 12 : 36;
  const values = lines.flatMap(l => l.series.rows.map(l.value)).concat(ceiling || []).filter(v => v > 0);
  if (!values.length) { make("p", {}, box, "Nothing is selected."); return; }
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", tabindex: "0", "aria-label": `${title} over ${axes[along].name}, ${lines.length} lines; arrow keys move through the points` }, box);
  const xs = distinct(axes[along].of).sort((a, b) => a - b);
  const x = v => L + pad + (xs.length === 1 ? 0.5 : xs.indexOf(v) / (xs.length - 1)) * (W - L - R - 2 * pad);
  const high = Math.max(...values) * 1.05, low = log ? Math.min(...values) / 1.2 : 0;
  const y = v => { const share = log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low); return H - B - share * (H - T - B); };
  make("line", { x1: L, x2: W - R, y1: H - B, y2: H - B, class: "axis" }, svg);
  for (const v of ticks(low, high, log)) {
    make("line", { x1: L, x2: W - R, y1: y(v), y2: y(v), class: "axis" }, svg);
    make("text", { x: L - 8, y: y(v) + 4, "text-anchor": "end" }, svg, text(v));
  }
  const skip = Math.ceil(xs.length * 34 / (W - L - R)); // labels need 34 pixels
  xs.forEach((v, i) => { if (i % skip === 0) make("text", { x: x(v), y: H - B + 18, "text-anchor": "middle" }, svg, tick(v)); });
  make("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, svg, axes[along].name);
  if (ceiling) {
    make("line", { x1: L, x2: W - R, y1: y(ceiling), y2: y(ceiling), class: "ceiling" }, svg);
  }
  const spots = [];
  for (const l of lines) {
    const group = make("g", { class: "series", style: `--own:${colour(l.series.kind)}` }, svg);
    // A line through the median rounds, with the range of all of them behind each.
    const points = places(l.series.rows).map(({ at, rounds }) => ({ px: x(at), rounds, middle: median(rounds, l.value) }));
    make("path", { d: points.map(({ px, middle }, i) => (i ? "L" : "M") + px + " " + y(l.value(middle))).join(""), class: "line", "stroke-dasharray": l.dashed ? "4 3" : "none" }, group);
    for (const { px, rounds, middle } of points) {
      const all = rounds.map(l.value), py = y(l.value(middle));
      const range = rounds.length > 1 ? `\nmedian of ${rounds.length} rounds, ${l.text(Math.min(...all))} to ${l.text(Math.max(...all))}` : "";
      if (range) make("line", { x1: px, x2: px, y1: y(Math.min(...all)), y2: y(Math.max(...all)), class: "range" }, group);
      spots.push({ e: make("path", { d: marks[l.series.mark](px, py, 4.5), class: l.dashed ? "point hollow" : "point" }, group), group, x: px, y: py, text: facts(l.series, middle) + range });
    }
  }
  // Small blocks are slow: on the left is room, and what is drawn last is above the lines.
  if (ceiling) make("text", { x: L + 6, y: y(ceiling) + (y(ceiling) > T + 16 ? -6 : 15), class: "label" }, svg, `pinned-copy rate ${speed(ceiling)}`);
  explore(svg, spots, (p, mx, my) => { const d = Math.hypot(p.x - mx, p.y - my); return d < 28 ? d : Infinity; });
}

// merge adds the receipts of rounds, those of reads and writes apart.
function merge(parts) {
  const sums = new Map();
  for (const [part, { receipt }] of parts) {
    if (!sums.has(part)) sums.set(part, { bytes: 0, host: 0, bytes_by_route: {} });
    const sum = sums.get(part);
    sum.bytes += receipt.bytes;
    sum.host += receipt.host_bytes.bytes;
    for (const [name, n] of Object.entries(receipt.bytes_by_route)) sum.bytes_by_route[name] = (sum.bytes_by_route[name] || 0) + n;
  }
  return [...sums];
}

// join makes one row of the neighbours whose bytes all took the same route.
function join(rows) {
  const only = ({ receipt }) => Object.keys(receipt.bytes_by_route).length === 1 ? Object.keys(receipt.bytes_by_route)[0] : undefined;
  const list = [];
  for (const row of rows) {
    const last = list.findLast(l => l.s === row.s && l.part === row.part);
    if (!last || !only(row) || only(last) !== only(row)) { list.push({ ...row, from: row.at, to: row.at }); continue; }
    last.to = row.at;
    last.receipt = merge([["", { receipt: raw(last.receipt) }], ["", { receipt: raw(row.receipt) }]])[0][1];
  }
  return list;
}
const raw = ({ bytes, host, bytes_by_route }) => ({ bytes, host_bytes: { bytes: host }, bytes_by_route });

// shares draws which route moved which part of the bytes.
function shares(list) {
  const box = document.getElementById("routes");
  box.replaceChildren();
  // Mixed reads and writes have a receipt each.
  const parts = r => [["", r], [", reads", r.reads], [", writes", r.writes]].filter(([, p]) => p && p.receipt && p.receipt.bytes);
  const rows = join(list.flatMap(s => places(s.rows).flatMap(({ at, rounds }) => merge(rounds.flatMap(parts)).map(([part, receipt]) => ({ s, part, at, receipt })))));
  if (!rows.length) { make("p", {}, box, "No transfer of Culvert is selected."); return; }
  const names = [...new Set(rows.flatMap(({ receipt }) => Object.keys(receipt.bytes_by_route)))];
  // A route has the colour of its line in the charts above.
  const own = name => kinds.includes("culvert by " + name) ? colour("culvert by " + name) : `var(--c${(kinds.length + names.indexOf(name)) % 8})`;
  const W = Math.max(box.clientWidth, 320), narrow = W < 560, H = narrow ? 38 : 22, L = narrow ? 0 : Math.min(300, W * 0.4), bar = narrow ? 20 : 4;
  const svg = make("svg", { viewBox: `0 0 ${W} ${rows.length * H + 6}`, role: "img", tabindex: "0", "aria-label": "routes of the bytes; arrow keys move through the bars" }, box);
  const spots = [];
  rows.forEach(({ s, part, from, to, receipt }, i) => {
    const group = make("g", {}, svg);
    make("text", narrow ? { x: 0, y: i * H + 15 } : { x: L - 8, y: i * H + 16, "text-anchor": "end" }, group, `${s.name}, ${from === to ? tick(from) : tick(from) + " to " + tick(to)}${part}`);
    let at = L;
    for (const [name, n] of Object.entries(receipt.bytes_by_route)) {
      const w = n / receipt.bytes * (W - L - 10);
      const e = make("rect", { x: at, y: i * H + bar, width: Math.max(w, 1), height: 14, class: "bar", style: `--own:${own(name)}` }, group);
      spots.push({ e, group, x: at, y: i * H, w, text: `${s.name}\n${name}: ${digits(100 * n / receipt.bytes)}% of the bytes\nthrough host memory: ${digits(100 * receipt.host / receipt.bytes)}%` });
      if (w > 60) make("text", { x: at + 6, y: i * H + bar + 11, class: "name" }, group, name);
      at += w;
    }
  });
  explore(svg, spots, (p, mx, my) => mx >= p.x && mx <= p.x + Math.max(p.w, 4) && my >= p.y && my < p.y + H ? 0 : Infinity);
}

const columns = [
  ["engine", r => r.part ? "\u00a0\u00a0" + r.part : r.engine.replace(/\/.*/, "")], ["route", r => r.receipt ? r.receipt.route : "-"], ...(several(r => r.job) ? [["job", r => r.job || "-"]] : []), ["pattern", r => r.pattern], ["block", r => r.block, size], ["threads", r => r.threads], ["batch", r => r.batch],
  ["GB/s", r => r.gb_per_second, aligned], ["share of link", r => r.share_of_ceiling || 0, v => v ? (100 * v).toFixed(1) + "%" : "-"], ["IOPS", r => r.ops_per_second, v => v.toFixed(0)],
  ...["p50", "p90", "p99", "p99.9", "max"].map(p => [p, r => r.latency_us[p], micros]), ["CPU s/GB", r => r.part ? 0 : r.cpu_seconds_per_gb, v => v ? v.toFixed(3) : "-"],
];
const words = ["engine", "route", "job", "pattern"]; // on the left of their columns, numbers on the right
let sorted = -1, down = false;
function table() {
  const t = document.getElementById("figures"), focused = [...t.querySelectorAll("button")].indexOf(document.activeElement);
  t.replaceChildren();
  const head = make("tr", {}, make("thead", {}, t));
  columns.forEach(([name], i) => {
    const b = make("button", { type: "button", title: "sort by " + name }, make("th", { scope: "col", class: words.includes(name) ? "word" : "", "aria-sort": sorted === i ? (down ? "descending" : "ascending") : "none" }, head), name + (sorted === i ? (down ? " \u25be" : " \u25b4") : ""));
    b.addEventListener("click", () => { down = sorted === i ? !down : false; sorted = i; table(); });
    if (i === focused) b.focus();
  });
  const rows = results.slice();
  if (sorted >= 0) rows.sort((a, b) => { const [x, y] = [a, b].map(columns[sorted][1]); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
  const body = make("tbody", {}, t);
  // The parts of mixed reads and writes are below their sum.
  const parts = r => ["reads", "writes"].filter(p => r[p]).map(p => ({ ...r, receipt: undefined, ...r[p], part: p }));
  for (const r of rows.flatMap(r => [r, ...parts(r)])) {
    const tr = make("tr", {}, body);
    for (const [name, of, text] of columns) make("td", words.includes(name) ? { class: "word" } : {}, tr, (text || String)(of(r)));
  }
}

// conditions say what all runs have in common.
function conditions() {
  const words = [distinct(r => r.pattern).join(" and "), "memory " + distinct(r => r.memory).join(" and ")];
  const files = distinct(r => r.files || 1);
  if (files.length === 1 && files[0] > 1) words.push(files[0] + " files");
  if (results.length && !results[0].store) words.push(several(r => r.cold) ? "warm and cold" : results[0].cold ? "cold" : "warm");
  if (results.some(r => !r.registered)) words.push("not registered");
  const rounds = results.length / new Set(results.map(r => runKey(r))).size;
  if (rounds > 1) words.push(digits(rounds) + " rounds, of which the median is drawn");
  document.getElementById("conditions").textContent = words.join(", ");
}
const runKey = r => [r.engine, r.pattern, r.block, r.threads, r.batch, r.job].join();

// choose makes a list of two or more, one of which is chosen.
function choose(parent, title, name, list, chosen, change) {
  const select = make("select", { "data-name": name }, make("label", {}, parent, title + " "));
  for (const [value, text] of list) make("option", { value }, select, text).selected = value === chosen;
  select.addEventListener("change", () => change(select.value));
}

// filter makes a box that shows or hides what has a value.
function filter(parent, value, text, path, fill) {
  const label = make("label", {}, parent);
  const c = make("input", { type: "checkbox", "data-name": "filter " + value }, label);
  c.checked = !off.has(value);
  c.addEventListener("change", () => { if (c.checked) off.delete(value); else off.add(value); draw(); });
  make("path", { d: path, style: `fill:${fill}` }, make("svg", { viewBox: "0 0 14 14", class: "swatch", "aria-hidden": "true" }, label));
  label.append(text);
}

function draw() {
  hideTip();
  const list = series();
  const controls = document.getElementById("controls");
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.name : undefined;
  controls.replaceChildren();
  const how = make("div", { class: "row" }, controls);
  if (count("block") > 1 && count("threads") > 1) choose(how, "Over", "axis", Object.keys(axes).map(k => [k, axes[k].name]), along, v => { along = v; off.clear(); draw(); });
  choose(how, "Throughput", "scale", [["linear", "linear"], ["log", "logarithmic"]], scale, v => { scale = v; draw(); });
  const one = make("div", { class: "row", role: "group", "aria-label": "what is shown" }, controls);
  if (kinds.length > 1) for (const kind of kinds) filter(one, kind, kind, marks[0](7, 7, 5), colour(kind));
  if (rests().length > 1) {
    const two = make("div", { class: "row", role: "group", "aria-label": axes[other[along]].name }, controls);
    rests().forEach((rest, i) => filter(two, rest, axes[other[along]].text(rest), marks[i % marks.length](7, 7, 5), "var(--dim)"));
  }
  for (const e of controls.querySelectorAll("[data-name]")) if (e.dataset.name === focused) e.focus();
  chart("throughput", "throughput", list.map(s => ({ series: s, value: r => r.gb_per_second, text: speed })), { log: scale === "log", text: speed, ceiling: Math.max(...results.map(r => r.ceiling_gb_per_second)) || undefined });
  chart("latency", "latency", list.flatMap(s => [{ series: s, value: r => r.latency_us.p50, text: micros }, { series: s, value: r => r.latency_us.p99, text: micros, dashed: true }]), { log: true, text: micros });
  shares(list);
}
conditions();
draw();
table();
addEventListener("resize", draw);

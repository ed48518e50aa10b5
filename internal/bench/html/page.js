"use strict";
const { results } = JSON.parse(document.getElementById("data").textContent);
const size = n => n % (1 << 30) === 0 && n ? n / (1 << 30) + "G" : n % (1 << 20) === 0 && n ? n / (1 << 20) + "M" : n % 1024 === 0 && n ? n / 1024 + "K" : String(n);
const micros = us => us < 1e3 ? us.toPrecision(3) + " us" : us < 1e6 ? (us / 1e3).toPrecision(3) + " ms" : (us / 1e6).toPrecision(3) + " s";
const axes = { block: { name: "block size", of: r => r.block, text: size }, threads: { name: "threads", of: r => r.threads, text: String } };
const other = { block: "threads", threads: "block" };
const count = key => new Set(results.map(axes[key].of)).size;
let along = count("threads") > count("block") ? "threads" : "block";
const way = r => r.engine.replace(/\/.*/, "") + (r.receipt ? " by " + r.receipt.route : "");
const off = new Set();

function series() {
  const all = new Map();
  for (const r of results) {
    const rest = other[along];
    const name = way(r) + (count(rest) > 1 ? ", " + axes[rest].text(axes[rest].of(r)) + (rest === "threads" ? (r.threads === 1 ? " thread" : " threads") : "") : "") + (new Set(results.map(x => x.pattern)).size > 1 ? ", " + r.pattern : "");
    if (!all.has(name)) all.set(name, []);
    all.get(name).push(r);
  }
  return [...all].map(([name, rows], i) => ({ name, rows: rows.slice().sort((a, b) => axes[along].of(a) - axes[along].of(b)), colour: `var(--c${i % 8})`, mark: Math.floor(i / 8) % marks.length }));
}

// Series beyond the eighth have a colour again, with another mark.
const marks = [
  (x, y, s) => `M${x - s} ${y}a${s} ${s} 0 1 0 ${2 * s} 0a${s} ${s} 0 1 0 ${-2 * s} 0z`,
  (x, y, s) => `M${x - s} ${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
  (x, y, s) => `M${x} ${y - 1.3 * s}l${1.3 * s} ${1.3 * s}l${-1.3 * s} ${1.3 * s}l${-1.3 * s} ${-1.3 * s}z`,
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
function showTip(e, text) {
  const box = e.getBoundingClientRect();
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = Math.max(4, Math.min(box.x + 12, innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(4, box.y - tip.offsetHeight - 8) + "px";
}
function describe(e, text) {
  const show = () => showTip(e, text);
  const hide = () => { tip.hidden = true; };
  e.setAttribute("tabindex", "0");
  e.setAttribute("aria-label", text.replaceAll("\n", ", "));
  for (const on of ["mouseenter", "focus"]) e.addEventListener(on, show);
  for (const on of ["mouseleave", "blur"]) e.addEventListener(on, hide);
}

const facts = (s, r) => `${s.name}\n${axes[along].name} ${axes[along].text(axes[along].of(r))}\n${r.gb_per_second.toPrecision(4)} GB/s, ${Math.round(r.ops_per_second)} IOPS\np50 ${micros(r.latency_us.p50)}, p99 ${micros(r.latency_us.p99)}, p99.9 ${micros(r.latency_us["p99.9"])}, max ${micros(r.latency_us.max)}`;

// chart draws lines over one axis. lines: {series, value, text, dashed}; log: a logarithmic scale.
function chart(id, lines, { log, text, ceiling }) {
  const box = document.getElementById(id);
  box.replaceChildren();
  const W = Math.max(box.clientWidth, 320), H = 340, L = 70, R = 20, T = 14, B = 44;
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": id }, box);
  const xs = [...new Set(results.map(axes[along].of))].sort((a, b) => a - b);
  const x = v => L + (xs.length === 1 ? 0.5 : xs.indexOf(v) / (xs.length - 1)) * (W - L - R);
  const values = lines.flatMap(l => l.series.rows.map(l.value)).concat(ceiling || []).filter(v => v > 0);
  if (!values.length) { make("p", {}, box, "Nothing is selected."); return; }
  const high = Math.max(...values) * 1.05, low = log ? Math.min(...values) / 1.2 : 0;
  const y = v => { const share = log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low); return H - B - share * (H - T - B); };
  for (let i = 0; i <= 4; i++) {
    const v = log ? low * Math.pow(high / low, i / 4) : low + (high - low) * i / 4;
    make("line", { x1: L, x2: W - R, y1: y(v), y2: y(v), class: "axis" }, svg);
    make("text", { x: L - 8, y: y(v) + 4, "text-anchor": "end" }, svg, text(v));
  }
  for (const v of xs) make("text", { x: x(v), y: H - B + 18, "text-anchor": v === xs[xs.length - 1] && xs.length > 1 ? "end" : "middle" }, svg, axes[along].text(v));
  make("text", { x: (L + W - R) / 2, y: H - 6, "text-anchor": "middle" }, svg, axes[along].name);
  if (ceiling) {
    make("line", { x1: L, x2: W - R, y1: y(ceiling), y2: y(ceiling), class: "ceiling" }, svg);
    make("text", { x: W - R, y: y(ceiling) - 5, "text-anchor": "end" }, svg, `link, by pinned copy: ${ceiling.toPrecision(3)} GB/s`);
  }
  for (const l of lines) {
    // A line through the median rounds, with the range of all of them behind each.
    const points = places(l.series.rows).map(({ at, rounds }) => ({ px: x(at), rounds, middle: median(rounds, l.value) }));
    make("path", { d: points.map(({ px, middle }, i) => (i ? "L" : "M") + px + " " + y(l.value(middle))).join(""), fill: "none", style: `stroke:${l.series.colour}`, "stroke-width": 2, "stroke-dasharray": l.dashed ? "4 3" : "none" }, svg);
    for (const { px, rounds, middle } of points) {
      const all = rounds.map(l.value);
      const range = rounds.length > 1 ? `\nmedian of ${rounds.length} rounds, ${l.text(Math.min(...all))} to ${l.text(Math.max(...all))}` : "";
      if (range) make("line", { x1: px, x2: px, y1: y(Math.min(...all)), y2: y(Math.max(...all)), class: "range", style: `stroke:${l.series.colour}` }, svg);
      describe(make("path", { d: marks[l.series.mark](px, y(l.value(middle)), 4.5), class: "point", style: `fill:${l.series.colour}` }, svg), facts(l.series, middle) + range);
    }
  }
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
  const W = Math.max(box.clientWidth, 320), H = 22, L = Math.min(260, W * 0.55);
  const svg = make("svg", { viewBox: `0 0 ${W} ${rows.length * H + 6}`, role: "group", "aria-label": "routes" }, box);
  const names = [...new Set(rows.flatMap(({ receipt }) => Object.keys(receipt.bytes_by_route)))];
  const text = axes[along].text;
  rows.forEach(({ s, part, from, to, receipt }, i) => {
    const label = make("text", { x: L - 8, y: i * H + 16, "text-anchor": "end" }, svg, `${s.name}, ${from === to ? text(from) : text(from) + " to " + text(to)}${part}`);
    if (label.getComputedTextLength() > L - 12) { label.setAttribute("textLength", L - 12); label.setAttribute("lengthAdjust", "spacingAndGlyphs"); }
    let at = L;
    for (const [name, n] of Object.entries(receipt.bytes_by_route)) {
      const w = n / receipt.bytes * (W - L - 10);
      const bar = make("rect", { x: at, y: i * H + 4, width: Math.max(w, 1), height: H - 8, class: "point", style: `fill:var(--c${names.indexOf(name) % 8})` }, svg);
      describe(bar, `${name}: ${(100 * n / receipt.bytes).toFixed(1)}% of the bytes\nthrough host memory: ${(100 * receipt.host / receipt.bytes).toFixed(1)}%`);
      if (w > 60) make("text", { x: at + 6, y: i * H + 15, class: "name" }, svg, name);
      at += w;
    }
  });
}

const columns = [
  ["engine", r => r.engine], ["route", r => r.receipt ? r.receipt.route : "-"], ["pattern", r => r.pattern], ["block", r => r.block, size], ["threads", r => r.threads], ["batch", r => r.batch],
  ["GB/s", r => r.gb_per_second, v => v.toPrecision(4)], ["share of link", r => r.share_of_ceiling, v => (100 * v).toFixed(1) + "%"], ["IOPS", r => r.ops_per_second, v => v.toFixed(0)],
  ...["p50", "p90", "p99", "p99.9", "max"].map(p => [p, r => r.latency_us[p], micros]), ["CPU s/GB", r => r.cpu_seconds_per_gb, v => v.toFixed(3)],
];
let sorted = -1, down = false;
function table() {
  const t = document.getElementById("figures");
  t.replaceChildren();
  const head = make("tr", {}, make("thead", {}, t));
  columns.forEach(([name], i) => {
    const b = make("button", { type: "button" }, make("th", { scope: "col", "aria-sort": sorted === i ? (down ? "descending" : "ascending") : "none" }, head), name + (sorted === i ? (down ? " \u25be" : " \u25b4") : ""));
    b.addEventListener("click", () => { down = sorted === i ? !down : false; sorted = i; table(); });
  });
  const rows = results.slice();
  if (sorted >= 0) rows.sort((a, b) => { const [x, y] = [a, b].map(columns[sorted][1]); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
  const body = make("tbody", {}, t);
  for (const r of rows) {
    const tr = make("tr", {}, body);
    for (const [, of, text] of columns) make("td", {}, tr, (text || String)(of(r)));
  }
}

function draw() {
  const all = series(), list = all.filter(s => !off.has(s.name));
  const controls = document.getElementById("controls");
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.name : undefined;
  controls.replaceChildren();
  if (count("block") > 1 && count("threads") > 1) {
    const label = make("label", {}, controls, "Over ");
    const select = make("select", { "data-name": "axis" }, label);
    for (const key of Object.keys(axes)) { const o = make("option", { value: key }, select, axes[key].name); o.selected = key === along; }
    select.addEventListener("change", () => { along = select.value; off.clear(); draw(); });
  }
  for (const s of all) {
    const label = make("label", {}, controls);
    const c = make("input", { type: "checkbox", "data-name": s.name }, label);
    c.checked = !off.has(s.name);
    c.addEventListener("change", () => { if (c.checked) off.delete(s.name); else off.add(s.name); draw(); });
    const swatch = make("svg", { viewBox: "0 0 14 14", class: "swatch" }, label);
    make("path", { d: marks[s.mark](7, 7, 5), style: `fill:${s.colour}` }, swatch);
    label.append(s.name);
  }
  for (const e of controls.querySelectorAll("[data-name]")) if (e.dataset.name === focused) e.focus();
  const speed = v => v && v < 1 ? (1e3 * v).toPrecision(3) + " MB/s" : v.toPrecision(3) + " GB/s";
  chart("throughput", list.map(s => ({ series: s, value: r => r.gb_per_second, text: speed })), { text: speed, ceiling: Math.max(...results.map(r => r.ceiling_gb_per_second)) || undefined });
  chart("latency", list.flatMap(s => [{ series: s, value: r => r.latency_us.p50, text: micros }, { series: s, value: r => r.latency_us.p99, text: micros, dashed: true }]), { log: true, text: micros });
  shares(list);
}
draw();
table();
addEventListener("resize", draw);

// Scales, axes, and charts that the arrow keys walk through.

function ticks(low, high, about) {
  if (!(high > low)) return [low];
  const raw = (high - low) / about;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * size).find((s) => s >= raw * (1 - 1e-9));
  const found = [];
  const last = Math.floor(high / step + 1e-9);
  for (let k = Math.ceil(low / step - 1e-9); k <= last; k++) found.push(+(k * step).toPrecision(10));
  return found;
}

function logTicks(low, high, about) {
  const found = [];
  for (const marks of [[1, 2, 5], [1, 3], [1]]) {
    found.length = 0;
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const m of marks) {
        const v = m * 10 ** e;
        if (v >= low * 0.999 && v <= high * 1.001) found.push(+v.toPrecision(6));
      }
    }
    if (found.length <= about) break;
  }
  return found.length > 1 ? found : ticks(low, high, about).filter((v) => v > 0);
}

// From numbers to places. Logarithmic where asked for, or where `log` is "auto" and the numbers span a factor of 8.
function scale(values, start, end, log, about) {
  const known = values.filter((v) => Number.isFinite(v));
  let low = Math.min(...known);
  let high = Math.max(...known);
  const logarithmic = log === true || (log === "auto" && low > 0 && high / low > 8);
  const forth = logarithmic ? Math.log10 : (v) => v;
  const back = logarithmic ? (v) => 10 ** v : (v) => v;
  let [a, b] = [forth(low), forth(high)];
  const room = (b - a) * 0.06 || Math.abs(b) * 0.06 || 0.5;
  [a, b] = [a - room, b + room];
  if (!logarithmic && low >= 0 && a < 0) a = 0;
  [low, high] = [back(a), back(b)];
  const place = (v) => start + ((end - start) * (forth(Math.min(Math.max(v, low), high)) - a)) / (b - a);
  return { place, low, high, logarithmic, start, end, ticks: (logarithmic ? logTicks : ticks)(low, high, about || 6) };
}

function acrossAxis(x, top, bottom, label, form) {
  const parts = [];
  let last = -Infinity;
  for (const v of x.ticks) {
    const at = x.place(v);
    const text = (form || brief)(v);
    parts.push(stroke([[at, top], [at, bottom]], "grid"));
    if (at - last > LETTER * text.length + 8) {
      parts.push(words(at, bottom + 16, text, "small", "middle"));
      last = at;
    }
  }
  parts.push(words((x.start + x.end) / 2, bottom + 34, label, "small", "middle"));
  return parts;
}

function upAxis(y, left, right, label, form) {
  const parts = [];
  for (const v of y.ticks) {
    parts.push(stroke([[left, y.place(v)], [right, y.place(v)]], "grid"));
    parts.push(words(left - 7, y.place(v) + 4, (form || brief)(v), "small", "end"));
  }
  parts.push(words(left - 44, Math.min(y.start, y.end) - 12, label, "small"));
  return parts;
}

// Makes parts of a chart one stop of the tab key: arrows go from part to part, Enter or space opens one.
function walkable(parts, open) {
  parts.forEach((part, i) => {
    part.node.setAttribute("tabindex", i ? "-1" : "0");
    part.node.setAttribute("role", "button");
    part.node.setAttribute("aria-label", part.label);
    part.node.classList.add("part");
    part.node.addEventListener("click", () => open(part.item));
    part.node.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      const next = event.key === "Home" ? 0 : event.key === "End" ? parts.length - 1 : step ? i + step : null;
      if (event.key === "Enter" || event.key === " ") open(part.item);
      else if (next === null || !parts[next]) return;
      else {
        parts.forEach((other, k) => other.node.setAttribute("tabindex", k === next ? "0" : "-1"));
        parts[next].node.focus();
      }
      event.preventDefault();
    });
  });
}

function legend(...items) {
  return el("p", { class: "legend" }, items.filter(Boolean).map(([kind, text]) => el("span", {}, sample(kind), text)));
}

function sample(kind) {
  const node = svg("svg", { width: 26, height: 14, viewBox: "0 0 26 14", "aria-hidden": "true" });
  if (kind === "mean") node.append(stroke([[2, 7], [24, 7]], "whisker"), circle(13, 7, 4.5, "point"));
  else if (kind === "one") node.append(circle(13, 7, 4.5, "one"));
  else if (kind === "seed") node.append(circle(13, 7, 2.5, "seed"));
  else if (kind === "paper") node.append(diamond(13, 7));
  else if (kind === "naive") node.append(stroke([[13, 0], [13, 14]], "mark"));
  else if (kind === "ours") node.append(circle(13, 7, 4.5, "point own"));
  else if (kind === "front") node.append(stroke([[2, 11], [11, 11], [11, 4], [24, 4]], "front"));
  else node.append(stroke([[2, 7], [24, 7]], kind));
  return node;
}

function diamond(x, y) {
  return svg("path", { d: `M${x.toFixed(1)} ${(y - 5).toFixed(1)}l5 5l-5 5l-5 -5Z`, class: "paper" });
}

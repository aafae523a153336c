// Validation by epoch, from the histories of the records.

const COLOURS = 6;

function unpacked(column, factor) {
  return column.slice(1).map((v) => (v === null ? null : v * 10 ** column[0] * factor));
}

function showCurves(body, line, runs, chosen, again, open) {
  const known = ([i]) => Boolean((runs[i].history || {})[line.metric]);
  const systems = ordered(line).filter((s) => (s.points || []).some(known));
  if (!systems.length) {
    body.replaceChildren(notice("No record here has a history of this metric."));
    return () => {};
  }
  if (!chosen.size) systems.forEach((s, place) => (place < 4 || own(s.name)) && chosen.add(s.name));
  const picked = systems.filter((s) => chosen.has(s.name));
  const lformerFirst = [...picked].sort((a, b) => own(b.name) - own(a.name));
  const colour = new Map(lformerFirst.map((s, k) => [s.name, k]));
  const boxes = systems.map((s) => {
    const input = el("input", { type: "checkbox", name: "curve" });
    input.checked = chosen.has(s.name);
    input.value = s.name;
    input.addEventListener("change", () => {
      if (input.checked) chosen.add(s.name);
      else chosen.delete(s.name);
      again(s.name);
    });
    const k = colour.get(s.name);
    return el("label", { class: "tick" }, input, k === undefined ? "" : sample(curveKind(k)), s.name);
  });
  const drawn = picked.flatMap((s) =>
    s.points.filter(known).map(([i]) => ({
      item: s,
      system: s.name,
      run: runs[i],
      kind: curveKind(colour.get(s.name)),
      values: unpacked(runs[i].history[line.metric], line.factor),
    })),
  );
  const rows = drawn.map((c) => {
    const told = c.values.filter((v) => v !== null);
    const best = line.sign > 0 ? Math.max(...told) : Math.min(...told);
    const kept = c.run.best_epoch === undefined ? "–" : String(c.run.best_epoch + 1);
    const counts = [String(c.run.cell.seed), String(c.values.length), kept];
    return { cells: [c.system, ...counts, brief(best), brief(told[told.length - 1])] };
  });
  const box = el("div", { class: "chart" });
  const header = ["system", "seed", "epochs", "kept epoch", "best", "last"];
  body.replaceChildren(
    el("fieldset", { class: "ticks" }, el("legend", {}, "Systems"), ...boxes),
    picked.length ? box : notice("Choose a system."),
    note(
      `${line.name} of the validation part after each epoch; a line is a seed, a dot the epoch that was kept. ` +
        "Values far beyond the others are cut off at the edge.",
    ),
    folded("The same as a table", table("Learning curves", header, rows)),
  );
  return () => drawn.length && drawCurves(box, line, drawn, open);
}

function curveKind(k) {
  return `curve c${k % COLOURS}${k >= COLOURS ? ` dash${Math.floor(k / COLOURS) % 3}` : ""}`;
}

function drawCurves(box, line, drawn, open) {
  const width = Math.max(box.clientWidth, 260);
  const [left, right, top, bottom] = [52, width - 14, 30, 320];
  const all = drawn.flatMap((c) => c.values.filter((v) => v !== null)).sort((a, b) => a - b);
  const at = (q) => all[Math.min(Math.floor(q * all.length), all.length - 1)];
  // the first epochs of one system must not flatten all others
  const least = line.sign > 0 ? Math.max(all[0], at(0.03) - 0.3 * (at(0.97) - at(0.03))) : all[0];
  const most = line.sign > 0 ? at(1) : Math.min(at(1), at(0.93) + 0.2 * (at(0.93) - at(0.03)));
  const y = scale([least, most], bottom, top, "auto", 6);
  const last = Math.max(...drawn.map((c) => c.values.length), 2);
  const x = scale([1, last], left, right, false, 6);
  x.ticks = x.ticks.filter(Number.isInteger);
  const names = [...new Set(drawn.map((c) => c.system))].join(", ");
  const said = `${line.name} of the validation part by epoch: ${names}. Arrow keys go from curve to curve.`;
  const chart = picture(width, bottom + 42, said);
  const up = quantity(line) + (y.logarithmic ? ", log axis" : "");
  chart.append(...upAxis(y, left, right, up), ...acrossAxis(x, bottom, bottom, "epoch"));
  const parts = drawn.map((c) => {
    const known = c.values.map((v, i) => [i + 1, v]).filter((p) => p[1] !== null);
    const points = known.map(([epoch, v]) => [x.place(epoch), y.place(v)]);
    const label = `${c.system}, seed ${c.run.cell.seed}`;
    const node = svg("g", {}, svg("title", {}, label), stroke(points, "hit"), stroke(points, c.kind));
    const kept = c.values[c.run.best_epoch];
    if (kept !== undefined && kept !== null) {
      node.append(circle(x.place(c.run.best_epoch + 1), y.place(kept), 3.6, `kept ${c.kind}`));
    }
    chart.append(node);
    return { node, item: c, label };
  });
  walkable(parts, (c) => open(c.item, line, c.run.cell.seed));
  box.replaceChildren(chart);
}

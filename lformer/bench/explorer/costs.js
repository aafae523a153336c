// Accuracy against the seconds of training and against parameters, with the front that nothing beats in both.

const COSTS = [
  { field: "seconds", title: "Training time", unit: "seconds of a run" },
  { field: "parameters", title: "Size", unit: "parameters" },
];

function front(points, sign) {
  let best = -Infinity;
  const cheapFirst = [...points].sort((a, b) => a.cost - b.cost || sign * (b.system.mean - a.system.mean));
  return cheapFirst.filter((p) => {
    if (!p.system.comparable || sign * p.system.mean <= best) return false;
    best = sign * p.system.mean;
    return true;
  });
}

function showCosts(body, line, runs, open) {
  const systems = line.systems.filter((s) => s.mean !== undefined && !s.smoke && !s.trivial);
  const ran = systems.flatMap((s) => s.points.map(([i]) => (runs[i].versions || {}).machine));
  const machines = [...new Set(ran.filter(Boolean))].sort();
  const drawn = COSTS.map((cost) => {
    const points = systems.filter((s) => s[cost.field]).map((system) => ({ system, cost: system[cost.field] }));
    return { ...cost, points, front: front(points, line.sign), box: el("div", { class: "chart" }) };
  });
  if (drawn.every((chart) => chart.points.length < 2)) {
    body.replaceChildren(notice("Fewer than two systems have a figure and a cost here."));
    return () => {};
  }
  const figures = drawn.map((chart) => {
    const rows = [...chart.points].sort((a, b) => a.cost - b.cost).map((p) => ({
      kind: chart.front.includes(p) ? "best" : "",
      cells: [
        link(p.system.name, () => open(p.system, line)), brief(p.cost), `${p.system.text} ${p.system.remark || ""}`,
        chart.front.includes(p) ? "yes" : "",
      ],
    }));
    const shown = chart.points.length < 2 ? notice("Fewer than two systems have this cost.") : chart.box;
    const same = table(chart.title, ["system", chart.unit, line.name, "on the front"], rows);
    return el("figure", {}, el("figcaption", {}, chart.title), shown, folded("The same as a table", same));
  });
  const kinds = `They come from ${machines.length} kinds of machine (${machines.join("; ")}), `;
  const caution = machines.length > 1 ? `${kinds}so compare them across machines with care. ` : "";
  body.replaceChildren(
    legend(["ours", "lformer"], ["mean", "others"], ["front", "Pareto front: nothing is both cheaper and better"]),
    el("div", { class: "pair" }, ...figures),
    note(
      `Seconds are the median over seeds, as recorded: training, validation and test of one run. ${caution}A run ` +
        "that shared its machine with others took longer than it would have alone. Simple models have no parameters. " +
        "How fast models are, measured alone, is on the page Speed.",
    ),
  );
  return () => drawn.forEach((chart) => chart.points.length > 1 && scatter(chart, line, open));
}

function scatter({ box, points, front: best, title, unit }, line, open) {
  const width = Math.max(box.clientWidth, 260);
  const [left, right, top, bottom] = [52, width - 14, 30, 300];
  const x = scale(points.map((p) => p.cost), left, right, true, 6);
  const means = points.map((p) => p.system.mean);
  const y = scale(means, bottom, top, "auto", 5);
  const sign = line.sign > 0 ? "↑" : "↓";
  const said = `${title}: ${line.name} against ${unit}. Arrow keys go from point to point.`;
  const chart = picture(width, bottom + 42, said);
  chart.append(...upAxis(y, left, right, `${sign} ${quantity(line)}`));
  chart.append(...acrossAxis(x, bottom, bottom, `${unit}, log axis`));
  if (best.length) {
    const steps = [];
    best.forEach((p, i) => {
      if (i) steps.push([x.place(p.cost), y.place(best[i - 1].system.mean)]);
      steps.push([x.place(p.cost), y.place(p.system.mean)]);
    });
    steps.push([right, y.place(best[best.length - 1].system.mean)]);
    chart.append(stroke(steps, "front"));
  }
  const taken = points.map((p) => ({ x: x.place(p.cost) - 6, y: y.place(p.system.mean) - 6, w: 12, h: 12 }));
  const parts = [];
  const important = (p) => (own(p.system.name) ? 0 : best.includes(p) ? 1 : 2);
  for (const p of [...points].sort((a, b) => important(a) - important(b))) {
    const [px, py] = [x.place(p.cost), y.place(p.system.mean)];
    const label = `${p.system.name}: ${p.system.text} at ${brief(p.cost)} ${unit}`;
    const kind = own(p.system.name) ? "point own" : p.system.kind === "simple" ? "point simple" : "point";
    const node = svg("g", {}, svg("title", {}, label), circle(px, py, 11, "ground"));
    node.append(circle(px, py, own(p.system.name) ? 6 : 4.5, kind));
    const name = short(p.system.name, 20);
    const free = labelPlace(px, py, name, taken, left, right, top);
    if (free) node.append(words(free.x, free.y + 9, name, own(p.system.name) ? "small own" : "small"));
    chart.append(node);
    parts.push({ node, item: p.system, label, at: px });
  }
  walkable(parts.sort((a, b) => a.at - b.at), (s) => open(s, line));
  box.replaceChildren(chart);
}

function labelPlace(px, py, name, taken, left, right, top) {
  const w = name.length * 6.1;
  const spots = [[px + 9, py - 6], [px - 9 - w, py - 6], [px - w / 2, py - 22], [px - w / 2, py + 9]];
  for (const [x, y] of spots) {
    const box = { x, y, w, h: 12 };
    if (x < left || x + w > right || y < top - 8) continue;
    if (taken.some((t) => x < t.x + t.w && t.x < x + w && y < t.y + t.h && t.y < y + 12)) continue;
    taken.push(box);
    return box;
  }
  return null; // its name is in its label and in the table
}

// Systems in lanes: mean with its spread over seeds, every seed, the paper's figure; simple models as lines across.

const WORST = 1e300;

function own(name) {
  return name.split(" ")[0] === "lformer";
}

function ordered(line) {
  // figures first, then what failed, then what the paper alone has; what says nothing (cut short, trivial) late
  const key = (s) => {
    if (s.mean !== undefined) return [s.smoke || s.trivial ? 1 : 0, -line.sign * s.mean];
    if (s.text) return [2, WORST];
    return [3, s.paper && s.paper.mean !== undefined ? -line.sign * s.paper.mean : WORST];
  };
  return [...line.systems].sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    return x[0] - y[0] || x[1] - y[1] || (a.name < b.name ? -1 : 1);
  });
}

function told(s, line) {
  const paper = s.paper ? `; paper ${s.paper.text} ${s.verdict || ""}` : "";
  return `${s.name}: ${s.text ? `${s.text} ${s.remark || ""}` : "no record"}${paper}. ${line.name}`.replace(/ +/g, " ");
}

function half(s, spread) {
  return spread === "ci" ? s.reach : s.sd;
}

function lanes(box, line, systems, simple, spread, open) {
  const width = Math.max(box.clientWidth, 260);
  const wide = width >= 700;
  const printed = systems.some((s) => s.paper);
  const [lane, left, right] = wide ? [27, 160, width - (printed ? 348 : 200)] : [46, 12, width - 12];
  const inRange = [...systems, ...simple].filter((s) => !s.smoke && !s.trivial);
  const values = inRange.flatMap((s) => [s.mean, s.paper && s.paper.mean, ...(s.points || []).map((p) => p[1])]);
  const known = values.filter((v) => v !== undefined && v !== null);
  if (!known.length) known.push(0, 1);
  const least = Math.min(...known);
  for (const s of inRange.filter((one) => one.mean !== undefined && half(one, spread))) {
    const ends = [s.mean - half(s, spread), s.mean + half(s, spread)];
    // a whisker down to 0 must not stretch a log axis
    known.push(...ends.filter((v) => least <= 0 || v > 0.4 * least));
  }
  const x = scale(known, left, right, "auto", wide ? 7 : 4);
  const labels = naiveLabels(simple.filter((s) => s.mean !== undefined && !s.trivial), x, width);
  const top = labels.rows * 15 + (wide ? 24 : 8);
  const bottom = top + systems.length * lane + 4;
  const what = quantity(line);
  const better = `${line.sign > 0 ? "more" : "less"} is better${x.logarithmic ? ", log axis" : ""}`;
  const said = `Chart of ${what}, ${better}. Arrow keys go from system to system.`;
  const chart = picture(width, bottom + (wide ? 42 : 58), said);
  chart.append(...acrossAxis(x, top, bottom, wide ? `${what}, ${better}` : what));
  if (!wide) chart.append(words((left + right) / 2, bottom + 50, better, "small", "middle"));
  if (wide) chart.append(words(right + 18, top - 8, "ours", "small strong"));
  if (wide && printed) chart.append(words(right + 188, top - 8, "paper", "small strong"));
  const parts = [];
  const naive = svg("g", {});
  chart.append(naive);
  for (const label of [...labels.list].sort((a, b) => a.row - b.row)) {
    const at = x.place(label.system.mean);
    const node = svg("g", {}, svg("title", {}, told(label.system, line)));
    node.append(stroke([[at, label.y + 3], [at, bottom]], "mark"), words(label.x, label.y, label.text, "small naive"));
    naive.prepend(node); // a line passes below the labels of the rows under its own
    parts.push({ node, item: label.system, label: `Simple model ${told(label.system, line)}` });
  }
  systems.forEach((s, i) => {
    const y0 = top + i * lane;
    const node = laneOf(s, line, spread, x, { y0, lane, wide, width, left, right });
    chart.append(node);
    if (s.points) parts.push({ node, item: s, label: told(s, line) });
  });
  walkable(parts, (s) => open(s, line));
  box.replaceChildren(chart);
}

function naiveLabels(simple, x, width) {
  const list = [];
  const ends = []; // how far to the right each row of labels is taken
  for (const system of [...simple].sort((a, b) => a.mean - b.mean)) {
    const text = short(`${system.name} ${system.text}`, 34);
    const wide = text.length * LETTER + 10;
    const start = Math.max(Math.min(x.place(system.mean) - wide / 2, width - wide), 2);
    let row = ends.findIndex((end) => end <= start);
    if (row < 0) row = ends.push(0) - 1;
    ends[row] = start + wide;
    list.push({ system, text, x: start, row });
  }
  for (const label of list) label.y = 12 + (ends.length - 1 - label.row) * 15;
  return { list, rows: ends.length };
}

function laneOf(s, line, spread, x, at) {
  const y = at.wide ? at.y0 + at.lane / 2 : at.y0 + 31;
  const faint = s.partial || s.smoke || s.trivial || !s.text ? " faint" : "";
  const node = svg("g", { class: `lane${own(s.name) ? " own" : ""}${faint}` }, svg("title", {}, told(s, line)));
  node.append(svg("rect", { x: 0, y: at.y0.toFixed(1), width: at.width, height: at.lane, class: "ground" }));
  const room = Math.floor((at.wide ? at.left - 16 : at.width - 24) / LETTER) - (at.wide ? 0 : 24);
  const figure = s.text ? `${s.text} ${s.remark || ""}`.trim() : "–";
  const strong = s.mark === "best" ? " strong" : "";
  if (at.wide) {
    node.append(words(at.left - 12, y + 4, short(s.name, room), "name", "end"));
    node.append(words(at.right + 18, y + 4, short(figure, 26), `figure${strong}`));
    if (s.paper) node.append(words(at.right + 188, y + 4, `${s.paper.text} ${s.verdict || ""}`, "small"));
  } else {
    node.append(words(at.left, y - 13, short(s.name, Math.max(room, 8)), "name"));
    const kind = s.mean === undefined && s.text ? "failed" : `figure${strong}`;
    node.append(words(at.right, y - 13, short(figure, 24), kind, "end"));
    node.append(stroke([[at.left, y], [at.right, y]], "rail"));
  }
  if (s.paper && s.paper.mean !== undefined) {
    const { mean, sd } = s.paper;
    if (sd) node.append(stroke([[x.place(mean - sd), y], [x.place(mean + sd), y]], "paper-reach"));
    node.append(diamond(x.place(mean), y));
  }
  if (s.mean === undefined) {
    const [side, anchor] = line.sign > 0 ? [at.left + 4, "start"] : [at.right - 4, "end"]; // where the worst are
    if (s.text && at.wide) node.append(words(side, y + 4, s.text, "failed", anchor));
    return node;
  }
  const reach = half(s, spread);
  if (reach !== undefined) {
    node.append(stroke([[x.place(s.mean - reach), y], [x.place(s.mean + reach), y]], "whisker"));
  }
  for (const [, value] of s.points.length > 1 ? s.points : []) {
    if (value !== null) node.append(circle(x.place(value), y, 2.4, "seed"));
  }
  node.append(circle(x.place(s.mean), y, 5, reach === undefined ? "one" : "point"));
  return node;
}

function figureTable(label, line, systems, open) {
  const ours = [`ours${line.unit ? ` (${line.unit})` : ""}`, "seeds", "mean", "deviation", "95 % ±", "rank"];
  const header = ["system", ...ours, "paper", "against it"];
  const kinds = { paper: "", variant: "our recipe", simple: "simple" };
  const rows = systems.map((s) => {
    const seeds = (s.points || []).filter((p) => p[1] !== null).length;
    const name = s.points ? link(s.name, () => open(s, line)) : s.name;
    const kind = s.text && kinds[s.kind] ? el("span", { class: "soft" }, ` ${kinds[s.kind]}`) : "";
    const cells = [
      el("span", {}, name, kind), s.text ? `${s.text} ${s.remark || ""}` : "–", seeds ? String(seeds) : "–",
      number(s.mean, line.digits), number(s.sd, line.digits), number(s.reach, line.digits),
      s.rank === undefined ? "–" : String(s.rank), s.paper ? s.paper.text : "–", s.verdict || "",
    ];
    return { kind: s.mark === "best" ? "best" : "", cells };
  });
  return table(label, header, rows);
}

function marksSaid(systems) {
  const notes = [];
  const partial = [...new Set(systems.map((s) => s.partial).filter(Boolean))];
  if (partial.length) notes.push(`‡ partial data, neither ranked nor judged: ${partial.join("; ")}.`);
  if (systems.some((s) => s.smoke)) notes.push("§ training was cut short: not ranked, not comparable.");
  const trivial = systems.filter((s) => s.trivial).map((s) => `${s.name} ${s.text}`);
  const given = "¶ trivial and not drawn, as the answers were among the inputs and are handed back";
  if (trivial.length) notes.push(`${given}: ${trivial.join(", ")}.`);
  const failed = systems.filter((s) => s.failed).map((s) => `${s.name} ${s.failed}`);
  const want = "Runs that ended for want of time (OOT) or memory (OOM), or as the loss exploded (collapse)";
  if (failed.length) notes.push(`${want}: ${failed.join(", ")}.`);
  return notes.map(note);
}

function showRanking(body, board, line, spread, open) {
  const all = ordered(line);
  const simple = all.filter((s) => s.kind === "simple");
  const rest = all.filter((s) => s.kind !== "simple" && !s.trivial);
  const several = rest.some((s) => s.points && s.points.length > 1);
  const box = el("div", { class: "chart" });
  const none = rest.every((s) => !s.text) ? notice("No record of ours yet: the figures are the paper's.") : "";
  const span = spread === "ci" ? "95 % interval of the mean" : "standard deviation";
  body.replaceChildren(
    none,
    legend(
      ["ours", "lformer"], several && ["mean", `mean and ${span}`], several && ["seed", "a seed"],
      ["one", "one seed"], ["paper", "the paper's figure"], simple.length && ["naive", "simple model"],
    ),
    box,
    ...marksSaid(all),
    note(
      "Choose a system for its records and commands. A variant, such as lformer best, is a recipe of ours, beside " +
        "which the paper has no figure; ✓ and ✗ say whether ours meets the paper's at its precision.",
    ),
    folded("The same as a table", figureTable(`${board.dataset}, ${line.name}`, line, all, open)),
  );
  return () => lanes(box, line, rest, simple, spread, open);
}

function showAblation(body, board, spread, open) {
  const lines = board.ablations;
  if (!lines.length) {
    body.replaceChildren(notice("Neither the paper nor a record has an ablation on this data set and task."));
    return () => {};
  }
  const parts = lines.map((line) => {
    const box = el("div", { class: "chart" });
    const ours = line.systems.filter((s) => s.text);
    const exchanged = ours.some((s) => s.name !== "full");
    const few = exchanged ? "" : notice("No record of an exchanged part yet: the figures are the paper's.");
    const title = lines.length > 1 ? el("h3", {}, line.name) : "";
    const same = folded("The same as a table", figureTable(`Ablation, ${line.name}`, line, line.systems, open));
    return { line, box, nodes: [title, few, box, ...marksSaid(ours), same] };
  });
  body.replaceChildren(
    el("p", { class: "soft" }, "LFormer by the paper's recipe (full), and with one part of it exchanged."),
    legend(["mean", "ours"], ["one", "one seed"], ["paper", "the paper's figure"]),
    ...parts.flatMap((part) => part.nodes),
  );
  return () => parts.forEach(({ line, box }) => lanes(box, line, line.systems, [], spread, open));
}

// LFormer's best against the others over common seeds, and all systems over cells.

function showPaired(body, line) {
  const found = line.paired;
  if (!found) {
    body.replaceChildren(notice("LFormer has no record here, so there is nothing to compare."));
    return () => {};
  }
  const tested = found.rows.filter((row) => row.seeds).sort((a, b) => b.difference - a.difference);
  const others = found.rows.filter((row) => !row.seeds);
  const rest = ", LFormer's best by the validation part, against every rival and simple model on the same seeds.";
  const method =
    "Two-sided paired t-test over common seeds, Holm's correction over the rows; Wilcoxon's signed-rank test, exact, " +
    "beside it (with five seeds its p cannot be below 0.0625). Seeds vary the training, and the split where the " +
    "protocol redraws it; they do not vary the data set. Where redrawn parts overlap, as those of folds do, the " +
    "differences are not independent, and the p values rather too small.";
  const nodes = [el("p", {}, el("strong", {}, found.best), rest)];
  if (!found.rows.length) nodes.push(notice("No other system has a record here."));
  const box = el("div", { class: "chart" });
  if (tested.length) {
    const digits = line.digits + 1;
    const rows = tested.map((row) => ({
      cells: [
        row.reprepared ? `${row.system} *` : row.system, String(row.seeds),
        `${number(row.difference, digits)} ± ${number(row.reach, digits)}`,
        `${row.wins} of ${row.seeds}`, row.p === null ? "same in every seed" : probability(row.p),
        probability(row.holm), probability(row.wilcoxon),
      ],
    }));
    const ps = ["p, t-test", "p, Holm", "p, Wilcoxon"];
    const header = ["against", "common seeds", "difference, 95 %", "better in", ...ps];
    nodes.push(box, table("Paired comparison", header, rows));
    const other = "* Its data have another fingerprint: they were prepared by another version of the code.";
    if (tested.some((row) => row.reprepared)) nodes.push(note(other));
  }
  if (others.length) {
    const reasons = new Map();
    for (const row of others) reasons.set(row.why, [...(reasons.get(row.why) || []), row.system]);
    const items = [...reasons].map(([why, names]) => el("li", {}, el("span", {}, `${listed(names)}: `), why, "."));
    nodes.push(note(tested.length ? "No test, and why:" : "No test can be made, and why:"));
    nodes.push(el("ul", { class: "plain" }, items));
  }
  if (tested.length) nodes.push(note(method));
  body.replaceChildren(...nodes);
  return tested.length ? () => forest(box, line, tested, found.best) : () => {};
}

function forest(box, line, rows, best) {
  const width = Math.max(box.clientWidth, 260);
  const wide = width >= 560;
  const [lane, left, right] = wide ? [27, 160, width - 24] : [42, 12, width - 12];
  const values = rows.flatMap((row) => [row.difference - row.reach, row.difference + row.reach]);
  const x = scale([0, ...values], left, right, false, wide ? 7 : 4);
  const bottom = 8 + rows.length * lane;
  const label = `${best} better by, ${quantity(line)}`;
  const said = rows.map((row) => `${row.system} ${number(row.difference, line.digits + 1)}`).join(", ");
  const chart = picture(width, bottom + 42, `${label}: ${said}`, "img");
  chart.append(...acrossAxis(x, 6, bottom, label), stroke([[x.place(0), 4], [x.place(0), bottom]], "axis"));
  rows.forEach((row, i) => {
    const y = 8 + i * lane + (wide ? lane / 2 : 28);
    const [low, high] = [row.difference - row.reach, row.difference + row.reach];
    const kind = low > 0 ? "good" : high < 0 ? "bad" : "even";
    if (wide) chart.append(words(left - 12, y + 4, short(row.system, 22), "name", "end"));
    else chart.append(words(left, y - 12, short(row.system, 40), "name"));
    chart.append(stroke([[x.place(low), y], [x.place(high), y]], `whisker ${kind}`));
    chart.append(circle(x.place(row.difference), y, 5, `point ${kind}`));
  });
  box.replaceChildren(chart);
}

function showCritical(body, found) {
  if (found.why) {
    body.replaceChildren(notice(found.why));
    return () => {};
  }
  const [n, k] = [found.cells.length, found.systems.length];
  const differ = found.p < found.level ? "the systems differ" : "no difference between the systems is shown";
  const apart = `with ${k} systems only mean ranks ${found.distance.toFixed(1)} apart count as different`;
  const few = found.few ? ` ${n} cells are few: the test is made for more than ten, and ${apart}.` : "";
  const box = el("div", { class: "chart" });
  const rows = found.systems.map((name, i) => {
    return { cells: [name, found.ranks[i].toFixed(2), ...found.by_cell.map((row) => String(row[i]))] };
  });
  const test = `Friedman's test: χ² = ${found.statistic.toFixed(1)}, p = ${probability(found.p)}; ${differ}.${few}`;
  body.replaceChildren(
    el("p", {}, `Mean ranks of ${k} systems by the paper's recipe, over ${n} cells: ${found.cells.join("; ")}.`),
    el("p", {}, test),
    box,
    note(
      `Systems joined by a bar are not different by Nemenyi's test at ${found.level}: their mean ranks lie within ` +
        `${found.distance.toFixed(2)}. A cell is a data set, task and protocol, by the first metric that is printed ` +
        "of it. Cells and systems are the largest block without a gap. Ties share a rank; OOM and OOT come last; " +
        "partial data and runs that were cut short are left out.",
    ),
    folded("The same as a table", table("Ranks by cell", ["system", "mean rank", ...found.cells], rows)),
  );
  return () => (box.clientWidth >= 640 ? diagram : column)(box, found);
}

function diagramLabel(found) {
  const ranks = found.systems.map((name, i) => `${name} ${found.ranks[i].toFixed(2)}`);
  return `Critical-difference diagram, distance ${found.distance.toFixed(2)}. Mean ranks: ${ranks.join(", ")}`;
}

// The usual form: an axis of ranks, names at both sides, bars that join what is not different.
function diagram(box, found) {
  const width = box.clientWidth;
  const [left, right, axis] = [190, width - 190, 64];
  const k = found.systems.length;
  const place = (rank) => left + ((right - left) * (rank - 1)) / (k - 1);
  const half = Math.ceil(k / 2);
  const bars = axis + 20 + found.cliques.length * 9;
  const height = bars + half * 22 + 16;
  const chart = picture(width, height, diagramLabel(found), "img");
  const end = place(1 + Math.min(found.distance, k - 1));
  chart.append(stroke([[left, 17], [left, 27], [left, 22], [end, 22], [end, 17], [end, 27]], "bar-rule"));
  chart.append(words(left, 12, `critical difference ${found.distance.toFixed(2)}`, "small"));
  chart.append(stroke([[left, axis], [right, axis]], "axis"));
  for (let rank = 1; rank <= k; rank++) {
    chart.append(stroke([[place(rank), axis - 5], [place(rank), axis]], "axis"));
    chart.append(words(place(rank), axis - 10, String(rank), "small", "middle"));
  }
  found.cliques.forEach(([first, last], i) => {
    const y = axis + 16 + i * 9;
    chart.append(stroke([[place(found.ranks[first]) - 4, y], [place(found.ranks[last]) + 4, y]], "clique"));
  });
  found.systems.forEach((name, i) => {
    const first = i < half;
    const y = bars + (first ? i : k - 1 - i) * 22 + 8;
    const at = place(found.ranks[i]);
    const side = first ? left - 14 : right + 14;
    const text = `${short(name, 18)} ${found.ranks[i].toFixed(2)}`;
    chart.append(stroke([[at, axis], [at, y], [side, y]], own(name) ? "thread own" : "thread"));
    const kind = own(name) ? "name own" : "name";
    chart.append(words(first ? side - 6 : side + 6, y + 4, text, kind, first ? "end" : "start"));
  });
  box.replaceChildren(chart);
}

// For a narrow page: a lane for each system, bars along the right side.
function column(box, found) {
  const width = Math.max(box.clientWidth, 260);
  const [lane, left, right] = [30, 120, width - 26 - found.cliques.length * 10];
  const x = scale([1, found.systems.length], left, right, false, 4);
  const bottom = 8 + found.systems.length * lane;
  const chart = picture(width, bottom + 42, diagramLabel(found), "img");
  chart.append(...acrossAxis(x, 6, bottom, "mean rank"));
  found.systems.forEach((name, i) => {
    const y = 8 + (i + 0.5) * lane;
    chart.append(words(left - 10, y + 4, short(name, 16), own(name) ? "name own" : "name", "end"));
    chart.append(circle(x.place(found.ranks[i]), y, 5, own(name) ? "point own" : "point"));
  });
  found.cliques.forEach(([first, last], i) => {
    const at = right + 16 + i * 10;
    chart.append(stroke([[at, 8 + first * lane + 6], [at, 8 + (last + 1) * lane - 6]], "clique"));
  });
  box.replaceChildren(chart);
}

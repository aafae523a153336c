// The records of a system: what was run, what came out, the command that makes it again.

function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl", {}, known.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function figures(metrics) {
  const told = ([name, value]) => `${name} ${value === null ? "not finite" : value}`;
  return Object.entries(metrics || {}).map(told).join(", ");
}

function size(bytes) {
  return bytes ? `${(bytes / 2 ** 20).toFixed(0)} MiB` : undefined;
}

function runView(run, data) {
  const versions = run.versions || {};
  const others = Object.entries(versions).filter(([name]) => name !== "machine");
  const file = data.base === null ? run.path : el("a", { href: data.base + run.href }, run.path);
  const kept = run.best_epoch === undefined ? "" : `, kept epoch ${run.best_epoch + 1}`;
  const about = [
    ["status", run.status], ["error", run.error], ["partial data", run.partial], ["smoke run", run.smoke ? "yes" : ""],
    ["test", figures(run.metrics)], ["validation", figures(run.validation)],
    ["epochs", run.epochs ? `${run.epochs}${kept}` : undefined], ["seconds", run.seconds && String(run.seconds)],
    ["parameters", run.parameters && run.parameters.toLocaleString("en")], ["peak memory", size(run.peak_bytes)],
    ["machine", versions.machine], ["data", run.data], ["record", file],
    ["made with", others.map(([name, version]) => `${name} ${version || "–"}`).join(", ")],
  ];
  const whole = { cell: run.cell, config: data.configs[run.config] };
  return [
    el("p", { class: "soft" }, "The command that makes it:"),
    command(run.command),
    facts(about),
    folded("Cell and configuration", el("pre", { tabindex: "0" }, JSON.stringify(whole, null, 1))),
  ];
}

function openRecord(system, line, data, seed) {
  const dialog = document.getElementById("record");
  const points = system.points || [];
  const view = el("div", {});
  const seeds = points.map(([i, value], k) => {
    const run = data.runs[i];
    const figure = value === null || value === undefined ? run.status : number(value, line.digits);
    const about = { type: "button", class: "seed-choice", "aria-pressed": "false", onclick: () => show(k) };
    return el("button", about, `seed ${run.cell.seed}: ${figure}`);
  });
  const show = (k) => {
    seeds.forEach((button, j) => button.setAttribute("aria-pressed", String(j === k)));
    view.replaceChildren(...runView(data.runs[points[k][0]], data));
  };
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const figure = `${system.text || "–"} ${system.remark || ""}`.trim();
  const paper = system.paper ? `; the paper ${system.paper.text} ${system.verdict || ""}` : "";
  dialog.replaceChildren(
    el("div", { class: "bar" }, el("h2", { id: "record-title" }, system.name), close),
    el("p", {}, `${quantity(line)}: ${figure}${paper}`),
    el("div", { class: "seeds", role: "group", "aria-label": "Records" }, ...seeds),
    view,
  );
  show(Math.max(points.findIndex(([i]) => data.runs[i].cell.seed === seed), 0));
  if (!dialog.open) dialog.showModal();
  close.focus();
}

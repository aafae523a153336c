// What is chosen, in the address and in the chooser, and everything drawn for it.

const data = JSON.parse(document.getElementById("data").textContent);
const state = { dataset: "", task: "", protocol: "", metric: "", spread: "sd" };
const curvesChosen = new Set();
let curvesOf = ""; // what they were chosen for
let draws = []; // charts, to be drawn again where the width of the page changes

const other = (name, value) => (value === "published" ? "" : `${name} ${value}`);
const protocolOf = (board) =>
  [other("split", board.split), other("scaling", board.scaling)].filter(Boolean).join(", ") || "published";
const hasRecords = (board) => board.lines.some((line) => line.systems.some((s) => s.text));
const unique = (list) => [...new Set(list)];

// Those that agree in data set, task and protocol, as far as they are given.
function boards(wanted) {
  const fits = (board) => (name) => (name === "protocol" ? protocolOf(board) : board[name]) === wanted[name];
  return data.boards.filter((board) => board.lines.length && Object.keys(wanted).every(fits(board)));
}

// The state made possible: what does not exist gives way to the first that does, from left to right.
function settle() {
  const pick = (name, options) => {
    if (!options.includes(state[name])) state[name] = options[0];
  };
  const lead = (list) => [...list.filter(hasRecords), ...list.filter((board) => !hasRecords(board))];
  const systems = (board) => Math.max(0, ...board.lines.map((line) => line.systems.length));
  const [most] = [...data.boards].sort((a, b) => systems(b) - systems(a));
  if (!boards({ dataset: state.dataset }).length && most) {
    Object.assign(state, { dataset: most.dataset, task: most.task, protocol: protocolOf(most) });
  }
  pick("task", unique(lead(boards({ dataset: state.dataset })).map((b) => b.task)));
  pick("protocol", unique(lead(boards({ dataset: state.dataset, task: state.task })).map(protocolOf)));
  const board = boards({ dataset: state.dataset, task: state.task, protocol: state.protocol })[0];
  pick("metric", board ? board.lines.map((line) => line.metric) : [""]);
  if (!["sd", "ci"].includes(state.spread)) state.spread = "sd";
  return board;
}

function address() {
  const board = settle();
  const parts = new URLSearchParams({ dataset: state.dataset, task: state.task });
  for (const name of ["split", "scaling"]) if (board && board[name] !== "published") parts.set(name, board[name]);
  parts.set("metric", state.metric);
  if (state.spread !== "sd") parts.set("spread", state.spread);
  return `#${parts}`;
}

function readAddress() {
  const text = location.hash.slice(1);
  if (!text.includes("=")) return;
  const parts = new URLSearchParams(text);
  for (const name of ["dataset", "task", "metric", "spread"]) state[name] = parts.get(name) || "";
  const given = (name) => parts.get(name) || "published";
  state.protocol = protocolOf({ split: given("split"), scaling: given("scaling") });
}

function select(name, label, groups) {
  const id = `choose-${name}`;
  const node = el("select", { id, name });
  for (const [title, options] of groups) {
    const list = options.map(([value, text]) => {
      const option = el("option", {}, text);
      option.value = value;
      option.selected = value === state[name];
      return option;
    });
    if (title) node.append(el("optgroup", { label: title }, ...list));
    else node.append(...list);
  }
  node.addEventListener("change", () => {
    state[name] = node.value;
    choose(name);
  });
  return el("div", { class: "field" }, el("label", { for: id }, label), node);
}

function chooser(board) {
  const form = document.getElementById("chooser");
  const names = unique(data.boards.filter((b) => b.lines.length).map((b) => b.dataset));
  const ran = names.filter((name) => boards({ dataset: name }).some(hasRecords));
  const rest = names.filter((name) => !ran.includes(name));
  const twice = (list) => list.map((x) => [x, x]);
  const plain = (list) => [["", twice(list)]];
  const same = boards({ dataset: state.dataset });
  const protocols = unique(same.filter((b) => b.task === state.task).map(protocolOf));
  const groups = [["With records", twice(ran)], ["The paper's figures alone", twice(rest)]];
  const spreads = [["sd", "standard deviation"], ["ci", "95 % interval of the mean"]];
  const only = el("span", { class: "only" }, protocols[0]);
  form.replaceChildren(
    select("dataset", "Data set", rest.length ? groups.filter(([, list]) => list.length) : plain(ran)),
    select("task", "Task", plain(unique(same.map((b) => b.task)))),
    protocols.length > 1
      ? select("protocol", "Split, scaling", plain(protocols))
      : el("div", { class: "field" }, el("span", { class: "label" }, "Split, scaling"), only),
    select("metric", "Metric", [["", board.lines.map((l) => [l.metric, l.name])]]),
    select("spread", "Whiskers", [["", spreads]]),
  );
}

function part(name) {
  return document.getElementById(`${name}-body`);
}

function render() {
  const board = settle();
  if (!board) {
    part("ranking").replaceChildren(notice("There is no record of a whole model; ablations alone are not ranked."));
    return;
  }
  const line = board.lines.find((l) => l.metric === state.metric);
  chooser(board);
  const key = [state.dataset, state.task, state.protocol].join("\n");
  if (key !== curvesOf) curvesChosen.clear();
  curvesOf = key;
  const open = (system, itsLine, seed) => openRecord(system, itsLine, data, seed);
  const again = (name) => {
    render();
    const box = [...document.querySelectorAll("input[name=curve]")].find((input) => input.value === name);
    if (box) box.focus();
  };
  draws = [
    showRanking(part("ranking"), board, line, state.spread, open),
    showPaired(part("paired"), line),
    showCosts(part("costs"), line, data.runs, open),
    showCurves(part("curves"), line, data.runs, curvesChosen, again, open),
    showAblation(part("ablation"), board, state.spread, open),
    showCritical(part("critical"), data.critical),
  ];
  draws.forEach((draw) => draw());
  document.title = `${state.dataset}, ${state.task}: ${line.name} · lformer`;
}

function choose(name) {
  render();
  history.replaceState(null, "", address());
  const board = settle();
  const line = board.lines.find((l) => l.metric === state.metric);
  say(`${state.dataset}, ${state.task}, ${line.name}: ${plural(line.systems.length, "system")}.`);
  const control = document.getElementById(`choose-${name}`);
  if (control) control.focus();
}

document.querySelectorAll("nav a, .skip").forEach((link) =>
  link.addEventListener("click", (event) => {
    event.preventDefault(); // the address keeps what is chosen
    const target = document.querySelector(link.getAttribute("href"));
    target.scrollIntoView();
    target.focus({ preventScroll: true });
  }),
);
document.getElementById("chooser").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", () => {
  readAddress();
  render();
});
let waiting = 0;
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => draws.forEach((draw) => draw()));
});
window.addEventListener("beforeprint", () => draws.forEach((draw) => draw()));
themeButton();
readAddress();
render();

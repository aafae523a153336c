// Elements, text and numbers. Whatever comes from a record becomes text of a node, never markup.

const NS = "http://www.w3.org/2000/svg";
const LETTER = 6.6; // width of a letter in a chart, about

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "onclick" || name === "onchange") node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") node.append(child);
  }
  return node;
}

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(NS, tag), attributes, children);
}

// A chart with a name; `role` is "img" where nothing in it can be chosen.
function picture(width, height, label, role) {
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: role || "group", "aria-label": label });
}

function circle(x, y, r, kind) {
  return svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r, class: kind });
}

function words(x, y, text, kind, anchor) {
  return svg("text", { x: x.toFixed(1), y: y.toFixed(1), class: kind || "", "text-anchor": anchor || "start" }, text);
}

function stroke(points, kind) {
  const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  return svg("path", { d, class: kind });
}

function short(text, letters) {
  return text.length <= letters ? text : `${text.slice(0, Math.max(letters - 1, 1))}…`;
}

function number(value, digits) {
  return value === null || value === undefined ? "–" : value.toFixed(digits).replace("-", "−");
}

function brief(value) {
  // three digits, for axes and costs: 0.002, 14.9, 1,140, 11.9 M
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (value >= 1e4) return `${Math.round(value / 1e3).toLocaleString("en")} k`;
  if (value >= 100) return Math.round(value).toLocaleString("en");
  return String(+value.toPrecision(3)).replace("-", "−");
}

function probability(p) {
  return p === null || p === undefined ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3);
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function listed(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names[names.length - 1]}`;
}

// A table that scrolls within itself where it is wider than the page; a cell may be a node.
function table(label, header, rows) {
  const head = el("tr", {}, header.map((name) => el("th", { scope: "col" }, name)));
  const cells = (row) => row.cells.map((cell, i) => (i ? el("td", {}, cell) : el("th", { scope: "row" }, cell)));
  const body = rows.map((row) => el("tr", { class: row.kind }, cells(row)));
  const inner = el("table", {}, el("thead", {}, head), el("tbody", {}, body));
  return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, inner);
}

function notice(text) {
  return el("p", { class: "notice" }, text);
}

function note(text) {
  return el("p", { class: "note" }, text);
}

function link(text, onclick) {
  return el("button", { type: "button", class: "link", onclick }, text);
}

function quantity(line) {
  return line.unit ? `${line.name} (${line.unit})` : line.name;
}

function folded(title, ...inside) {
  return el("details", {}, el("summary", {}, title), ...inside);
}

function say(text) {
  document.getElementById("said").textContent = text;
}

async function copy(text, button) {
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch {
    // pages from a folder may not be let near the clipboard by the new way, but are by the old one
    const area = el("textarea", { class: "hidden", "aria-hidden": "true" });
    area.value = text;
    button.after(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  button.textContent = done ? "Copied" : "Select and copy";
  say(done ? "Copied." : "Could not copy: select the text and copy it.");
  setTimeout(() => (button.textContent = "Copy"), 1600);
}

function command(text) {
  const button = el("button", { type: "button", class: "copy", "aria-label": "Copy the command" }, "Copy");
  button.addEventListener("click", () => copy(text, button));
  return el("div", { class: "command" }, el("code", {}, text), button);
}

function themeButton() {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const now = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const show = () => (button.textContent = now() === "dark" ? "Light page" : "Dark page");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = now() === "dark" ? "light" : "dark";
    show();
  });
  dark.addEventListener("change", show);
  show();
}

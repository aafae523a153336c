// Answers of the exported model for example.json, or a file like it: node run.mjs [file]. Needs onnxruntime-node.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ort from "onnxruntime-node";

const here = dirname(fileURLToPath(import.meta.url));
const read = (path) => JSON.parse(readFileSync(path, "utf8"));
const about = read(join(here, "export.json"));
const given = read(process.argv[2] ?? join(here, "example.json")).inputs;
const { batch, step, ask } = about.graphs;
const axes = Object.fromEntries(batch.inputs.map((p) => [p.name, p.axes]));

const kinds = { float64: Float64Array, float32: Float32Array, int64: BigInt64Array };
const flat = (x) => (Array.isArray(x) ? x.flatMap(flat) : [x ?? NaN]); // null is NaN, a missing value
const shape = (x) => (Array.isArray(x) ? [x.length, ...shape(x[0])] : []);
const tensor = (x, dtype) =>
  new ort.Tensor(dtype, kinds[dtype].from(flat(x), dtype === "int64" ? BigInt : Number), shape(x));
const fold = (data, dims) => { // as nested lists
  if (!dims.length) return typeof data[0] === "number" ? data[0] : Boolean(data[0]);
  const size = data.length / dims[0];
  return Array.from({ length: dims[0] }, (_, n) => fold(data.slice(n * size, (n + 1) * size), dims.slice(1)));
};
const nested = (t) => fold(t.type === "bool" ? Array.from(t.data, Boolean) : t.data, t.dims);
const open = (graph) => ort.InferenceSession.create(join(here, graph.file));
const feeds = (ports, pick) => Object.fromEntries(ports.map((p) => [p.name, tensor(pick(p.name), p.dtype)]));
const first = (name) => (axes[name].includes("batch") ? [given[name][0]] : given[name]); // of the first series

const told = await (await open(batch)).run(feeds(batch.inputs, (name) => given[name]));
const found = { classes: about.classes };
for (const p of batch.outputs) found[p.name] = nested(told[p.name]);

if (step) { // the first series once more, row by row
  const session = await open(step);
  const fill = ({ axes, dtype, initial }) => {
    const dims = axes.map((axis) => (axis === "batch" ? 1 : axis));
    const data = new kinds[dtype](dims.reduce((a, b) => a * b, 1));
    return new ort.Tensor(dtype, data.map((_, n) => (Array.isArray(initial) ? initial[n % initial.length] : initial)), dims);
  };
  let state = Object.fromEntries(step.state.map((p) => [p.name, fill(p)]));
  for (const p of step.outputs) found[`step_${p.name}`] = [];
  for (let n = 0; n < given.lengths[0]; n++) {
    const row = feeds(step.inputs, (name) => (axes[name].includes("length") ? [given[name][0][n]] : first(name)));
    const out = await session.run({ ...row, ...state });
    for (const p of step.outputs) found[`step_${p.name}`].push(nested(out[p.name])[0]);
    state = Object.fromEntries(step.state.map((p) => [p.name, out[p.next]]));
  }
  if (ask) { // at its query times, from where it stands; the state stays as it is
    const needed = Object.fromEntries(ask.state.map((p) => [p.name, state[p.name]]));
    const out = await (await open(ask)).run({ ...feeds(ask.inputs, first), ...needed });
    for (const p of ask.outputs) found[`ask_${p.name}`] = nested(out[p.name])[0];
  }
}
console.log(JSON.stringify(found));

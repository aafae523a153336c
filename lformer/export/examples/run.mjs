// Answers of the exported model for example.json, or a file like it: node run.mjs [file]. Needs onnxruntime-node.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ort from "onnxruntime-node";

const here = dirname(fileURLToPath(import.meta.url));
const read = (path) => JSON.parse(readFileSync(path, "utf8"));
const about = read(join(here, "export.json"));
const given = read(process.argv[2] ?? join(here, "example.json")).inputs;
const { batch, step } = about.graphs;

const kinds = { float64: Float64Array, float32: Float32Array, int64: BigInt64Array };
const flat = (x) => (Array.isArray(x) ? x.flatMap(flat) : [x ?? NaN]); // null is NaN, a missing value
const shape = (x) => (Array.isArray(x) ? [x.length, ...shape(x[0])] : []);
const tensor = (x, dtype) =>
  new ort.Tensor(dtype, kinds[dtype].from(flat(x), dtype === "int64" ? BigInt : Number), shape(x));
const rows = (t) => Array.from({ length: t.dims[0] }, (_, n) => Array.from(t.data.slice((n * t.size) / t.dims[0], ((n + 1) * t.size) / t.dims[0])));

const session = await ort.InferenceSession.create(join(here, batch.file));
const inputs = Object.fromEntries(batch.inputs.map((p) => [p.name, tensor(given[p.name], p.dtype)]));
const found = { answers: rows((await session.run(inputs)).answers), classes: about.classes };

if (step) { // the first series once more, row by row
  const stepping = await ort.InferenceSession.create(join(here, step.file));
  const fill = ({ axes, dtype, initial }) => {
    const dims = axes.map((axis) => (axis === "batch" ? 1 : axis));
    const data = new kinds[dtype](dims.reduce((a, b) => a * b, 1));
    return new ort.Tensor(dtype, data.map((_, n) => (Array.isArray(initial) ? initial[n % initial.length] : initial)), dims);
  };
  let state = Object.fromEntries(step.state.map((p) => [p.name, fill(p)]));
  found.step_answers = [];
  for (let n = 0; n < given.lengths[0]; n++) {
    const row = step.inputs.map((p) => [p.name, tensor([p.name === "static" ? given.static[0] : given[p.name][0][n]], p.dtype)]);
    const out = await stepping.run({ ...Object.fromEntries(row), ...state });
    found.step_answers.push(Array.from(out.answers.data));
    state = Object.fromEntries(step.state.map((p) => [p.name, out[p.next]]));
  }
}
console.log(JSON.stringify(found));

#!/usr/bin/env bash
# The studies of speed on one GPU, within six minutes: cuda.json and cuda.md (lengths, throughput, floor),
# models-cuda.json (a training step of every model), scaling-cuda.json (solvers and others against length).
# Usage: scripts/gpu/speed.sh OUT [lengths|models|scaling] [--quick] [--limit SECONDS] [--deadline SECONDS]
# With a name it makes that study alone. Nothing new is begun after 150, 110 and 70 s, each from its own start
# (--quick: 25, 60 and 20 s). node, r-ode and o-ode need torchdiffeq.
# Then, with the records in results/speed/ and where matplotlib is: python -m lformer.bench.speed.page fills docs/speed.md
# and draws its pictures, python -m lformer.bench.readme fills the README.
set -uo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
out=$1
shift
case "${1:-}" in
  lengths | models | scaling) studies=$1 && shift ;;
  *) studies="lengths models scaling" ;;
esac
failed=0
for study in $studies; do # one that fails leaves the others their turn
  case $study in
    lengths) which=() ;;
    models) which=(--models all) ;;
    scaling) which=(--models scaling) ;;
  esac
  python3 -m lformer.bench.speed --device cuda --out "$out" "${which[@]}" "$@" || failed=1
done
exit $failed

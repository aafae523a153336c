#!/usr/bin/env bash
# The complete data sets on one GPU, the spirals beside them on the CPU cores: one JSON record per cell.
# Usage: LFORMER_DATA=folder scripts/gpu/bench.sh OUT [seconds per cell]
# Cells that have a record are skipped, so call it again until none is left.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1 limit=${2:-3600}
bench() { python3 -c "from lformer.cli import app; app()" bench run --out "$out" --time-limit "$limit" "$@"; }
export OMP_NUM_THREADS=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

CUDA_VISIBLE_DEVICES='' bench --dataset spiral-2,spiral-0.2,spiral-0.02 --seeds 42-46 --device cpu --workers 8 &
bench --dataset physionet,ushcn --task reconstruct,extrapolate --seeds 42 --workers 3 &
{
  bench --dataset physionet,ushcn --task extrapolate --variant best --seeds 42-46 --workers 5
  bench --dataset physionet,ushcn --task extrapolate,interpolate --variant persistence --seeds 42-46 --workers 5
  for split in folds p12; do
    bench --dataset physionet --task classify --split $split --scaling robust --variant best --seeds 42-46 --workers 5
  done
} &
bench --dataset bidmc-hr,bidmc-rr,bidmc-spo2 --seeds 42 --workers 3 &
{
  bench --dataset pendulum,activity --seeds 42 --workers 2
  bench --dataset scp1,scp2,motor-imagery --seeds 42-46 --workers 4
} &
wait

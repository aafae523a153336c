#!/usr/bin/env bash
# The compared systems on four cells, seed 42, side by side on one GPU: one JSON record per cell.
# Usage: LFORMER_DATA=folder scripts/gpu/baselines.sh OUT [seconds per cell] [seconds in all]
# Cells that have a record are skipped and interrupted ones go on, so call it again until none is left. Start MPS first:
# the steps of most models are small. What takes longest comes first; models that torchdiffeq solves are faster on a CPU.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1 limit=${2:-3600} all=${3:-86400}
export OMP_NUM_THREADS=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
bench() {
  timeout --signal TERM "$all" python3 -c "from lformer.cli import app; app()" bench run --out "$out" --time-limit "$limit" --seeds 42 "$@"
}

light=s5,s6,lru,gru-dt,rformer,transformer,gru
ode=o-ode,r-ode,node
CUDA_VISIBLE_DEVICES='' bench --device cpu --workers 3 --dataset physionet --task extrapolate --model "$ode" &
CUDA_VISIBLE_DEVICES='' bench --device cpu --workers 3 --dataset spiral-0.02 --model "$ode" &
bench --workers 5 --dataset spiral-0.02 \
  --model "contiformer,cru,gru-ode-b,mtand,lsde,ncde,logncde,nrde,acssm,rkn-dt,gru-d,cfc,linoss,mamba,$light" &
bench --workers 9 --dataset physionet --task extrapolate \
  --model "cru,contiformer,gru-ode-b,rkn-dt,ncde,gru-d,logncde,cfc,lsde,nrde,mamba,mtand,acssm,linoss,$light" &
bench --workers 2 --dataset scp1 --model "rkn-dt,gru-d,cfc,mamba,mtand,$light" &
bench --workers 2 --dataset physionet --task classify --model "rkn-dt,gru-d,cfc,mamba,mtand,lformer,$light" &
wait

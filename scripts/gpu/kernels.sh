#!/bin/sh
# Fused layers and the settings of all fused kernels on one GPU, within two and a half minutes on 16 cores:
# scripts/gpu/kernels.sh OUT. Errors while variants are compiled; then, alone on the GPU, times, profile, and the search.
# Tables come into OUT as they are made.
set -u
out=$1
here=$(dirname "$0")
mkdir -p "$out"
export PYTHONPATH="$here/../..:${PYTHONPATH:-}" OMP_NUM_THREADS=1
works="layers training inference"
python3 "$here/tune.py" "$out" --stage compile --only $works "layers, causal" "training, causal" --seconds 55 \
    --workers 8 >"$out/compile.txt" 2>&1 &
timeout 75 python3 "$here/layers.py" --only errors --quick --workers 7 >"$out/errors.txt" 2>&1
wait
timeout 40 python3 "$here/layers.py" --only profile times --quick >"$out/times.txt" 2>&1
timeout 60 python3 "$here/tune.py" "$out" --stage time --only $works "layers, causal" "training, causal" --seconds 35 \
    >"$out/search.txt" 2>&1
tail -n 20 "$out"/errors.txt "$out"/times.txt "$out"/search.txt

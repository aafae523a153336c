#!/usr/bin/env bash
# The three studies of speed on one GPU: cuda.json and cuda.md. Nothing new is begun after 210 s (--quick: 25 s).
# Usage: scripts/gpu/speed.sh OUT [--quick]
# Then, where matplotlib is: python -m lformer.bench.speed.readme OUT/cuda.json fills the README and draws its picture.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m lformer.bench.speed --device cuda --out "$@"

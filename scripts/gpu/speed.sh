#!/usr/bin/env bash
# The three studies of speed on one GPU: cuda.json and cuda.md. Nothing new is begun after 210 s (--quick: 25 s).
# Usage: scripts/gpu/speed.sh OUT [--quick]
# Then copy cuda.json to results/speed/ and, where matplotlib is, call python -m lformer.bench.speed.page, then lformer.bench.readme:
# they fill docs/speed.md with its pictures, and README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m lformer.bench.speed --device cuda --out "$@"

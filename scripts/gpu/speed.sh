#!/usr/bin/env bash
# The three studies of speed on one GPU: cuda.json and cuda.md. Nothing new is begun after 210 s (--quick: 25 s).
# Usage: scripts/gpu/speed.sh OUT [--quick]
# Then, with cuda.json in results/speed/ and where matplotlib is: python -m lformer.bench.speed.page fills docs/speed.md and
# draws its pictures, python -m lformer.bench.readme fills the README.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m lformer.bench.speed --device cuda --out "$@"

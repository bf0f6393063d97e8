#!/usr/bin/env bash
# Makes .venv-peers, an environment with the libraries that embershard is compared with.
# Does nothing if it is up to date.
#
# PYTHON       the Python to use (default: python3)
# TORCH_INDEX  package index for torch, such as PyTorch's CPU-only index (default: pip's)
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-peers
# The versions that embershard uses, so that both sides run the same kernels.
pinned() { grep -E "^$1==" constraints.txt; }

key=$(sha256sum constraints.txt scripts/bench_peers.sh | sha256sum | cut -d' ' -f1)
[ "$(cat $venv/stamp 2>/dev/null)" != "$key" ] || exit 0

echo "bench-peers: $venv" >&2
"${PYTHON:-python3}" -m venv --clear $venv
grep -Ev "^(numpy|torchmetrics)==" constraints.txt > $venv/constraints.txt  # Peers need other versions.
pip=($venv/bin/pip install --quiet --disable-pip-version-check -c $venv/constraints.txt)
"${pip[@]}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(pinned torch)"
# Triton's Python backend does not support numpy 2.
"${pip[@]}" "$(pinned fbgemm-gpu-cpu)" numpy==1.26.4 "$(pinned grpcio)"
# torchrec requires FBGEMM's CUDA distribution, so it is installed without its requirements. The
# other packages that it imports follow.
"${pip[@]}" --no-deps torchrec==1.8.0
"${pip[@]}" iopath psutil pyre-extensions tensordict torchmetrics==1.0.3 tqdm
$venv/bin/python -W ignore -c 'import torchrec, torchrec.inference.modules'
echo "$key" > $venv/stamp

#!/usr/bin/env bash
# Makes .venv-peers: what embershard is measured against, in an environment of its own.
# Does nothing when it has nothing to do.
#
# PYTHON       the Python to build on; python3 unless set
# TORCH_INDEX  where pip finds torch, such as PyTorch's CPU-only index; pip's own unless set
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-peers
# torch and FBGEMM as embershard runs them, so that both sides stand on the same kernels.
pinned() { grep -E "^$1==" constraints.txt; }

key=$(sha256sum constraints.txt scripts/bench_peers.sh | sha256sum | cut -d' ' -f1)
[ "$(cat $venv/stamp 2>/dev/null)" != "$key" ] || exit 0

echo "bench-peers: $venv" >&2
"${PYTHON:-python3}" -m venv --clear $venv
grep -Ev "^(numpy|torchmetrics)==" constraints.txt > $venv/constraints.txt  # Others for peers.
pip=($venv/bin/pip install --quiet --disable-pip-version-check -c $venv/constraints.txt)
"${pip[@]}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(pinned torch)"
# numpy: Triton's backend for Python knows none from 2.0 on.
"${pip[@]}" "$(pinned fbgemm-gpu-cpu)" numpy==1.26.4 "$(pinned grpcio)"
# torchrec names FBGEMM's CUDA distribution among its requirements: so without them, then those
# that it imports.
"${pip[@]}" --no-deps torchrec==1.8.0
"${pip[@]}" iopath psutil pyre-extensions tensordict torchmetrics==1.0.3 tqdm
$venv/bin/python -W ignore -c 'import torchrec, torchrec.inference.modules'
echo "$key" > $venv/stamp

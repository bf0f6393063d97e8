#!/usr/bin/env bash
# What runs embershard and builds nothing: what the images of docker/ hold. After scripts/install.sh.
#
#   scripts/runtime.sh packages KIND        Debian's packages that it needs to run
#   scripts/runtime.sh wheel                a wheel of embershard, in build/wheel
#   scripts/runtime.sh build KIND FOLDER    a virtual environment with that wheel
#
# KIND         serving; training, which also exports; triton, with a tritonserver
# PYTHON       the Python to build on; python3 unless set
# TORCH_INDEX  where pip finds torch, such as PyTorch's CPU-only index; pip's own unless set
# CUDA         1: with FBGEMM for GPUs, which serving needs there
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian 12's names. Those that the extension links to, and what embershard fetch needs for https.
serving_packages=(ca-certificates libgrpc++1.51 libprotobuf32 libssl3 libxxhash0 python3)
training_packages=("${serving_packages[@]}")
triton_packages=("${serving_packages[@]}")

say() { printf 'runtime: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# The extras of pyproject.toml that a kind has.
extras_of() {
  local fbgemm=cpu serving=fetch,sign
  if [ "${CUDA:-0}" = 1 ]; then
    fbgemm=cuda
    serving+=,cuda
  fi
  case $1 in
    serving | triton) echo $serving ;;
    training) echo $fbgemm,fetch,sign ;;
    *) fail "unknown kind '$1'; known: serving, training, triton" ;;
  esac
}

packages() {
  extras_of "$1" >/dev/null
  local -n names=$1_packages
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}"
}

# Writes build/wheel/embershard-*.whl for the Python and the torch of .venv. It compiles in a build
# folder of its own.
build_wheel() {
  [ -x .venv/bin/pip ] || fail "there is no .venv; scripts/install.sh makes it"
  say "a wheel of embershard: minutes the first time"
  rm -rf build/wheel
  CCACHE_BASEDIR=$PWD CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
    .venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --config-settings=build-dir=build/runtime --wheel-dir build/wheel .
}

build() {
  local extras wheel pip
  extras=$(extras_of "$1")
  build_wheel
  wheel=$(echo build/wheel/embershard-*.whl)
  say "$2: Python packages, torch among them"
  "${PYTHON:-python3}" -m venv --without-pip --clear "$2"
  pip=(.venv/bin/pip --python "$2/bin/python" install --quiet --disable-pip-version-check
    -c constraints.txt)
  "${pip[@]}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
  "${pip[@]}" "$wheel[$extras]"
  [ "$1" != triton ] || add_triton "$2"
}

# add_triton FOLDER: a tritonserver, of whose requirements none is needed to run it, and where the
# backend lies.
add_triton() {
  local site wheel
  wheel=$(grep -oP '^triton_wheel=\K\S+' scripts/install.sh)
  .venv/bin/pip --python "$1/bin/python" install --quiet --disable-pip-version-check \
    --no-deps "$wheel"
  site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  ln -sfr "$site/pytriton/tritonserver/bin/tritonserver" "$1/bin/tritonserver"
  ln -sfr "$site/embershard/serving/triton/backends" "$1/backends"
}

case "${1:-}:$#" in
  packages:2) packages "$2" ;;
  wheel:1) build_wheel ;;
  build:3) build "$2" "$3" ;;
  *) fail "usage: $0 packages KIND | wheel | build KIND FOLDER" ;;
esac

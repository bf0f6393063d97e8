#!/usr/bin/env bash
# Makes the parts of the images in docker/, which run embershard without a compiler. Run
# scripts/install.sh first.
#
#   scripts/runtime.sh packages KIND        installs the Debian packages that it needs to run
#   scripts/runtime.sh wheel                builds a wheel of embershard in build/wheel
#   scripts/runtime.sh build KIND FOLDER    makes a virtual environment with that wheel
#
# KIND         serving; training, which also exports; triton, with a tritonserver
# PYTHON       the Python to use (default: python3)
# TORCH_INDEX  package index for torch, such as PyTorch's CPU-only index (default: pip's)
# CUDA         1: with FBGEMM for GPUs, which serving on GPUs needs
set -euo pipefail
cd "$(dirname "$0")/.."

# Names of Debian 12: libraries of the extension, and certificates for embershard fetch over https.
serving_packages=(ca-certificates libgrpc++1.51 libprotobuf32 libssl3 libxxhash0 python3)
training_packages=("${serving_packages[@]}")
triton_packages=("${serving_packages[@]}")

say() { printf 'runtime: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# extras_of KIND: prints the extras of pyproject.toml to install.
extras_of() {
  local fbgemm=cpu serving=fetch,sign
  if [ "${CUDA:-0}" = 1 ]; then
    fbgemm=cuda
    serving+=,cuda
  fi
  case $1 in
    serving | triton) echo $serving ;;
    training) echo $fbgemm,fetch,sign ;;
    *) fail "expected serving, training or triton, got '$1'" ;;
  esac
}

packages() {
  extras_of "$1" >/dev/null
  local -n names=$1_packages
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${names[@]}"
}

# Writes build/wheel/embershard-*.whl for the Python and the torch of .venv. It has its own build
# folder.
build_wheel() {
  [ -x .venv/bin/pip ] || fail "expected .venv, got none; run scripts/install.sh"
  say "building a wheel of embershard; takes minutes the first time"
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
  say "$2: Python packages, including torch"
  "${PYTHON:-python3}" -m venv --without-pip --clear "$2"
  pip=(.venv/bin/pip --python "$2/bin/python" install --quiet --disable-pip-version-check
    -c constraints.txt)
  "${pip[@]}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
  "${pip[@]}" "$wheel[$extras]"
  [ "$1" != triton ] || add_triton "$2"
}

# add_triton FOLDER: adds tritonserver without its wheel's requirements, and a link to the backend.
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

#!/usr/bin/env bash
# Makes .venv able to run embershard, in stages; each does nothing when it has nothing to do.
#
#   scripts/install.sh python     Python's packages and the generated messages: enough for lint
#   scripts/install.sh            that, Debian's packages for C++, and the extension
#
# PYTHON       the Python to build on; python3 unless set
# TORCH_INDEX  where pip finds torch, such as PyTorch's CPU-only index; pip's own unless set
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=.venv
stamps=$venv/stamps
cpp_packages=(cmake g++ libgrpc++-dev libgtest-dev libprotobuf-dev libssl-dev libxxhash-dev
  make ninja-build nlohmann-json3-dev pkg-config protobuf-compiler protobuf-compiler-grpc)

say() { printf 'install: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# done_before STAGE HASH: whether the stage ran last for the same inputs.
done_before() { [ "$(cat "$stamps/$1" 2>/dev/null)" = "$2" ]; }
done_now() { mkdir -p "$stamps" && printf '%s\n' "$2" > "$stamps/$1"; }
hash_of() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# as_root COMMAND...: runs it, or fails where this user may not.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# debian_packages NAME...: installs those that are missing, or says which they are and stops.
debian_packages() {
  local name missing=()
  command -v dpkg-query >/dev/null || fail "this is not Debian or Ubuntu; needed here: $*"
  for name in "$@"; do
    installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} = 0 ] && return
  if as_root true 2>/dev/null; then
    say "Debian packages: ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    fail "missing Debian packages, and no right to install them. Run this, then try again:
  sudo apt-get install ${missing[*]}"
  fi
}

python_stage() {
  command -v "$python" >/dev/null || debian_packages python3
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "needs Python 3.11 or later, got $("$python" --version); set PYTHON to another"
  [ -x $venv/bin/pip ] || "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    debian_packages python3-venv

  local key
  key=$(hash_of constraints.txt pyproject.toml "$0")-$("$python" --version | tr -d ' ')
  if ! done_before python "$key"; then
    "$python" -m venv $venv
    say "Python packages (torch first; the longest part)"
    local pip=($venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt)
    "${pip[@]}" ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
    local requirements=$venv/requirements.txt
    $venv/bin/python - > "$requirements" <<'PYTHON'
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
print(*project["dependencies"], *extras["cpu"], *extras["dev"], sep="\n")
PYTHON
    "${pip[@]}" -r "$requirements"
    done_now python "$key"
  fi

  key=$(hash_of proto/embershard/v1/predictor.proto scripts/generate_proto.py constraints.txt)
  if ! done_before proto "$key" || [ ! -e embershard/_proto/predictor_pb2.py ]; then
    say "protocol messages"
    $venv/bin/python scripts/generate_proto.py
    done_now proto "$key"
  fi
}

extension_stage() {
  local sources key headers
  headers=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  local packages=("${cpp_packages[@]}")
  [ -e "$headers/Python.h" ] || packages+=(python3-dev)
  # Not needed, only faster: worth installing, not worth stopping for.
  if ! installed ccache && as_root true 2>/dev/null; then packages+=(ccache); fi
  debian_packages "${packages[@]}"

  mapfile -t sources < <(find serving/predictor proto CMakeLists.txt -type f | sort)
  key=$(hash_of "${sources[@]}" pyproject.toml constraints.txt)
  if ! done_before extension "$key"; then
    say "the extension"
    CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) $venv/bin/pip install --quiet --disable-pip-version-check \
      --no-deps --no-build-isolation --config-settings=cmake.define.EMBERSHARD_TESTS=ON -e .
    done_now extension "$key"
  fi
}

case ${1:-all} in
  python) python_stage ;;
  all) python_stage; extension_stage ;;
  *) fail "unknown stage '$1'; known: python, all" ;;
esac

#!/bin/sh
# Makes .venv as requirements-dev.lock says. The stamp it is given is written last: an interrupted run is done again.
set -eu
stamp=$1
busy=.venv/.installing

refuse() {
  echo "make: $1" >&2
  exit 1
}

# pyenv and macOS put programs by these names on the PATH that only explain why they do nothing: run it to know.
suits() {
  "$1" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

find_python() {
  for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if suits "$candidate"; then
      echo "$candidate"
      return
    fi
  done
}

make_venv() {
  python=$(find_python)
  if [ -z "$python" ]; then
    found=$(python3 --version 2>/dev/null || echo 'no Python')
    refuse "this needs Python 3.11 to 3.14 on the PATH, and found $found"
  fi
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    refuse "$("$python" --version) comes without its venv module here: install it (on Debian and Ubuntu: python3-venv)"
  echo "Making .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv
}

if [ -e "$busy" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  make_venv
fi
touch "$busy"
echo "Installing what requirements-dev.lock names into .venv (once)"
pip=".venv/bin/python -m pip --disable-pip-version-check --quiet"
$pip install --require-hashes -r requirements-dev.lock || refuse "pip could not install the packages; its message is above"
$pip install --no-build-isolation --no-deps -e . || refuse "pip could not install this project; its message is above"
rm -f .venv/.installed-*
touch "$stamp"
rm -f "$busy"

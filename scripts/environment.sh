# shellcheck shell=bash
# Sourced by the scripts beside it: where the project, its Python environment and its caches are.
#   HEADRACE_ROOT    this checkout
#   HEADRACE_CACHE   downloads that outlive a checkout; default: ~/.cache/headrace
#   HEADRACE_VENV    the Python environment; default: HEADRACE_CACHE/venv
#   HEADRACE_PYTHON  its python, which CMake and the engine look for
# What the caller has set already is kept.

HEADRACE_ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
if [ -z "${HOME:-}" ]; then
    HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
fi
HEADRACE_CACHE=${HEADRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headrace}
HEADRACE_VENV=${HEADRACE_VENV:-$HEADRACE_CACHE/venv}
HEADRACE_PYTHON=${HEADRACE_PYTHON:-$HEADRACE_VENV/bin/python}
export HOME HEADRACE_ROOT HEADRACE_CACHE HEADRACE_VENV HEADRACE_PYTHON

# say WORDS...: what is about to happen, for people.
say() { printf '%s\n' "== $*" >&2; }

# stop CODE WORDS...: why nothing more happens.
stop() {
    local code=$1
    shift
    printf '%s\n' "$(basename "$0"): $*" >&2
    exit "$code"
}

#!/usr/bin/env bash
# Run the tests that are not slow, and print how many lines of each package they run. `--lines` counts lines with every
# version of Python; otherwise they are counted from Python 3.12 on, where counting takes little time. Other arguments go
# to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."

export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
bin=${BIN:-.venv/bin}
tests=(-m pytest -n "${WORKERS:-2}" -m "not slow")

if "$bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
    export COVERAGE_CORE=sysmon
elif [ "${1:-}" != --lines ]; then
    "$bin/python" "${tests[@]}" "$@"
    status=$?
    echo "Lines were not counted: before Python 3.12 this would take a third more time. \`make coverage\` counts them."
    exit $status
fi

[ "${1:-}" = --lines ] && shift
mkdir -p out
"$bin/coverage" erase
"$bin/coverage" run "${tests[@]}" "$@"
status=$?
"$bin/coverage" combine -q && "$bin/coverage" json -q -o out/coverage.json && "$bin/python" tools/coverage_by_package.py
exit $status

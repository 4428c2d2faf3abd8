#!/usr/bin/env bash
# Run the tests of compiled code with the lowest numba version that pyproject.toml allows, and its dependencies.
# All other test runs use the version in constraints.txt. Both are compared with plain Python.
set -euo pipefail
cd "$(dirname "$0")/.."

eval "$(.venv/bin/python tools/pip_settings.py)"
lowest=$(sed -n 's/^ *"numba>=\([0-9.]*\),.*/\1/p' pyproject.toml)
folder=build/numba-$lowest
.venv/bin/uv pip install --quiet --python .venv/bin/python --target "$folder" "numba==$lowest.*"
export PYTHONPATH=$PWD/$folder OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
.venv/bin/python -c 'import numba, numpy; print(f"numba {numba.__version__}, numpy {numpy.__version__}")'
.venv/bin/python -m pytest -n "${WORKERS:-2}" -m "not slow" "$@" tests/compile

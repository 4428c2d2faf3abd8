#!/usr/bin/env bash
# Run the tests with the lowest version of every dependency that pyproject.toml allows, in build/lowest.
# All other test runs use the versions in constraints.txt. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

place=build/lowest
tools="axe-core-python daqp hatchling httpx hypothesis optuna pandas polars psutil pyscipopt pytest pytest-xdist
       scikit-learn selenium"
tests="tests/cli tests/compile tests/evaluation tests/faults tests/live tests/model tests/procedure tests/reports
       tests/service tests/simulation tests/theory tests/verdicts tests/test_public.py tests/test_study.py"

eval "$(.venv/bin/python tools/pip_settings.py)"
rm -rf "$place"
.venv/bin/python -m venv "$place"
install() { .venv/bin/uv pip install --quiet --python "$place/bin/python" "$@"; }
install --resolution lowest-direct --editable '.[report,live,postgres,service,dask,convex,warehouse,eval]'
# the test tools, which must not change what was installed
.venv/bin/uv pip freeze --python "$place/bin/python" --exclude-editable > "$place/lowest.txt"
install --constraint "$place/lowest.txt" $tools
cat "$place/lowest.txt"
# old packages warn of later versions of Python; that is not evenhand's fault
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "$place/bin/python" -m pytest -n "${WORKERS:-2}" -m "not slow" \
    -o filterwarnings=ignore --ignore tests/service/test_schema.py ${*:-$tests}

#!/usr/bin/env bash
# Create .venv and install evenhand into it, editable, with every extra, pinned by constraints.txt.
# `setup.sh pins` updates the pins instead.
set -euo pipefail
cd "$(dirname "$0")/.."

main() {
    [ -x .venv/bin/python ] || "$(find_python)" -m venv .venv
    .venv/bin/python -m pip install --quiet --constraint constraints.txt uv
    eval "$(.venv/bin/python tools/pip_settings.py)"
    if [ "${1:-}" = pins ]; then
        resolve_pins
    else
        echo "installing evenhand and what it needs into .venv"
        install || install_by_pip
    fi
}

find_python() {
    local python
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    echo "evenhand needs Python 3.11 or newer; none was found. Install one and run make again." >&2
    return 1
}

install() {
    .venv/bin/uv pip install --quiet --python .venv/bin/python --editable '.[all]' --constraint constraints.txt
}

install_by_pip() {
    echo "uv could not install everything; trying pip" >&2
    .venv/bin/python -m pip install --quiet --editable '.[all]' --constraint constraints.txt
}

resolve_pins() {
    echo uv | .venv/bin/uv pip compile pyproject.toml - --extra all --universal --python-version 3.11 --upgrade \
        --quiet --no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file constraints.txt
}

main "$@"

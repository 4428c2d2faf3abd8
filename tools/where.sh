#!/usr/bin/env bash
# Where an equation of the paper lives: its function, and its line in the equation index.
set -euo pipefail
cd "$(dirname "$0")/.."

label=${1:?"say which equation: make where eq=f_mu_opt"}
# In Python only a tag counts (`eq:f_mu_opt`); the bare name may also be a variable.
grep -rnE --include='*.py' "\b[a-z]+:${label##*:}\b" src ||
    { echo "no function carries the tag ${label}" >&2 && exit 1; }
grep -nwF -e "$label" docs/equations.md

#!/usr/bin/env bash
# Where an equation of the paper lives: its function, and its line in the equation index.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "$1" >&2
    exit 1
}

label=${1##*:}
[ -n "$label" ] || refuse "say which equation: make where eq=f_mu_opt"
# In Python only a tag counts (eq:f_mu_opt); the bare name may also be a variable.
grep -rnwE --include='*.py' "[a-z]+:$label" src || refuse "no function carries the tag $label"
grep -nHswF -e "$label" docs/equations.md || refuse "docs/equations.md does not list $label"

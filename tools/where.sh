#!/usr/bin/env bash
# Print where a label of the paper is used: the functions or experiments that name it, and its rows in the index.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "$1" >&2
    exit 1
}

label=${1##*:}
label=${label# }  # some labels of the paper have a space after their colon
[ -n "$label" ] || refuse "name an equation: make where eq=f_mu_opt"
# In Python only a tag counts (eq:f_mu_opt); the bare name may also be a variable. Proofs and sections have none.
grep -rnwE --include='*.py' "[a-z]+: ?$label" src paper || true
grep -nHE "^\| \`[a-z]+: ?$label\`" docs/equations.md || refuse "docs/equations.md does not list $label"

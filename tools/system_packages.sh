#!/usr/bin/env bash
# As root on Debian, install what pip cannot install: a browser, a database and two proxies for the tests. On other systems, and
# if the installation fails, exit with 0: the tests that need them are skipped with a reason (and fail if CI=true).
set -euo pipefail

missing=()
command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing+=(postgresql)
command -v nginx >/dev/null || missing+=(nginx-light)
command -v caddy >/dev/null || missing+=(caddy)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)

if [ "${#missing[@]}" -eq 0 ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    exit 0
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    echo "could not install ${missing[*]}; the tests that need them will be skipped" >&2

#!/usr/bin/env bash
# The documentation as a site that needs no network to be read. A warning (a broken link, a page
# that is in no table of contents) is an error.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need_python 3.11

venv="$target/docs-venv"
if ! cmp -s docs/requirements.txt "$venv/requirements.txt"; then
    say "installing the site generator into $venv"
    rm -rf "$venv"
    "$python" -m venv "$venv" ||
        die "Python's venv module is missing" "hint: install python3-venv with your package manager"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement docs/requirements.txt ||
        die "the site generator could not be installed" "hint: is the network there? pip's own message is above"
    cp docs/requirements.txt "$venv/requirements.txt"
fi

say "building the site"
# From nothing each time, in seconds: what a page of the last build still says is not kept.
rm -rf "$target/docs"
"$venv/bin/python" -m sphinx --builder html --fresh-env --fail-on-warning --quiet \
    --doctree-dir "$target/docs-doctrees" docs "$target/docs"
say "open $target/docs/index.html"

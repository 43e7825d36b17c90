# shellcheck shell=bash
# Sourced by other scripts: creates .venv and installs a lock file into it, once.
#
# environment NAME   installs requirements/NAME.txt, and memlite itself from this checkout.

environment() {
    local lock="requirements/$1.txt" python="${PYTHON:-python3}"
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "memlite needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1 || true)." >&2
        echo "Set PYTHON to another one, such as PYTHON=python3.12." >&2
        exit 1
    fi
    if installed "$1"; then
        return
    fi
    # Scripts that are started at the same time must not install into one another's environment.
    exec 9>".venv.lock"
    if command -v flock >/dev/null; then
        flock 9
        if installed "$1"; then
            exec 9>&-
            return
        fi
    fi
    echo "Installing into .venv (once) ..." >&2
    if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        rm -rf .venv
    fi
    if ! "$python" -m venv .venv; then
        echo "This Python cannot create virtual environments; on Debian: apt install python3-venv" >&2
        exit 1
    fi
    rm -f .venv/."$1"-*
    # Everything is pinned and hashed, including the build tools, so that nothing newer is installed.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
        --requirement "$lock"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --editable .
    touch "$(stamp "$1")"
    exec 9>&-
}

# installed NAME: whether .venv has what requirements/NAME.txt lists. The lock file of the tests
# contains all others: while tests run, nothing may be installed into the environment that they use.
installed() {
    { [ -e "$(stamp "$1")" ] || [ -e "$(stamp test)" ]; } && .venv/bin/python -c '' 2>/dev/null
}

# stamp NAME: print the path of the file that marks an installation. Its name covers the inputs of the
# installation; while they are unchanged there is nothing to do.
stamp() {
    echo ".venv/.$1-$(cat "requirements/$1.txt" pyproject.toml | cksum | tr -d ' ')"
}

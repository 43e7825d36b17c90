# shellcheck shell=bash
# Sourced by other scripts: creates .venv and installs a lock file into it, once.
#
# environment NAME   installs requirements/NAME.txt, and memlite itself from this checkout.
#
# If the shell variable MEMLITE_UV names uv, uv replaces venv and pip, and takes a tenth of the time. It
# does not read pip's configuration; if uv fails, pip is used instead.

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
    # Scripts started at the same time must not install into .venv concurrently.
    exec 9>".venv.lock"
    if command -v flock >/dev/null; then
        flock 9
        if installed "$1"; then
            exec 9>&-
            return
        fi
    fi
    echo "Installing into .venv (once) ..." >&2
    # An environment without pip is left over from a failed or interrupted creation.
    if ! .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        rm -rf .venv
        if ! virtual_environment .venv; then
            echo "This Python cannot create virtual environments; on Debian: apt install python3-venv" >&2
            exit 1
        fi
    fi
    rm -f .venv/."$1"-*
    # Everything is pinned and hashed, including the build tools, so that nothing newer is installed.
    install_locked .venv "$lock"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --editable .
    touch "$(stamp "$1")"
    exec 9>&-
}

# virtual_environment FOLDER: create one, with pip.
virtual_environment() {
    if [ -z "${MEMLITE_UV:-}" ] ||
        ! "$MEMLITE_UV" venv --quiet --seed --python "${PYTHON:-python3}" "$1"; then
        "${PYTHON:-python3}" -m venv "$1"
    fi
}

# install_locked FOLDER FILE: install the packages of a lock file into a virtual environment.
install_locked() {
    if [ -z "${MEMLITE_UV:-}" ] ||
        ! "$MEMLITE_UV" pip install --quiet --python "$1/bin/python" --require-hashes --requirement "$2"; then
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
            --requirement "$2"
    fi
}

# installed NAME: whether .venv contains the packages in requirements/NAME.txt. The lock file of the tests
# contains all others: while tests run, nothing may be installed into their environment.
installed() {
    { [ -e "$(stamp "$1")" ] || [ -e "$(stamp test)" ]; } && .venv/bin/python -c '' 2>/dev/null
}

# stamp NAME: print the path of the file that marks an installation. Its name covers the inputs of the
# installation, including the sources that are compiled; while they are unchanged there is nothing to do.
stamp() {
    local sum
    sum="$({
        cat "requirements/$1.txt" pyproject.toml
        find memlite -name '*.[ch]' -type f 2>/dev/null | LC_ALL=C sort | xargs -r cat || true
    } | cksum)"
    echo ".venv/.$1-${sum// /}"
}

# shellcheck shell=bash
# Sourced by scripts/serve, after environment.sh: builds the compiled modules, once.
#
# compiled_build   unpacks the compiled wheel of this checkout into the folder that compiled_folder
#                  names, unless the same sources have been built by the same Python before. The
#                  checkout itself stays pure Python.

compiled_build() {
    local include work
    include="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')"
    if ! command -v "${CC:-cc}" >/dev/null || [ ! -e "$include/Python.h" ]; then
        echo "--compiled needs a C compiler and Python's headers; on Debian: apt install gcc python3-dev" >&2
        exit 1
    fi
    compiled_folder=".venv/compiled-$(compiled_sources | cksum | tr -d ' ')"
    if [ -e "$compiled_folder" ]; then
        return
    fi
    exec 9>".venv.lock" # as in environment.sh: scripts started at the same time build only once
    if command -v flock >/dev/null; then
        flock 9
    fi
    if [ ! -e "$compiled_folder" ]; then
        echo "Compiling (once, until the sources change; a few minutes) ..." >&2
        # Earlier builds remain: a running server may still import some of its modules.
        rm -rf .venv/compiling-* # left over from interrupted builds
        work="$(mktemp -d .venv/compiling-XXXXXX)"
        if ! build_in "$work" >&2; then
            rm -rf "$work"
            echo "The compiled build failed; without --compiled, memlite runs in pure Python." >&2
            exit 1
        fi
        mv "$work/unpacked" "$compiled_folder"
        rm -rf "$work"
    fi
    exec 9>&-
}

# build_in FOLDER: build a copy of the checkout, and unpack the wheel into FOLDER/unpacked. A build
# temporarily places the modules next to the sources, so the checkout itself is not used.
build_in() {
    cp -r memlite share pyproject.toml hatch_build.py README.md LICENSE "$1" &&
        find "$1" -name '*.so' -delete &&
        (
            cd "$1" &&
                MEMLITE_COMPILED=1 ../bin/python -m pip wheel --quiet --disable-pip-version-check \
                    --no-deps --wheel-dir wheel . &&
                ../bin/python -m zipfile --extract wheel/*.whl unpacked
        )
}

# compiled_sources: print the files on which the compiled modules depend.
compiled_sources() {
    .venv/bin/python -VV
    find memlite -name '*.py' -o -name '*.c' | LC_ALL=C sort | xargs cksum
    cksum pyproject.toml hatch_build.py
}

# shellcheck shell=bash
# Sourced by the scripts that run tests. Defines run_tests, which runs a selection with pytest, and
# build_compiled, which builds the wheel that some of them test.

# run_tests PYTHON SPEED ARGUMENT...
#
# Run tests in parallel, and afterwards, one at a time, the tests marked "alone", which measure time or
# processor load. Return 0 if no test failed, and pytest's exit code otherwise.
#
#   PYTHON      the interpreter
#   SPEED       "fast" for tests not marked "slow", "slow" for tests marked "slow", or "all"
#   ARGUMENT    paths or options for pytest
#
# MEMLITE_TEST_WORKERS is the number of parallel workers; the default is two for each core, and three
# if slow tests are among them. If MEMLITE_TEST_TALLY names a file, each run of pytest appends how many
# tests passed, failed and were skipped. If MEMLITE_TEST_LOCK names a file, runs with the same one may
# overlap: tests marked "alone" wait until no other run is using the machine.
#
# If MEMLITE_TEST_RETRIES is N > 0, tests that failed run again, one at a time, unless there are more
# than N of them. Tests that pass the second time count as passed; their names are written to
# FILE.retried, which print_tally also prints.
run_tests() {
    local python="$1" marks files=() workers=3 code=0 again=0
    case "$2" in
        fast)
            marks="not slow"
            workers=2
            ;;
        slow)
            marks="slow"
            files=(--marked slow)
            ;;
        *) marks="slow or not slow" ;;
    esac
    shift 2
    # All workers must collect the tests in the same order, so they share a hash seed. Bytecode is
    # cached, because the tests start hundreds of servers and each would compile memlite's sources.
    local -x PYTHONHASHSEED="${PYTHONHASHSEED:-0}"
    unset PYTHONDONTWRITEBYTECODE

    printf '\n-- in parallel\n'
    locked --shared run_pytest -m "($marks) and not alone" "${files[@]}" --dist worksteal \
        --numprocesses "${MEMLITE_TEST_WORKERS:-$(($(nproc) * workers))}" "$@" || code=$?
    [ "$code" != 2 ] || return 2 # interrupted
    printf '\n-- one at a time\n'
    locked --exclusive run_pytest -m "($marks) and alone" --marked alone "$@" || again=$?
    # 5: no test was selected.
    [ "$again" != 5 ] || return "$code"
    [ "$code" = 0 ] || [ "$code" = 5 ] || return "$code"
    return "$again"
}

# locked --shared|--exclusive COMMAND...: run a command while holding the lock MEMLITE_TEST_LOCK, if it
# names one. Leftover servers inherit the descriptor, but do not keep the lock, which is released explicitly.
locked() {
    local code=0
    if [ -z "${MEMLITE_TEST_LOCK:-}" ]; then
        "${@:2}"
        return
    fi
    exec 8<"$MEMLITE_TEST_LOCK"
    flock "$1" 8
    "${@:2}" || code=$?
    flock --unlock 8
    exec 8<&-
    return "$code"
}

# run_pytest ARGUMENT...: run pytest, and rerun failed tests, as described above. Among twelve thousand
# tests that share two cores with real servers, browsers and compilers, a correct test may fail now and
# then.
run_pytest() {
    local cache failed code=0 again=0
    cache="$(mktemp -d)"
    "$python" -m pytest -o cache_dir="$cache" "$@" || code=$?
    if [ "$code" = 1 ]; then # tests failed
        failed="$(sed -n 's/^ *"\(.*\)": true,\{0,1\}$/\1/p' "$cache/v/cache/lastfailed")"
        if [ "$(wc -l <<<"$failed")" -le "${MEMLITE_TEST_RETRIES:-0}" ]; then
            printf '\n-- failed tests again, one at a time\n%s\n' "$failed"
            "$python" -m pytest -o cache_dir="$cache" "$@" --numprocesses 0 --last-failed \
                --last-failed-no-failures none || again=$?
            # By now each was counted twice: as failed, and then as failed or passed.
            [ -z "${MEMLITE_TEST_TALLY:-}" ] || echo "0 -$(wc -l <<<"$failed") 0" >>"$MEMLITE_TEST_TALLY"
            # A test that was not collected again is still listed.
            if [ "$again" = 0 ] && ! grep -q '": true' "$cache/v/cache/lastfailed" 2>/dev/null; then
                code=0
                [ -z "${MEMLITE_TEST_TALLY:-}" ] || echo "$failed" >>"$MEMLITE_TEST_TALLY.retried"
            fi
        fi
    fi
    rm -rf "$cache"
    return "$code"
}

# print_tally FILE: print the sums of MEMLITE_TEST_TALLY, and the tests that passed only when they
# were rerun.
print_tally() {
    awk '{ passed += $1; failed += $2; skipped += $3 }
        END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$1"
    [ ! -e "$1.retried" ] || sed 's/^/failed, then passed when rerun: /' "$1.retried"
}

# can_compile: whether there are a C compiler and the headers of .venv's Python.
can_compile() {
    local include
    include="$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')"
    command -v "${CC:-cc}" >/dev/null && [ -e "$include/Python.h" ]
}

# build_compiled FOLDER: build the compiled wheel into a folder. It differs from a release only in the
# optimization level of the C compiler: full optimization takes two minutes of processor time, and the
# tests do not measure speed.
build_compiled() {
    # Without --wheel, build makes the wheel from the source distribution, which must therefore be
    # complete.
    MEMLITE_COMPILED=1 MEMLITE_COMPILED_OPTIMIZATION="${MEMLITE_COMPILED_OPTIMIZATION:-0}" \
        .venv/bin/python -m build --no-isolation --outdir "$1" .
}

# shellcheck shell=bash
# Sourced by the scripts that run tests: runs a selection of them with pytest.

# run_tests PYTHON SPEED ARGUMENT...
#
# Run tests in parallel, and then, one at a time, those marked "alone", which measure time or
# processor load. Return 0 if none has failed, and pytest's code otherwise.
#
#   PYTHON      the interpreter
#   SPEED       "fast" for all but those marked "slow", "slow" for those, or "all"
#   ARGUMENT    of pytest: paths, or options
#
# MEMLITE_TEST_WORKERS is how many tests run in parallel; by default, two for each core.
run_tests() {
    local python="$1" marks files=() code=0 again=0
    case "$2" in
        fast) marks="not slow" ;;
        slow)
            marks="slow"
            files=(--marked slow)
            ;;
        *) marks="slow or not slow" ;;
    esac
    shift 2
    # Servers are started by the hundred, each of which would compile memlite's sources. All workers
    # must collect the tests in the same order.
    local -x PYTHONHASHSEED="${PYTHONHASHSEED:-0}"
    unset PYTHONDONTWRITEBYTECODE

    printf '\n-- in parallel\n'
    "$python" -m pytest -m "($marks) and not alone" "${files[@]}" --dist worksteal \
        --numprocesses "${MEMLITE_TEST_WORKERS:-$(($(nproc) * 2))}" "$@" || code=$?
    [ "$code" != 2 ] || return 2 # interrupted
    printf '\n-- one at a time\n'
    "$python" -m pytest -m "($marks) and alone" --marked alone "$@" || again=$?
    [ "$again" = 0 ] || [ "$again" = 5 ] || return "$again" # 5: none was selected
    [ "$code" = 5 ] || return "$code"
}

# What gcp-up, gcp-bench and gcp-down have in common; they read this file.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
me=$(basename "$0")
# shellcheck disable=SC2034 # used by those who read this file
python=${PYTHON:-python3}
# What gcp-up was told, for the others too; Terraform reads it by its name.
# shellcheck disable=SC2034
told=$root/terraform/gcp-up.auto.tfvars.json
yes=no

fail() {
    printf '%s: %s\n' "$me" "$1" >&2
    exit "${2:-1}"
}

step() { printf '\n==> %s\n' "$*"; }

# Asks before it costs money, or before something is gone.
confirm() {
    [ $yes = no ] || return 0
    [ -t 0 ] || fail "nobody is there to ask; --yes goes on without"
    local answer
    read -r -p "$1 [y/N] " answer
    case $answer in
        [yY] | [yY][eE][sS]) ;;
        *) fail "nothing was done" ;;
    esac
}

find_terraform() {
    if [ -n "${TERRAFORM:-}" ]; then
        command -v "$TERRAFORM" >/dev/null || fail "TERRAFORM=$TERRAFORM: there is no such command"
    elif command -v tofu >/dev/null; then
        TERRAFORM=tofu
    elif command -v terraform >/dev/null; then
        TERRAFORM=terraform
    else
        fail "neither tofu nor terraform is installed: https://opentofu.org/docs/intro/install"
    fi
}

find_gcloud() {
    command -v gcloud >/dev/null ||
        fail "gcloud is not installed: https://cloud.google.com/sdk/docs/install"
    [ -n "$(gcloud auth list --filter=status:ACTIVE --format='value(account)' 2>/dev/null)" ] ||
        fail "gcloud knows no account: gcloud auth login"
}

# Terraform has credentials of its own.
find_credentials() {
    local given=${GOOGLE_OAUTH_ACCESS_TOKEN:-}${GOOGLE_CREDENTIALS:-}
    [ -z "$given${GOOGLE_APPLICATION_CREDENTIALS:-}" ] || return 0
    gcloud auth application-default print-access-token >/dev/null 2>&1 ||
        fail "no credentials for Terraform: gcloud auth application-default login"
}

in_module() { "$TERRAFORM" -chdir="$root/terraform" "$@"; }

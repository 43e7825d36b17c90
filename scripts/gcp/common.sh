# Common parts of gcp-up, gcp-bench and gcp-down, which source this file.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
me=$(basename "$0")
# shellcheck disable=SC2034 # used by the scripts that source this file
python=${PYTHON:-python3}
# The settings of the last gcp-up, used by all three scripts; Terraform finds the file by its name.
# shellcheck disable=SC2034
told=$root/terraform/gcp-up.auto.tfvars.json
yes=no

fail() {
    printf '%s: %s\n' "$me" "$1" >&2
    exit "${2:-1}"
}

step() { printf '\n==> %s\n' "$*"; }

# Asks for confirmation before money is spent or anything is destroyed.
confirm() {
    [ $yes = no ] || return 0
    [ -t 0 ] || fail "no terminal to ask for confirmation; use --yes to skip it"
    local answer
    read -r -p "$1 [y/N] " answer
    case $answer in
        [yY] | [yY][eE][sS]) ;;
        *) fail "nothing was done" ;;
    esac
}

find_terraform() {
    if [ -n "${TERRAFORM:-}" ]; then
        command -v "$TERRAFORM" >/dev/null || fail "TERRAFORM=$TERRAFORM: command not found"
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
        fail "gcloud has no account: gcloud auth login"
}

# Terraform's credentials are separate from gcloud's.
find_credentials() {
    local given=${GOOGLE_OAUTH_ACCESS_TOKEN:-}${GOOGLE_CREDENTIALS:-}
    [ -z "$given${GOOGLE_APPLICATION_CREDENTIALS:-}" ] || return 0
    gcloud auth application-default print-access-token >/dev/null 2>&1 ||
        fail "no credentials for Terraform: gcloud auth application-default login"
}

in_module() { "$TERRAFORM" -chdir="$root/terraform" "$@"; }

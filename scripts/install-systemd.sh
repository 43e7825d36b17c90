#!/usr/bin/env bash
# Installs memlite as a service of systemd, or upgrades it; on Debian, as root, as often as you like:
#
#     sudo ./scripts/install-systemd.sh --package 'memlite[gcs]'
#
# What it makes:
#     /opt/memlite/releases/…           an environment for each package that was installed
#     /opt/memlite/current              the one that runs; the others are removed
#     /etc/memlite/memlite.env          settings; those that are there stay, unless others are given
#     /etc/systemd/system/memlite.service
#     /var/lib/memlite                  where items of a file:// backend go; never touched
#
# A new package is installed beside the old one, which goes on running until it is complete. Nothing
# is restarted that did not change.
set -euo pipefail
umask 022 # what is installed is for the service's user to read, whoever root is here

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=''
environment=''
unit="$here/systemd/memlite.service"
service=yes

usage() {
    cat <<'END'
Usage: install-systemd.sh [--package SPEC] [--environment FILE] [--unit FILE] [--no-service]

  --package SPEC      what to install, as pip takes it: memlite[gcs], memlite[gcs]==1.2,
                      'memlite[gcs] @ git+https://…@main', /path/memlite-….whl[gcs], or a wheel in a
                      bucket that this machine may read: gs://bucket/memlite-….whl[gcs]. What was
                      installed by the same SPEC stays: to upgrade, name another version or commit
  --environment FILE  settings to put in /etc/memlite/memlite.env, in place of those there
  --unit FILE         the unit to install, in place of systemd/memlite.service beside this script
  --no-service        install the package alone, for the load tester
END
}

fail() {
    printf 'install-systemd.sh: %s\n' "$*" >&2
    exit 1
}

step() { printf '==> %s\n' "$*"; }

while [ $# -gt 0 ]; do
    case $1 in
        --package | --environment | --unit)
            [ $# -ge 2 ] || fail "$1: needs a value"
            case $1 in
                --package) package=$2 ;;
                --environment) environment=$2 ;;
                --unit) unit=$2 ;;
            esac
            shift 2
            ;;
        --no-service) service=no && shift ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && fail "$1: not known" ;;
    esac
done

[ -n "$package" ] || fail "--package: which memlite? see --help"
[ "$(id -u)" = 0 ] || fail "must run as root: sudo $0"
command -v apt-get >/dev/null || fail "this is for Debian and its relatives: there is no apt-get"
[ "$service" = no ] || [ -r "$unit" ] || fail "--unit: cannot read $unit"
[ -z "$environment" ] || [ -r "$environment" ] || fail "--environment: cannot read $environment"

# One at a time: a VM's start-up script may be at it, too.
install -d /opt/memlite
exec 9>/opt/memlite/lock
flock 9

# Packages

needed=(python3 python3-venv ca-certificates)
case $package in
    *git+*) needed+=(git) ;;
    gs://*) needed+=(curl) ;;
esac
missing=()
for name in "${needed[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null)" = 'ii ' ] || missing+=("$name")
done
if [ ${#missing[@]} -gt 0 ]; then
    step "Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # At boot others may hold the lock, and a mirror may be out of reach for a moment.
    patient=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5)
    apt-get "${patient[@]}" update
    apt-get "${patient[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# memlite, in an environment of its own. Which package is in one is written down when it is complete.

releases=/opt/memlite/releases
current=/opt/memlite/current
# There as long as something changed that the service does not run with yet, even if this script was
# interrupted meanwhile.
stale=/opt/memlite/restart-needed
install -d $releases

# Brings a wheel from a bucket, with this machine's own credentials.
fetch_wheel() {
    local url=${1#gs://} into=$2 bucket object token
    bucket=${url%%/*}
    object=${url#*/}
    token=$(curl -fsS --retry 5 -H 'Metadata-Flavor: Google' \
        "${METADATA_URL:-http://metadata.google.internal}/computeMetadata/v1/instance/service-accounts/default/token" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])') ||
        fail "no credentials from the metadata server: is this a VM with a service account?"
    curl -fsS --retry 5 -H "Authorization: Bearer $token" -o "$into" \
        "${STORAGE_URL:-https://storage.googleapis.com}/storage/v1/b/$bucket/o/${object//\//%2F}?alt=media" ||
        fail "cannot read gs://$bucket/$object"
}

if [ "$(cat $current/package 2>/dev/null)" != "$package" ]; then
    step "memlite, from $package"
    release=$(mktemp -d $releases/XXXXXXXX)
    chmod 755 "$release"
    trap 'rm -rf "$release"' EXIT
    python3 -m venv "$release"
    what=$package
    if [[ $package == gs://* ]]; then
        url=${package%%\[*}
        what="$release/${url##*/}${package#"$url"}"
        fetch_wheel "$url" "$release/${url##*/}"
    fi
    "$release/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check "$what"
    "$release/bin/memlite" --version
    printf '%s\n' "$package" >"$release/package"
    touch $stale
    ln -sfn "$release" "$current.new"
    mv -T "$current.new" "$current"
    trap - EXIT
fi
remove_other_releases() {
    find $releases -mindepth 1 -maxdepth 1 ! -path "$(readlink -f $current)" -exec rm -rf {} +
}
if [ "$service" = no ]; then
    ln -sfn $current/bin/memlite /usr/local/bin/memlite
    remove_other_releases
    exit 0
fi

# The service

if ! getent passwd memlite >/dev/null; then
    step "the user memlite"
    useradd --system --user-group --home-dir /var/lib/memlite --shell /usr/sbin/nologin memlite
fi

# Puts a file in place and notes if it was another one.
place() {
    if ! cmp -s "$1" "$2"; then
        step "$2"
        touch $stale
        install -D -m "$3" -o root -g "$4" "$1" "$2"
    fi
}

install -d -m 755 /etc/memlite
settings=/etc/memlite/memlite.env
if [ -n "$environment" ]; then
    place "$environment" $settings 640 memlite
elif ! [ -e $settings ]; then
    place "$(dirname "$unit")/memlite.env" $settings 640 memlite
fi
place "$unit" /etc/systemd/system/memlite.service 644 root

if ! [ -d /run/systemd/system ]; then
    step "systemd does not run here; memlite will start with it"
    systemctl --quiet enable memlite.service
    exit 0
fi
systemctl daemon-reload
systemctl --quiet enable memlite.service
if [ -e $stale ] || ! systemctl --quiet is-active memlite.service; then
    step "starting memlite"
    # Returns when it is ready to serve.
    systemctl restart memlite.service ||
        fail "it did not start; what it said: journalctl -u memlite -n 20"
    rm -f $stale
fi
remove_other_releases
systemctl --no-pager --lines=0 status memlite.service

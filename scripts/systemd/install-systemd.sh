#!/usr/bin/env bash
# Installs memlite as a systemd service on Debian, or upgrades it. Runs as root, any number of times:
#
#     sudo ./scripts/systemd/install-systemd.sh --package 'memlite-cache[gcs]'
#
# It creates:
#     /opt/memlite/releases/…           a virtual environment for each installed package
#     /opt/memlite/current              a link to the one in use; the others are removed
#     /etc/memlite/memlite.env          settings; an existing file is kept unless another is given
#     /etc/systemd/system/memlite.service
#     /var/lib/memlite                  items of a file:// backend; existing files are kept
#
# A new package is installed next to the old one, which keeps serving until the installation is
# complete. The service is restarted only if something changed.
set -euo pipefail
umask 022 # the service's user must be able to read the files, whatever root's umask is

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=''
requirements=''
environment=''
unit="$here/memlite.service"
service=yes

usage() {
    cat <<'END'
Usage: install-systemd.sh [--package SPEC] [--requirements FILE] [--environment FILE]
                          [--unit FILE] [--no-service]

  --package SPEC      the package, in pip's syntax: memlite-cache[gcs], memlite-cache[gcs]==1.2,
                      'memlite-cache[gcs] @ git+https://…@main', /path/memlite_cache-….whl[gcs],
                      or a wheel in a bucket that this machine can read:
                      gs://bucket/memlite_cache-….whl[gcs]. With ' --hash=sha256:…' at the end, a
                      version or a wheel must have this hash. A package that was installed from the
                      same SPEC is kept: to upgrade, name another version or commit
  --requirements FILE the dependencies, with their hashes, such as requirements/gcs.txt; nothing
                      else is installed. Also gs://bucket/gcs.txt, with --hash=sha256:… as above
  --environment FILE  settings that replace those in /etc/memlite/memlite.env
  --unit FILE         the unit to install, instead of memlite.service next to this script
  --no-service        install only the package, for the load tester
END
}

fail() {
    printf 'install-systemd.sh: %s\n' "$*" >&2
    exit 1
}

step() { printf '==> %s\n' "$*"; }

while [ $# -gt 0 ]; do
    case $1 in
        --package | --requirements | --environment | --unit)
            [ $# -ge 2 ] || fail "$1: needs a value"
            case $1 in
                --package) package=$2 ;;
                --requirements) requirements=$2 ;;
                --environment) environment=$2 ;;
                --unit) unit=$2 ;;
            esac
            shift 2
            ;;
        --no-service) service=no && shift ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && fail "$1: unknown option" ;;
    esac
done

[ -n "$package" ] || fail "--package is required; see --help"
[ "$(id -u)" = 0 ] || fail "must run as root: sudo $0"
command -v apt-get >/dev/null || fail "apt-get not found; this script is for Debian and its derivatives"
[ "$service" = no ] || [ -r "$unit" ] || fail "--unit: cannot read $unit"
[ -z "$environment" ] || [ -r "$environment" ] || fail "--environment: cannot read $environment"

# One at a time: a VM's start-up script may be running it as well.
install -d /opt/memlite
exec 9>/opt/memlite/lock
flock 9

# Packages

needed=(python3 python3-venv ca-certificates)
case $package in *git+*) needed+=(git) ;; esac
case "$package $requirements" in *gs://*) needed+=(curl) ;; esac
missing=()
for name in "${needed[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$name" 2>/dev/null)" = 'ii ' ] || missing+=("$name")
done
if [ ${#missing[@]} -gt 0 ]; then
    step "Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # At boot other processes may hold the lock, and a mirror may be unreachable for a moment.
    patient=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5)
    apt-get "${patient[@]}" update
    apt-get "${patient[@]}" install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# memlite, in an environment of its own. The file `package` records its package once it is complete.

releases=/opt/memlite/releases
current=/opt/memlite/current
# This file exists while the service does not yet run with the latest changes, even if this script was
# interrupted.
stale=/opt/memlite/restart-needed
install -d $releases

# Downloads a file from a bucket, with this machine's credentials.
fetch() {
    local url=${1#gs://} into=$2 bucket object token
    bucket=${url%%/*}
    object=${url#*/}
    token=$(curl -fsS --retry 5 -H 'Metadata-Flavor: Google' \
        "${METADATA_URL:-http://metadata.google.internal}/computeMetadata/v1/instance/service-accounts/default/token" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["access_token"])') ||
        fail "no credentials from the metadata server: is this a VM with a service account?"
    # On standard input, because every process can see arguments.
    curl -fsS --retry 5 -H @- -o "$into" \
        "${STORAGE_URL:-https://storage.googleapis.com}/storage/v1/b/$bucket/o/${object//\//%2F}?alt=media" \
        <<<"Authorization: Bearer $token" ||
        fail "cannot read gs://$bucket/$object"
}

# Downloads a file into a folder if it is in a bucket, and checks its hash if one is given; prints its path.
obtain() {
    local file=${1%% --hash=sha256:*} folder=$2
    if [[ $file == gs://* ]]; then
        fetch "$file" "$folder/${file##*/}"
        file=$folder/${file##*/}
    fi
    if [[ $1 == *' --hash=sha256:'* ]]; then
        sha256sum --check --status - <<<"${1##*:}  $file" || fail "$file does not have the hash ${1##*:}"
    fi
    printf '%s\n' "$file"
}

pip() { "$release/bin/python" -m pip --quiet --no-cache-dir --disable-pip-version-check "$@"; }

wanted=$package${requirements:+ with $requirements}
if [ "$(cat $current/package 2>/dev/null)" != "$wanted" ]; then
    step "memlite, from $package"
    release=$(mktemp -d $releases/XXXXXXXX)
    chmod 755 "$release"
    trap 'rm -rf "$release"' EXIT
    python3 -m venv "$release"
    options=()
    if [ -n "$requirements" ]; then
        file=$(obtain "$requirements" "$release")
        pip install --require-hashes --requirement "$file"
        # Builds from git use the build tools among them.
        options=(--no-deps --no-build-isolation)
    fi
    spec=${package%% --hash=*}
    if [[ $spec == gs://* || $spec == /* ]]; then
        # A wheel: its extras follow its name.
        extras=${spec#"${spec%%\[*}"}
        file=$(obtain "${spec%%\[*}${package#"$spec"}" "$release")
        pip install "${options[@]}" "$file$extras"
    elif [ "$spec" != "$package" ]; then
        printf '%s\n' "$package" >"$release/requirement"
        pip install "${options[@]}" --require-hashes --requirement "$release/requirement"
    else
        pip install "${options[@]}" "$spec"
    fi
    # Without dependencies, pip does not notice that one is missing.
    "$release/bin/python" -m pip --disable-pip-version-check check
    "$release/bin/memlite" --version
    printf '%s\n' "$wanted" >"$release/package"
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

# Installs a file if it differs from the installed one, and marks the service for a restart.
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
    step "systemd is not running; memlite will start when it does"
    systemctl --quiet enable memlite.service
    exit 0
fi
systemctl daemon-reload
systemctl --quiet enable memlite.service
if [ -e $stale ] || ! systemctl --quiet is-active memlite.service; then
    step "starting memlite"
    # Returns when memlite is ready to serve.
    systemctl restart memlite.service ||
        fail "memlite did not start; see: journalctl -u memlite -n 20"
    rm -f $stale
fi
remove_other_releases
systemctl --no-pager --lines=0 status memlite.service

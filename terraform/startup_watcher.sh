#!/usr/bin/env bash
# Runs the VM's start-up script when it has changed, and again if it failed. Google Cloud itself runs it only
# at boot.
set -euo pipefail

script="${METADATA_URL:-http://metadata.google.internal}/computeMetadata/v1/instance/attributes/startup-script"
applied=/var/lib/memlite-startup/applied
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first response is immediate. Later ones arrive on a change, or after an hour, because connections get lost.
etag=0
while :; do
    curl -fsS --max-time 3700 -H 'Metadata-Flavor: Google' -D "$work/head" -o "$work/script" \
        "$script?wait_for_change=true&timeout_sec=3600&last_etag=$etag"
    cmp -s "$work/script" "$applied" || break
    etag=$(sed -n 's/^etag: *//Ip' "$work/head" | tr -d '\r')
done
# The script may replace this file, so exit and let systemd start the new one.
bash "$work/script"

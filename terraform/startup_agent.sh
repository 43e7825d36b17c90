#!/usr/bin/env bash
# Installs the Ops Agent in the given version, from Google's repository for Debian, and configures it:
#
#     memlite-agent VERSION CONFIGURATION
set -euo pipefail

version=$1
wanted=$2
sources=/etc/apt/sources.list.d/google-cloud-ops-agent.list
config=/etc/google-cloud-ops-agent/config.yaml
# Google's images for Debian contain the key.
key=/usr/share/keyrings/cloud.google.gpg

# shellcheck disable=SC1091 # the system's
. /etc/os-release
package=google-cloud-ops-agent=$version~debian$VERSION_ID
if [ "$(dpkg-query -W -f '${Status} ${Package}=${Version}' google-cloud-ops-agent 2>/dev/null)" != "install ok installed $package" ]; then
    echo "deb [signed-by=$key] https://packages.cloud.google.com/apt google-cloud-ops-agent-$VERSION_CODENAME-2 main" >$sources
    export DEBIAN_FRONTEND=noninteractive
    patient=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5)
    apt-get "${patient[@]}" update
    apt-get "${patient[@]}" install -y --allow-downgrades "$package" >/dev/null
fi
sed -i "s/HOSTNAME/$(uname -n)/" "$wanted"
if ! cmp -s "$wanted" $config; then
    install -D -m 644 "$wanted" $config
    systemctl restart google-cloud-ops-agent
fi

# shellcheck shell=bash
# Sourced by try-startup: a clean Debian 12 with systemd, booted in its own namespaces. Its mounts exist
# only inside and vanish with it. It shares this machine's network and clock.
#
# machine_make DIR [TARBALL]   creates its root file system, from the tarball if it exists; else writes it.
# machine_boot DIR             boots it, and waits until all its units are running.
# inside COMMAND...            runs a command in it as root, with the variables in machine_environment.
# machine_stop                 kills it.

machine_environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
machine_init='' machine_group=''

machine_make() {
    local root=$1 tarball=${2:-} file name
    mkdir "$root"
    if [ -n "$tarball" ] && [ -e "$tarball" ]; then
        tar -C "$root" -xf "$tarball"
    else
        # In a namespace, so that an interruption leaves no mounts behind.
        unshare --mount debootstrap --include=ca-certificates bookworm "$root" \
            "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$root.log" ||
            { tail "$root.log" >&2 && return 1; }
        [ -z "$tarball" ] || tar -C "$root" -caf "$tarball" .
    fi
    # Copy the settings with which this machine reaches Debian and PyPI.
    rm -f "$root/etc/apt/sources.list"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} \
        /etc/apt/apt.conf.d/{*proxy*,99*} /etc/pip.conf /etc/resolv.conf /etc/hosts \
        /etc/ssl/certs/ca-certificates.crt; do
        [ ! -e "$file" ] || install -D -m 644 "$file" "$root$file"
    done
    for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT PIP_DEFAULT_TIMEOUT \
        {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY; do
        [ -z "${!name:-}" ] || machine_environment+=("$name=${!name}")
    done
}

machine_boot() {
    # A control group of its own, which its systemd can subdivide.
    machine_group=$(findmnt --noheadings --first-only --types cgroup2 --output TARGET)/try-startup-$$
    mkdir "$machine_group"
    _machine_start "$1" </dev/null >"$1.log" 2>&1 &
    local outside=$! _
    for _ in {1..100}; do
        machine_init=$(cat "/proc/$outside/task/$outside/children" 2>/dev/null || true)
        machine_init=${machine_init% }
        [ -z "$machine_init" ] || ! inside test -S /run/systemd/private 2>/dev/null || break
        sleep 0.2
    done
    if ! inside systemctl is-system-running --wait; then
        cat "$1.log" >&2
        inside systemctl --failed --no-pager
        return 1
    fi
}

_machine_start() {
    echo "$BASHPID" >"$machine_group/cgroup.procs"
    # shellcheck disable=SC2016 # the inner shell expands it
    exec unshare --mount --pid --fork --uts --ipc --cgroup bash -euc '
        cd "$1"
        mount --bind . .
        cd "$1"
        mount -t proc proc proc
        mount --bind -o ro proc/sys proc/sys  # the kernel is shared
        mount -t sysfs -o ro sysfs sys
        mount -t cgroup2 cgroup2 sys/fs/cgroup
        mount -t tmpfs -o mode=755 tmpfs run
        mount -t tmpfs -o mode=755 tmpfs dev
        for name in null zero full random urandom tty; do
            touch dev/$name
            mount --bind /dev/$name dev/$name
        done
        mkdir dev/pts dev/shm mnt/old
        mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
        ln -s pts/ptmx dev/ptmx
        ln -s /proc/self/fd dev/fd
        pivot_root . mnt/old
        exec env -i container=try-startup sh -c "umount -l /mnt/old && exec /sbin/init"
    ' bash "$1"
}

inside() {
    nsenter --target "$machine_init" --mount --pid --uts --ipc --cgroup \
        env -i "${machine_environment[@]}" "$@"
}

machine_stop() {
    [ -z "$machine_init" ] || kill -KILL "$machine_init" || true
    while [ -n "$machine_init" ] && [ -e "/proc/$machine_init" ]; do sleep 0.1; done
    [ -z "$machine_group" ] || find "$machine_group" -depth -type d -exec rmdir {} + || true
    machine_init='' machine_group=''
}

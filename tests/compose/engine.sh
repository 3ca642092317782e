#!/usr/bin/env bash
# A Docker engine of the tests' own, for machines that have none: engine.sh up FOLDER | down FOLDER
#
# Takes Docker, Compose and Buildx from Debian's packages without installing them, and runs them from
# FOLDER. Where no image registry can be reached, it builds a stand-in for the base image from the same
# Debian. Needs Debian, root and a kernel that lets it run containers. FOLDER/env is what to source.
set -euo pipefail

readonly SUITE=trixie # the first with Compose v2 and Buildx
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly BASE_IMAGE=python:3.11-slim
readonly CERTIFICATES=/etc/ssl/certs/ca-certificates.crt

refuse() { echo "error: $1" >&2; exit 1; }

mirror() {
    local listed
    listed=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null || true)
    grep -oEm1 'https?://[^ ]+/debian/?( |$)' <<<"$listed" | tr -d ' ' || refuse "apt has no Debian mirror"
}

take_packages() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install -y --no-install-recommends iptables runc tini debootstrap ca-certificates \
        >"$folder/install.log" 2>&1 || refuse "apt could not install: $(tail -n 1 "$folder/install.log")"
    # the newer suite has lists and a cache of its own, so that the machine's apt stays as it was
    mkdir -p "$folder"/apt/{lists,cache}/partial "$folder/apt/cache/archives/partial" "$folder/packages"
    echo "deb [signed-by=$KEYRING] $(mirror) $SUITE main" >"$folder/apt/sources"
    local own=(-qq -o "Dir::Etc::SourceList=$folder/apt/sources" -o "Dir::Etc::SourceParts=-"
        -o "Dir::State::Lists=$folder/apt/lists" -o "Dir::Cache=$folder/apt/cache" -o "APT::Sandbox::User=root")
    apt-get "${own[@]}" update
    local names=()
    for name in docker.io docker-cli containerd docker-compose docker-buildx; do names+=("$name/$SUITE"); done
    (cd "$folder/packages" && apt-get "${own[@]}" download "${names[@]}")
    mkdir -p "$folder/root" "$folder/config/cli-plugins"
    for package in "$folder"/packages/*.deb; do dpkg-deb --extract "$package" "$folder/root"; done
    cp "$folder"/root/usr/libexec/docker/cli-plugins/docker-* "$folder/config/cli-plugins/"
    ln -sf "$(command -v tini-static || command -v tini)" "$folder/root/usr/bin/docker-init"
}

start_engine() {
    cat >"$folder/env" <<ENV
export PATH="$folder/root/usr/bin:$folder/root/usr/sbin:$PATH"
export DOCKER_HOST="unix://$folder/docker.sock"
export DOCKER_CONFIG="$folder/config"
ENV
    . "$folder/env"
    mkdir -p "$folder/data" "$folder/run"
    setsid dockerd --host "$DOCKER_HOST" --data-root "$folder/data" --exec-root "$folder/run" \
        --pidfile "$folder/dockerd.pid" >"$folder/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 120); do
        docker version >/dev/null 2>&1 && return
        sleep 0.5
    done
    refuse "dockerd did not start: $(tail -n 3 "$folder/dockerd.log")"
}

# Debian's own Python of the same version where the image's is, with the machine's certificates.
make_base_image() {
    timeout 60 docker pull --quiet "$BASE_IMAGE" >/dev/null 2>&1 && return
    local tree
    tree=$(mktemp -d /dev/shm/ninfer-base.XXXXXX) # in memory: twice as fast
    trap "rm -rf '$tree'" EXIT
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm \
        "$tree" "$(mirror)" >"$folder/debootstrap.log" 2>&1 || refuse "debootstrap: $(tail -n 1 "$folder/debootstrap.log")"
    cp "$CERTIFICATES" "$tree$CERTIFICATES"
    chroot "$tree" python3 -m venv /usr/local
    rm -rf "$tree"/var/cache/apt/archives/*.deb "$tree"/var/lib/apt/lists/*
    tar --directory "$tree" --numeric-owner --create . | docker import \
        --change "ENV SSL_CERT_FILE=$CERTIFICATES PIP_CERT=$CERTIFICATES" --change 'CMD ["python3"]' \
        - "$BASE_IMAGE" >/dev/null
}

up() {
    [ "$(id -u)" = 0 ] || refuse "there is no Docker with Compose here, and starting one needs root"
    command -v apt-get >/dev/null || refuse "there is no Docker with Compose here, and no apt-get to get it with"
    mkdir -p "$folder"
    take_packages
    start_engine
    make_base_image
}

down() {
    [ -f "$folder/env" ] || return 0
    . "$folder/env"
    docker ps --all --quiet | xargs --no-run-if-empty docker rm --force >/dev/null || true
    docker network prune --force >/dev/null || true
    if pid=$(cat "$folder/dockerd.pid" 2>/dev/null); then
        kill "$pid"
        for _ in $(seq 60); do kill -0 "$pid" 2>/dev/null || break; sleep 0.5; done
    fi
    # what an engine leaves in the kernel
    umount "$folder"/run/netns/* 2>/dev/null || true
    ip link delete docker0 2>/dev/null || true
    iptables --policy FORWARD ACCEPT 2>/dev/null || true
    (iptables-save | grep --invert-match --extended-regexp 'DOCKER|docker0' | iptables-restore) 2>/dev/null || true
    find /sys/fs/cgroup/*/docker -depth -type d -exec rmdir {} + 2>/dev/null || true
    rm -rf "$folder"
}

[ $# = 2 ] || refuse "usage: engine.sh up|down FOLDER"
folder=$2
case $1 in
    up | down) "$1" ;;
    *) refuse "usage: engine.sh up|down FOLDER" ;;
esac

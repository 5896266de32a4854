#!/usr/bin/env bash
# A private Docker engine for tests and CI: no registry, no init system, no change to the host's firewall or routes.
# Needs root and Linux; installs Debian's docker.io if there is no dockerd.
#
#   eval "$(scripts/docker_engine.sh start)"    starts it and sets DOCKER_HOST
#   scripts/docker_engine.sh image [TAG]        makes an image of this machine's Python (default agentenv-python:local)
#                                               on the engine that DOCKER_HOST names, or on this one
#   scripts/docker_engine.sh stop               stops it and removes all that it left
#
# Settings (environment):
#   AGENT_ENV_DOCKER_DIR     where everything lives     (default /tmp/agentenv-docker)
#   AGENT_ENV_DOCKER_DRIVER  overlay2 | vfs             (default overlay2)
#   AGENT_ENV_DOCKER_FLAGS   more flags for dockerd
#   PYTHON                   which Python the image holds (default python3)
set -euo pipefail

dir=${AGENT_ENV_DOCKER_DIR:-/tmp/agentenv-docker}
driver=${AGENT_ENV_DOCKER_DRIVER:-overlay2}
cgroup=/agentenv-docker-$(printf %s "$dir" | cksum | cut -d' ' -f1)
socket=$dir/docker.sock
host=unix://$socket
scripts=$(cd "$(dirname "$0")" && pwd)
say() { echo "docker_engine: $*" >&2; }

install_engine() {
  command -v dockerd >/dev/null && command -v docker >/dev/null && return
  [ "$(id -u)" = 0 ] || { say "no dockerd here, and only root can install docker.io"; exit 1; }
  say "installing docker.io (66 MB)"
  # A service that the package would start is not wanted: the engine below is a private one.
  local policy=/usr/sbin/policy-rc.d
  [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; trap "rm -f $policy" EXIT; }
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends docker.io iptables; } >&2
}

answers() { docker -H "$host" version >/dev/null 2>&1; }

start() {
  install_engine
  if [ -S "$socket" ] && answers; then say "already up"; echo "export DOCKER_HOST=$host"; return; fi
  [ "$(id -u)" = 0 ] || { say "only root can start an engine"; exit 1; }
  mkdir -p "$dir"
  # cgroupfs and the exec-opt: no systemd is needed. No default bridge, no firewall rules: envs have no network, or one
  # of their own that leads nowhere.
  setsid dockerd --host "$host" --group root \
    --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/dockerd.pid" \
    --storage-driver "$driver" --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "$cgroup" \
    --log-driver none --userland-proxy=false --shutdown-timeout 5 \
    --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false \
    ${AGENT_ENV_DOCKER_FLAGS:-} </dev/null >"$dir/dockerd.log" 2>&1 &
  local pid=$!
  for _ in $(seq 300); do
    if answers; then say "up, pid $pid"; echo "export DOCKER_HOST=$host"; return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  say "the engine did not come up:"
  tail -20 "$dir/dockerd.log" >&2
  kill -KILL "$pid" 2>/dev/null || true
  exit 1
}

# The machine's own Python as an image: no registry is asked.
image() {
  local tag=${1:-agentenv-python:local} root
  root=$(mktemp -d)
  "${PYTHON:-python3}" "$scripts/python_rootfs.py" "$root" >&2
  tar -C "$root" --numeric-owner --owner=0 --group=0 -c . |
    docker -H "${DOCKER_HOST:-$host}" import -c 'ENV PATH=/usr/local/bin:/usr/bin:/bin' - "$tag" >&2
  rm -rf "$root"
  echo "$tag"
}

stop() {
  if [ -S "$socket" ] && answers; then
    docker -H "$host" ps -aq | xargs -r docker -H "$host" rm --force --volumes >/dev/null
    docker -H "$host" network ls --quiet --filter type=custom | xargs -r docker -H "$host" network rm >/dev/null
  fi
  if [ -f "$dir/dockerd.pid" ]; then
    local pid
    pid=$(cat "$dir/dockerd.pid")
    kill -TERM "$pid" 2>/dev/null || true
    for _ in $(seq 200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  # What an engine that was killed hard leaves: containerd and its shims, containers, mounts and cgroups.
  local left
  left=$(grep -lsF "$dir/exec/" /proc/[0-9]*/cmdline | cut -d/ -f3 | grep -vx "$$" || true)
  for folder in /sys/fs/cgroup/*"$cgroup" /sys/fs/cgroup"$cgroup"; do
    if [ -d "$folder" ]; then left="$left $(find "$folder" -name cgroup.procs -exec cat {} + 2>/dev/null || true)"; fi
  done
  for pid in $left; do kill -KILL "$pid" 2>/dev/null || true; done
  awk -v d="$dir/" 'index($5, d) == 1 {print $5}' /proc/self/mountinfo | sort -r | xargs -r -n1 umount -l
  rm -rf "$dir"
  for folder in /sys/fs/cgroup/*"$cgroup" /sys/fs/cgroup"$cgroup"; do
    for _ in 1 2 3 4 5; do
      if [ -d "$folder" ]; then find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.2; fi
    done
  done
  say "stopped"
}

case "${1:-}" in
  start) start ;;
  image) shift; image "$@" ;;
  stop) stop ;;
  *) sed -n '2,15p' "$0" >&2; exit 2 ;;
esac

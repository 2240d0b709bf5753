#!/usr/bin/env bash
# tests/rdma/two_vms.sh CMD [ARG...]: runs CMD in two guests at once, as vm.sh does, whose eth0 are
# joined by a network of QEMU's with nothing else on it. In guest RANK (0 or 1) rxe0 is on eth0 with
# the address 10.77.0.1 or .2; PEER is the other's. VM_LOSS=1% drops so many packets that leave. The
# lines of each have its number before them; the exit code is the first that is not 0.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -gt 0 ]] || { echo "usage: tests/rdma/two_vms.sh CMD [ARG...]" >&2; exit 125; }
cache=${VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/braid/rdma}
"$here/image.sh" "$cache"  # once
net=$(mktemp -d "${TMPDIR:-/tmp}/braid-net.XXXXXX")
guests=()
leave() {
  [[ ${#guests[@]} -eq 0 ]] || kill "${guests[@]}" 2>/dev/null || true
  wait
  rm -rf "$net"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

lose=true
[[ -z ${VM_LOSS-} ]] || lose="tc qdisc add dev eth0 root netem loss $VM_LOSS"
for rank in 0 1; do
  peer=$((1 - rank))
  RANK=$rank PEER=10.77.0.$((peer + 1)) VM_CACHE=$cache \
    VM_NETWORK="-netdev dgram,id=net,local.type=unix,local.path=$net/$rank,remote.type=unix,remote.path=$net/$peer -device virtio-net-pci,netdev=net,mac=52:54:00:77:00:0$rank" \
    VM_PORT="ip link set eth0 mtu 4300 up; ip address add 10.77.0.$((rank + 1))/24 dev eth0
rdma link add rxe0 type rxe netdev eth0; $lose" \
    "$here/vm.sh" "$@" > >(exec sed -u "s/^/[$rank] /") 2> >(exec sed -u "s/^/[$rank] /" >&2) &
  guests+=($!)
done
code=0
for guest in "${guests[@]}"; do
  ended=0
  wait "$guest" || ended=$?
  [[ $code -ne 0 ]] || code=$ended
done
guests=()
exit "$code"

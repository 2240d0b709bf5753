#!/usr/bin/env bash
# tests/rdma/vm.sh CMD [ARG...]: runs CMD in this folder, in a guest of QEMU with two emulated
# processors and an RDMA port in software: rxe0 on dummy0 (10.77.0.1). The guest sees this machine's
# files; what it writes is thrown away. Output and exit code are CMD's. 77: this machine cannot do it;
# 124: CMD took more than VM_SECONDS (600); 125: the guest ended without an exit code.
#
# Also read: VM_NETWORK, more options for QEMU; VM_PORT, commands that make the RDMA port in its place;
# VM_CACHE, the folder with the kernel.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -gt 0 ]] || { echo "usage: tests/rdma/vm.sh CMD [ARG...]" >&2; exit 125; }
cache=${VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/braid/rdma}
"$here/image.sh" "$cache"
port=${VM_PORT:-'ip link add dummy0 mtu 4200 type dummy; ip address add 10.77.0.1/24 dev dummy0
ip link set dummy0 up; rdma link add rxe0 type rxe netdev dummy0'}

work=$(mktemp -d "${TMPDIR:-/tmp}/braid-rdma.XXXXXX")
qemu=
leave() {
  [[ -z $qemu ]] || kill -KILL "$qemu" 2>/dev/null || true
  wait
  rm -rf "$work"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

{
  export -p | grep -vE '^declare -x (VM_[A-Z]*|OLDPWD|SHLVL)='
  echo 'export BRAID_TEST_RDMA=1 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
  # shellcheck disable=SC2016  # they expand in the guest
  echo 'for port in /sys/class/virtio-ports/*; do declare "$(<"$port/name")=/dev/${port##*/}"; done'
  echo 'ln -s /proc/self/fd /dev/fd; ulimit -l unlimited; hostname guest; ip link set lo up'
  echo "{ $port"
  echo "} || echo 'no RDMA port could be made' >\"\$err\""
  printf 'cd %q\n(exec' "$PWD"
  printf ' %q' "$@"
  # shellcheck disable=SC2016
  echo ') >"$out" 2>"$err"; echo $? >"$code"; sync; echo o >/proc/sysrq-trigger; sleep 5'
} >"$work/guest.sh"

mkfifo "$work/out" "$work/err"
cat "$work/out" &
readers=($!)
cat "$work/err" >&2 &
readers+=($!)
# Held open, so that the readers end when QEMU does and not before it begins.
exec 8>"$work/out" 9>"$work/err"
# shellcheck disable=SC2086  # VM_NETWORK is several words
timeout -k 5 "${VM_SECONDS:-600}" qemu-system-x86_64 -M q35,usb=off -nodefaults -no-user-config \
  -display none -no-reboot -accel tcg,thread=multi -cpu max -smp 2 -m 2048 \
  -kernel "$cache/kernel" -initrd "$cache/initrd" \
  -append "console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable mitigations=off nokaslr random.trust_cpu=on braid.script=$work/guest.sh" \
  -serial "file:$work/console" \
  -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
  -device virtio-9p-pci,fsdev=root,mount_tag=root -device virtio-serial-pci \
  -chardev "file,id=out,path=$work/out" -device virtserialport,chardev=out,name=out \
  -chardev "file,id=err,path=$work/err" -device virtserialport,chardev=err,name=err \
  -chardev "file,id=code,path=$work/code" -device virtserialport,chardev=code,name=code \
  -device virtio-rng-pci ${VM_NETWORK-} </dev/null 2>"$work/qemu" 8>&- 9>&- &
qemu=$!
ended=0
wait "$qemu" || ended=$?
qemu=
exec 8>&- 9>&-
wait "${readers[@]}" || true
[[ -s $work/code ]] && exit "$(<"$work/code")"
cat "$work/qemu" >&2
tail -n 20 "$work/console" >&2 || true
if [[ $ended -eq 124 || $ended -eq 137 ]]; then
  echo "tests/rdma/vm.sh: ${VM_SECONDS:-600} s have passed" >&2
  exit 124
fi
echo "tests/rdma/vm.sh: the guest gave no exit code; QEMU ended with $ended" >&2
exit 125

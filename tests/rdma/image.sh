#!/usr/bin/env bash
# tests/rdma/image.sh FOLDER: makes what vm.sh boots, unless it is there: Debian's plain kernel of this
# release (FOLDER/kernel), which is unpacked and not installed, and an initramfs with its modules for
# RDMA in software (FOLDER/initrd). Exits 77, saying what is missing, where that cannot be done.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../cmake/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/setup.sh"
folder=${1:?usage: image.sh FOLDER}

cannot() {
  echo "tests/rdma: $*" >&2
  exit 77
}

[[ ! -s $folder/initrd || ! -s $folder/kernel ]] || exit 0
[[ $(dpkg --print-architecture 2>/dev/null) == amd64 ]] || cannot "needs Debian on amd64"
(braid_install "${braid_vm_packages[@]}" >&2) || cannot "needs ${braid_vm_packages[*]}"
mkdir -p "$folder"
work=$(mktemp -d "$folder/making.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The flavour for clouds has neither rdma_rxe nor 9p.
package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ {print $2; exit}')
[[ -n $package ]] || cannot "apt knows no linux-image-amd64"
version=${package#linux-image-}
(cd "$work" && apt-get -q -o APT::Sandbox::User=root download "$package" >&2) || cannot "cannot download $package"
dpkg-deb -x "$work/$package"_*.deb "$work/package"
depmod -b "$work/package" "$version"

root=$work/root
mkdir -p "$root"/{bin,modules,proc,sys,dev,below,above,system}
cp "$(command -v busybox)" "$root/bin/busybox"
for module in virtio_pci virtio_console virtio-rng virtio_net 9pnet_virtio 9p overlay dummy \
  sch_netem crc32_generic ib_uverbs rdma_ucm rdma_rxe; do
  modprobe -d "$work/package" -S "$version" --show-depends "$module" 2>/dev/null |
    awk '$1 == "insmod" {print $2}'
done | awk '!seen[$0]++' >"$work/modules"
while read -r file; do
  name=$(basename "${file%.xz}")
  case $file in
    *.xz) xz -dc "$file" >"$root/modules/$name" ;;
    *) cp "$file" "$root/modules/$name" ;;
  esac
  echo "$name" >>"$root/modules/order"
done <"$work/modules"
grep -q '^rdma_rxe.ko$' "$root/modules/order" || cannot "$package has no module rdma_rxe"

cat >"$root/init" <<'END'
#!/bin/busybox sh
export PATH=/bin
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in $($b cat /modules/order); do
  case $module in dummy.ko) options=numdummies=0 ;; *) options= ;; esac
  $b insmod "/modules/$module" $options || echo "insmod $module failed"
done
$b mkdir -p /dev/pts /dev/shm
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro root /below
$b mount -t tmpfs -o size=75% tmpfs /above
$b mkdir /above/files /above/work
$b mount -t overlay -o lowerdir=/below,upperdir=/above/files,workdir=/above/work overlay /system
$b mount -t proc proc /system/proc
$b mount -t sysfs sysfs /system/sys
$b mount --move /dev /system/dev
$b mount -t devpts devpts /system/dev/pts
$b mount -t tmpfs tmpfs /system/dev/shm
$b mount -t tmpfs tmpfs /system/run
for word in $($b cat /system/proc/cmdline); do
  case $word in braid.script=*) script=${word#braid.script=} ;; esac
done
exec $b chroot /system /bin/bash "$script" </system/dev/null
END
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd"

# Emulated, the kernel takes some 10 s to unpack itself; unpacked here, QEMU enters it by PVH.
packed=$work/package/boot/vmlinuz-$version
begin=$(LC_ALL=C grep -abo -m1 -P '\xfd7zXZ\x00' "$packed" | head -n 1 | cut -d: -f1 || true)
if [[ -n $begin ]]; then
  tail -c "+$((begin + 1))" "$packed" | xz -dc --single-stream >"$work/kernel" 2>/dev/null || true
fi
[[ -s $work/kernel ]] || cp "$packed" "$work/kernel"
mv "$work/kernel" "$folder/kernel"
mv "$work/initrd" "$folder/initrd"

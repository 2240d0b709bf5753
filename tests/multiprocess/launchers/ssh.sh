#!/usr/bin/env bash
# `braid launch --nodes` starts mnist and ddp_mnist on this machine and, over ssh with a real sshd, on
# another one. Exits 77 where that cannot be set up.
#
#   tests/multiprocess/launchers/ssh.sh build/release/bin
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lab.sh
source "$(dirname "${BASH_SOURCE[0]}")/lab.sh"
lab_enter "${1:?usage: ssh.sh BIN_DIR}" openssh-server openssh-client

lab_machine left 1
lab_machine right 2
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$work/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$work/user_key"
# Some systems lock root's account, so that sshd lets nobody in; not in here.
sed 's/^root:[^:]*:/root:*:/' /etc/shadow >"$work/shadow"
chmod 600 "$work/shadow"
mount --bind "$work/shadow" /etc/shadow
cat >"$work/sshd_config" <<END
Port 2222
ListenAddress 0.0.0.0
HostKey $work/host_key
AuthorizedKeysFile $work/user_key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitUserRC no
PidFile none
END
on right /usr/sbin/sshd -D -e -f "$work/sshd_config" 2>"$work/sshd.log" &
listens() { [[ -n $(ip netns exec right ss -Hltn "sport = :2222") ]]; }
await 30 listens
echo "[right]:2222 $(<"$work/host_key.pub")" >"$work/known_hosts"
ssh="ssh -p 2222 -i $work/user_key -F none -o UserKnownHostsFile=$work/known_hosts -o BatchMode=yes"
ssh+=" -o ConnectTimeout=5"

# launch NODES FLAG... -- PROGRAM...: on the left machine; NODES are lines.
launch() {
  printf '%b' "$1" >"$work/nodes"
  on left "$bin/braid" launch "--nodes=$work/nodes" "--ssh=$ssh" "${@:2}"
}
# The oldest: its guard, a child, has the same command line.
launcher() { pgrep -o -f "^$bin/braid launch "; }
last_error() { tail -n 1 "$work/$name.err"; }
# expect_last TEXT: an extended regular expression for the whole of the last line.
expect_last() {
  grep -qxE -- "braid launch: $1" <<<"$(last_error)" || lab_fail "$name ends with '$(last_error)'"
}

both='left\nright\n'
run worker_there launch "$both" -- "${train[@]}" "$(losses worker_there)"
expect_training 2x1
run master_there launch 'right cpu:2\nleft cpu:2\n' -- \
  "${train[@]}" --parallel=hybrid "$(losses master_there)"
expect_training 2x2 --parallel=hybrid

run ranks launch "$both" -- "${train_ranks[@]}"
expect_ranks 2

# All users of a machine see command lines.
start_training secret_and_interrupt launch "$both" -- "${train_on[@]}"
token=$(tr '\0' '\n' <"/proc/$(processes mnist right)/environ" | sed -n 's/^BRAID_AUTH_TOKEN=//p')
[[ ${#token} -ge 32 ]] || lab_fail "the other machine's mnist has no secret"
for process in /proc/[0-9]*; do
  arguments=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) || continue  # it has just ended
  [[ $arguments != *"$token"* ]] || lab_fail "all users see the secret: $arguments"
done
kill -INT "$(launcher)"
finish 10
expect_code '!0'
expect_last 'ended by signal 2 \(Interrupt\)'
await 10 nothing_runs

# The end of ssh's standard input is all that the other machine hears of this.
start_training launch_killed launch "$both" -- "${train_on[@]}"
kill -KILL "$(launcher)"
await 10 nothing_runs
finish 10
expect_code 137

start_training worker_killed launch "$both" -- "${train_on[@]}"
kill -KILL "$(processes mnist right)"
finish 10
expect_code 137
expect_error '^error: node 1 (right) lost while '
expect_last 'node 1 \(right\) failed first: exit code 137 \(128 \+ signal 9, Killed\)'
await 10 nothing_runs

start_training master_killed launch "$both" -- "${train_on[@]}"
kill -KILL "$(processes mnist left)"
finish 10
expect_code 137
expect_last 'node 0 \(pid [0-9]+, left\) failed first: signal 9 \(Killed\)'
await 10 nothing_runs

ssh_failed='exit code 255 of ssh or the program: ssh:'
run refused launch 'left\ndesk\n' -- "${train[@]}"
expect_code 255
expect_last "node 1 \(desk\) failed first: $ssh_failed connect to host desk .*Connection refused"
run no_host launch 'left\nfar.away.invalid\n' -- "${train[@]}"
expect_code 255
expect_last "node 1 \(far.away.invalid\) failed first: $ssh_failed Could not resolve .*"
await 10 nothing_runs

# Neither side of a cut cable hears anything any more.
start_training cut launch "$both" -- "${train_on[@]}"
ip link set right down
finish 20
expect_code '!0'
expect_error '^error: node 1 (right) lost while .*: no heartbeat for '
await 20 nothing_runs
echo "PASSED"

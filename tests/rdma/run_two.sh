#!/usr/bin/env bash
# tests/rdma/run_two.sh BIN: two guests with an RDMA port each, between which 1 % of the packets are
# lost, train as two nodes over tcp and over rdma (in_two_guests.sh). Exits 77 where guests cannot be
# made.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "${1:?usage: tests/rdma/run_two.sh BIN}" && pwd)
VM_SECONDS=900 VM_LOSS=1% exec "$here/two_vms.sh" "$here/in_two_guests.sh" "$bin"

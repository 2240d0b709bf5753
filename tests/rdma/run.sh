#!/usr/bin/env bash
# tests/rdma/run.sh BIN: RDMA on a machine without a card: in one boot of a guest that has a port in
# software, the suites of comm over rdma, several processes, a training whose losses are those over
# tcp, and faults (in_guest.sh). Exits 77 where a guest cannot be made.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "${1:?usage: tests/rdma/run.sh BIN}" && pwd)
VM_SECONDS=900 exec "$here/vm.sh" "$here/in_guest.sh" "$bin"

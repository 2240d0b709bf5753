"""Machines and clusters for fault_matrix.py: namespaces where that is allowed, else 127.x.y.z."""

import contextlib
import ctypes
import glob
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PORT = 29881
SECRET = "of the fault matrix"
MAX_WAIT = 60  # for anything; a run that takes longer has failed

_libc = ctypes.CDLL(None, use_errno=True)
_INSIDE = "BRAID_FAULT_LAB"


def isolate():
    """Comes back with namespaces of its own, in which all that is started, mounted or connected
    goes with this process, however it ends. Returns why not, where that is not allowed."""
    own = "unshare --mount --net --pid --ipc --fork --kill-child --mount-proc".split()
    if os.environ.get(_INSIDE):
        for folder in ("/run", "/dev/shm"):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        os.makedirs("/run/netns")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return ""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "nft", "tc", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            return "no program '%s' (packages iproute2, nftables, util-linux)" % tool
    if subprocess.run(own + ["true"], stderr=subprocess.DEVNULL).returncode != 0:
        return "no namespaces here, as in a container without privileges"
    os.environ[_INSIDE] = "1"
    os.execvp(own[0], own + [sys.executable] + sys.argv)


class LoopbackHosts:
    """Without privileges: addresses of this machine."""

    has_network = False

    def __init__(self, index, count):
        self.addresses = ["127.9.%d.%d" % (index, k + 1) for k in range(count)]

    def prefix(self, k):
        return []

    @contextlib.contextmanager
    def entered(self, k):
        yield

    def close(self):
        pass


class NamespaceHosts:
    """Each machine has a network of its own; a switch in yet another one joins them."""

    has_network = True

    def __init__(self, index, count):
        self.names = ["lab%d-%d" % (index, k) for k in range(count)]
        self.switch = "lab%d-switch" % index
        self.addresses = ["10.98.%d.%d" % (index, k + 1) for k in range(count)]
        for name in self.names + [self.switch]:
            self.ip("netns add " + name)
        self.ip("-n %s link add br0 type bridge" % self.switch)
        self.ip("-n %s link set br0 up" % self.switch)
        for k, name in enumerate(self.names):
            self.ip(
                "-n %s link add port%d type veth peer name eth0 netns %s" % (self.switch, k, name)
            )
            self.ip("-n %s link set port%d master br0 up" % (self.switch, k))
            self.ip("-n %s addr add %s/24 dev eth0" % (name, self.addresses[k]))
            self.ip("-n %s link set eth0 up" % name)
            self.ip("-n %s link set lo up" % name)

    @staticmethod
    def ip(words):
        subprocess.run(["ip"] + words.split(), check=True)

    def prefix(self, k):
        return ["nsenter", "--net=/run/netns/" + self.names[k]]

    @contextlib.contextmanager
    def entered(self, k):
        """The calling thread is on machine k meanwhile."""
        outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        inside = os.open("/run/netns/" + self.names[k], os.O_RDONLY)
        try:
            assert _libc.setns(inside, 0x40000000) == 0, os.strerror(ctypes.get_errno())
            yield
        finally:
            assert _libc.setns(outside, 0x40000000) == 0
            os.close(outside)
            os.close(inside)

    def set_link(self, k, state):
        self.ip("-n %s link set port%d %s" % (self.switch, k, state))

    def drop(self, k, rule):
        """Machine k does not hear what matches the rule of nft."""
        table = "table inet fault { chain in { type filter hook input priority 0; %s drop; }; }"
        subprocess.run(self.prefix(k) + ["nft", table % rule], check=True)

    def drop_nothing(self, k):
        subprocess.run(
            self.prefix(k) + ["nft", "delete table inet fault"], stderr=subprocess.DEVNULL
        )

    def limit_rate(self, k, rate):
        words = "tc qdisc add dev eth0 root tbf rate %s burst 16kb latency 400ms" % rate
        subprocess.run(self.prefix(k) + words.split(), check=True)

    def limit_nothing(self, k):
        subprocess.run(
            self.prefix(k) + "tc qdisc del dev eth0 root".split(), stderr=subprocess.DEVNULL
        )

    def close(self):
        for name in self.names + [self.switch]:
            self.ip("netns del " + name)


class Failed(Exception):
    """What a run did that it should not have done."""


class Missed(Exception):
    """The fault came when the phase was not there; nothing is known."""


def write_samples(path):
    """An .npy file [96, 8] of float32."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (96, 8), }"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    values = [((i * 37) % 101) / 101.0 - 0.5 for i in range(96 * 8)]
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack("<%df" % len(values), *values))


class PhaseProgram:
    """Stays in every phase as long as it is told to."""

    phases = None  # all
    skips = {}
    result = r"loss [\d.e-]+\n"

    def __init__(self, name, is_of_ranks):
        self.name, self.is_of_ranks = name, is_of_ranks

    def flags(self, cluster, k):
        flags = ["--hold=" + cluster.folder, "--samples=samples.npy"]
        if k == 0 or self.is_of_ranks:
            flags += ["--save=" + cluster.save_folder]
        if k == 2:
            flags += ["--slow"]
        return flags


class DdpMnist:
    """An example as it is: it joins, and trains for a while."""

    name, is_of_ranks = "ddp_mnist", True
    phases = ("joining", "stepping")
    skips = {  # faults, and why
        "missing data file": "it reads no file",
        "busy port": "it waits five minutes for its ranks",
        "wrong secret": "it waits five minutes for its ranks",
        "slow peer": "its gradients take hours at that rate",
    }
    result = r"(epoch \d+: loss [\d.]+, accuracy [\d.]+\n)+"

    def flags(self, cluster, k):
        return ["--epochs=3"]


PROGRAMS = {
    program.name: program
    for program in (PhaseProgram("phase_program", False), PhaseProgram("phase_ranks", True), DdpMnist())
}


class Cluster:
    """The nodes of one run, as processes."""

    _runs = 0

    def __init__(self, hosts, bin_dir, folder, nodes, program, mix="cpu", transport="", slack=0):
        Cluster._runs += 1
        self.mark = "BRAID_FAULT_RUN=%d.%d.%s" % (os.getpid(), Cluster._runs, folder)
        self.hosts, self.bin_dir, self.folder, self.nodes = hosts, bin_dir, folder, nodes
        self.program, self.slack = program, slack
        self.save_folder = folder + "/save"  # all nodes see it
        self.stranger = len(hosts.addresses) - 1  # a machine that is no node
        self.secrets = {}  # of nodes that do not have the right one
        self.flags = {k: ["--transport=" + transport] if transport else [] for k in range(nodes)}
        self.processes = {}
        self.ended = {}  # node: when
        self.closing = contextlib.ExitStack()  # what the run's end undoes
        os.makedirs(folder + "/tmp")
        with open(folder + "/nodes.txt", "w") as file:
            for k in range(nodes):
                kind = "lagging" if mix == "lagging" or (mix == "mixed" and k % 2 == 1) else "cpu"
                file.write("%s:%d %s:1\n" % (hosts.addresses[k], PORT, kind))
        for k in range(nodes):
            os.makedirs(self.folder_of(k))
            write_samples(self.folder_of(k) + "/samples.npy")

    def folder_of(self, k):
        return "%s/node%d" % (self.folder, k)

    def name(self, k):
        if self.program.is_of_ranks:  # which have no list of addresses
            return "rank %d" % k
        return "node %d (%s)" % (k, self.hosts.addresses[k])

    def environment(self, secret, rank=None):
        name, value = self.mark.split("=", 1)
        own = {name: value, "BRAID_AUTH_TOKEN": secret, "TMPDIR": self.folder + "/tmp"}
        if rank is not None and self.program.is_of_ranks:
            own.update(RANK=str(rank), WORLD_SIZE=str(self.nodes))
            own.update(MASTER_ADDR=self.hosts.addresses[0], MASTER_PORT=str(PORT))
        return {**os.environ, **own}

    def add_flag(self, flag):
        """What the master does; ranks do the same."""
        for k in range(self.nodes if self.program.is_of_ranks else 1):
            self.flags[k].append(flag)

    def limit_joining(self, seconds):
        """Ranks have no flag for it."""
        for k in range(0 if self.program.is_of_ranks else self.nodes):
            self.flags[k].append("--join_timeout=%ds" % seconds)

    def hold(self, phase):
        open("%s/hold.%s" % (self.folder, phase), "w").close()

    def release(self, phase):
        with contextlib.suppress(FileNotFoundError):
            os.remove("%s/hold.%s" % (self.folder, phase))

    def start(self, k):
        command = [self.bin_dir + "/" + self.program.name] + self.program.flags(self, k)
        if not self.program.is_of_ranks:
            command += ["--nodes=../nodes.txt", "--node_rank=%d" % k]
        command += self.flags[k]
        with open(self.folder_of(k) + "/out", "w") as out:
            with open(self.folder_of(k) + "/err", "w") as err:
                self.processes[k] = subprocess.Popen(
                    self.hosts.prefix(k) + command,
                    cwd=self.folder_of(k),
                    env=self.environment(self.secrets.get(k, SECRET), rank=k),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )

    def output(self, k, stream="out"):
        with open("%s/%s" % (self.folder_of(k), stream), errors="replace") as file:
            return file.read()

    def last_error(self, k):
        """The cause; where the node's last events are belongs to each node alone."""
        lines = self.output(k, "err").splitlines()
        return re.sub(r"; its last events: \S+$", "", lines[-1]) if lines else ""

    def poll(self):
        for k, process in self.processes.items():
            if k not in self.ended and process.poll() is not None:
                self.ended[k] = time.monotonic()

    def await_that(self, what, is_so, seconds=MAX_WAIT):
        limit = time.monotonic() + seconds
        while True:
            self.poll()
            if is_so():
                return
            if time.monotonic() > limit:
                raise Failed("not so within %.0f s: %s" % (seconds, what))
            time.sleep(0.003)

    def await_end(self, nodes, seconds=MAX_WAIT):
        what = "the end of nodes %s" % sorted(nodes)
        self.await_that(what, lambda: all(k in self.ended for k in nodes), seconds)

    def status(self, secret=SECRET, seconds=2):
        """What `braid status` says, from a machine that is no node."""
        asked = subprocess.run(
            self.hosts.prefix(self.stranger)
            + [self.bin_dir + "/braid", "status", "--timeout=%ds" % seconds]
            + ["%s:%d" % (self.hosts.addresses[0], PORT)],
            env=self.environment(secret),
            capture_output=True,
            text=True,
        )
        return asked.stdout or asked.stderr

    def await_status(self, pattern):
        text = [""]

        def is_so():
            if 0 in self.ended:
                raise Failed("node 0 ended before its status was '%s'" % pattern)
            text[0] = self.status()
            return re.search("^(the session is )?" + pattern, text[0], re.MULTILINE) is not None

        try:
            self.await_that("status '%s'" % pattern, is_so, 30)
        except Failed as failed:
            raise Failed("%s; the last was: %s" % (failed, text[0]))

    def pid(self, k):
        return self.processes[k].pid  # nsenter has become the program

    def signal(self, k, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid(k), number)

    def ports(self, k):
        """On which node k listens; none once it has ended."""
        self.poll()
        if k in self.ended:
            return []
        inodes = set()
        for link in glob.glob("/proc/%d/fd/*" % self.pid(k)):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(link))
        ports = []
        with open("/proc/%d/net/tcp" % self.pid(k)) as table:
            for line in table.readlines()[1:]:
                words = line.split()
                if words[3] == "0A" and "socket:[%s]" % words[9] in inodes:
                    ports.append(int(words[1].split(":")[1], 16))
        return ports

    def control_ports(self, k):
        return [port for port in self.ports(k) if port == PORT]

    def data_ports(self, k):
        return [port for port in self.ports(k) if port != PORT]

    def left_processes(self):
        found = []
        for folder in glob.glob("/proc/[0-9]*"):
            with contextlib.suppress(OSError):
                with open(folder + "/environ", "rb") as file:
                    if self.mark.encode() not in file.read().split(b"\0"):
                        continue
                with open(folder + "/stat") as file:
                    if file.read().rsplit(") ", 1)[1][0] not in "ZX":
                        found.append(int(os.path.basename(folder)))
        return found

    def check_nothing_is_left(self, may_leave):
        self.await_that("no process is left", lambda: not self.left_processes(), 3)
        told = "".join(self.output(k, "err") for k in self.processes)  # where last events are
        left = [name for name in os.listdir(self.folder + "/tmp") if name not in told]
        for path in glob.glob(self.folder + "/**/*.tmp", recursive=True):
            if not re.search(may_leave, path):
                left.append(path)
        if left:
            raise Failed("files are left: %s" % left)
        if not self.hosts.has_network:
            return
        # A process that another run is just starting still has copies of this one's sockets.
        for k in range(self.nodes):
            what = "nobody listens on machine %d any more" % k
            self.await_that(what, lambda: not self.listening(k), 3)

    def listening(self, k):
        """On machine k, whoever it is."""
        with self.hosts.entered(k), open("/proc/thread-self/net/tcp") as table:
            return [line for line in table.readlines()[1:] if line.split()[3] == "0A"]

    def close(self):
        self.closing.close()
        for k, process in self.processes.items():
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in self.left_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Knocker:
    """Connections of a stranger, each made with what the fault wants of it."""

    def __init__(self, cluster):
        self.cluster, self.kept = cluster, []

    def connect(self, host, port):
        with self.cluster.hosts.entered(self.cluster.stranger):
            return socket.create_connection((self.cluster.hosts.addresses[host], port), timeout=5)

    def is_open(self, host, ports):
        """Tries many ports at once, as scanners do; returns those that answered."""
        answered = []
        with self.cluster.hosts.entered(self.cluster.stranger):
            for port in ports:
                with socket.socket() as tried:
                    tried.settimeout(0.5)
                    if tried.connect_ex((self.cluster.hosts.addresses[host], port)) == 0:
                        answered.append(port)
        return answered

    def keep(self, connection):
        self.kept.append(connection)

    def close(self):
        for connection in self.kept:
            connection.close()


def in_thread(function):
    """Runs it beside; `entered` is of the thread alone."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread

"""The fault matrix as data: faults x phases x roles, and what must come of each."""

import glob
import os
import random
import re
import signal
import socket
import struct
import subprocess
import time

from fault_lab import PORT, Failed, Knocker, in_thread

PHASES = ("joining", "compiling", "connecting", "stepping", "saving", "closing")
ROLES = {"worker": 1, "master": 0}

# In seconds. A closed link is seen at once, silence after 5 s; 3 s later all have ended.
AT_ONCE = 3.0
SILENCE = 5.0 + 3.0
CLOSE_LIMIT = 15.0 + 3.0

WHILE = {
    "compiling": "while compiling job 'train'",
    "connecting": "while connecting job 'train'",
    "stepping": "while stepping job '(train|evaluate)'",
    "saving": "while saving to '[^']*'",
    "closing": "while closing",
}
# Between two calls of a session it waits for its program: saves again and again, for instance.
BETWEEN_CALLS = "while waiting for the program"


def lost_node(cluster, phase, nodes):
    """That one of `nodes` is lost, as the others say it."""
    names = "(%s)" % "|".join(re.escape(cluster.name(k)) for k in nodes)
    return "joining: %s lost: " % names if phase == "joining" else names + " lost " + WHILE[phase]


def lost_master(phase):
    return "joining: master lost: " if phase == "joining" else "master lost " + WHILE[phase]


RANKS_JOIN_LIMIT = 15  # phase_ranks has it; there is no flag


def go_on_from_compiling(cluster):
    """For faults that wait for the next phase; returns when."""
    cluster.await_status("compiling job 'train'")
    began = time.monotonic()
    cluster.release("compiling")
    return began


class GoesOn:
    """The job ends well, with the same loss."""


class Ends:
    """All survivors end within so many seconds, with exit code 1, and all for the same cause."""

    def __init__(self, within, cause=None, others=None):
        # Of the cause: text for all nodes, or for the victim if `others` is given. None: the
        # victim is lost, or those that it does not reach.
        self.within, self.cause, self.others = within, cause, others

    def causes(self, cluster, cell, fault):
        """[(nodes, cause)]: nodes of one entry say the same."""
        victim = ROLES[cell.role]
        others = [k for k in range(cluster.nodes) if k != victim]
        if self.cause is not None:
            if self.others is None:
                return [(range(cluster.nodes), self.cause)]
            return [([victim], self.cause), (others, self.others)]
        if cell.role == "master":
            return [
                ([0], lost_node(cluster, cell.phase, others)),
                (others, lost_master(cell.phase)),
            ]
        return [
            ([victim], lost_master(cell.phase)),
            (others, lost_node(cluster, cell.phase, [victim])),
        ]


class Fault:
    """One row. `cells` says what comes of it by phase, by role, by both, or by "" (the rest): an
    Ends, a GoesOn, or, as text, why it cannot be."""

    name = ""
    cells = {}
    rank_cells = {}  # where programs of ranks differ
    quick = ()  # "phase/role": what the quick tier tries
    needs_network = False

    def needs_data_port(self, cell):
        return False

    victim_survives = False  # as a process that ends by itself

    def expected(self, phase, role, program):
        if program.phases is not None and phase not in program.phases:
            return "%s cannot be held there" % program.name
        if self.name in program.skips:
            return program.skips[self.name]
        for cells in (self.rank_cells if program.is_of_ranks else {}, self.cells):
            for key in (phase + "/" + role, phase, role, ""):
                if key in cells:
                    return cells[key]
        raise KeyError((self.name, phase, role))

    def awaits_phase(self, cell):
        """Whether it is to be reached before inject."""
        return True

    def begin(self, cluster, cell):
        """Before the nodes start."""

    def inject(self, cluster, cell):
        """In the phase. Returns when."""
        raise NotImplementedError

    def after(self, cluster, cell):
        """When all survivors have ended."""

    def may_leave(self, cell):
        """A regular expression of *.tmp files that may be left."""
        return "$^"


class Early(Fault):
    """Made before the phase begins."""

    victim_survives = True

    def awaits_phase(self, cell):
        return False


class Kill(Fault):
    name = "kill -9"
    cells = {"": Ends(AT_ONCE)}
    quick = tuple(phase + "/" + role for phase in PHASES for role in ROLES)

    def inject(self, cluster, cell):
        began = time.monotonic()
        cluster.signal(ROLES[cell.role], signal.SIGKILL)
        return began

    def may_leave(self, cell):
        # Of a killed save; the next one removes it.
        is_saving = (cell.phase, cell.role) == ("saving", "master")
        return r"/save/(step-\d+(\.\d+)?|latest)\.tmp" if is_saving else "$^"


class Stop(Fault):
    name = "SIGSTOP"
    cells = {"": Ends(SILENCE)}
    quick = ("joining/master", "connecting/worker", "stepping/worker", "closing/master")

    def inject(self, cluster, cell):
        began = time.monotonic()
        cluster.signal(ROLES[cell.role], signal.SIGSTOP)
        return began

    def after(self, cluster, cell):
        # Whoever wakes up later finds the session over.
        victim = ROLES[cell.role]
        cluster.signal(victim, signal.SIGCONT)
        cluster.await_end([victim], AT_ONCE + cluster.slack)
        if cluster.processes[victim].returncode != 1:
            raise Failed("woken up, it ended with %s" % cluster.processes[victim].returncode)


class LinkDown(Fault):
    name = "link down"
    cells = {"": Ends(SILENCE)}
    quick = ("stepping/worker", "closing/worker")
    needs_network = True
    victim_survives = True

    def inject(self, cluster, cell):
        victim = ROLES[cell.role]
        cluster.closing.callback(cluster.hosts.set_link, victim, "up")
        began = time.monotonic()
        cluster.hosts.set_link(victim, "down")
        return began


class HalfOpen(Fault):
    """The victim is heard, and hears nobody."""

    name = "half-open"
    # Its next heartbeat, up to 1 s later, still comes through; those that are not acknowledged
    # then hold up what follows.
    cells = {"": Ends(1.0 + SILENCE)}
    quick = ("saving/worker", "stepping/master")
    needs_network = True
    victim_survives = True

    def inject(self, cluster, cell):
        victim = ROLES[cell.role]
        cluster.closing.callback(cluster.hosts.drop_nothing, victim)
        began = time.monotonic()
        cluster.hosts.drop(victim, "iifname eth0")
        return began


class BrokenPair(Fault):
    """Two workers do not hear each other, and both hear the master."""

    name = "broken pair"
    cells = {
        "joining": "no link yet: found while connecting",
        "compiling": "no link yet: found while connecting",
        "connecting": "the links are made: as stepping",
        "master": "a pair with the master is half-open, above",
        "closing": "links are closed already",
        "": Ends(SILENCE, "link (1-2|2-1) lost while "),
    }
    quick = ("stepping/worker",)
    needs_network = True
    victim_survives = True

    def inject(self, cluster, cell):
        cluster.closing.callback(cluster.hosts.drop_nothing, 1)
        began = time.monotonic()
        cluster.hosts.drop(1, "ip saddr " + cluster.hosts.addresses[2])
        return began


class Blocked(Early):
    """A firewall lets the control port pass and data ports not."""

    name = "data port blocked"
    cells = {
        "connecting/worker": Ends(
            SILENCE,
            r"while connecting job 'train': node 1 did not connect to node 2 within 5\.0 s: node 2 "
            r"-> node 1: [\d.]+:\d+ from [\d.]+ \(eth0\): no connection within 3 s \(Connection "
            r"timed out\): packets are dropped between",
        ),
        "connecting/master": Ends(
            SILENCE,
            r"while connecting job 'train': node 0 did not connect to node [12] within 5\.0 s: node "
            r"[12] -> node 0: [\d.]+:\d+ from [\d.]+ \(eth0\): no connection within 3 s",
        ),
        "": "connections are made while connecting",
    }
    # Ranks connect with their first call, which is the session's start.
    rank_cells = {
        "joining/worker": Ends(
            SILENCE,
            r"while waiting for the program: node 1 did not connect to node 2 within 5\.0 s: node 2 "
            r"-> node 1: .*: packets are dropped between",
        ),
        "connecting": "ranks connect right after joining",
    }
    quick = ("connecting/worker", "joining/worker")
    needs_network = True

    def begin(self, cluster, cell):
        victim = ROLES[cell.role]
        cluster.closing.callback(cluster.hosts.drop_nothing, victim)
        cluster.hosts.drop(victim, "tcp dport != %d tcp flags & (syn | ack) == syn" % PORT)
        cluster.hold("compiling")
        cluster.release("connecting")

    def inject(self, cluster, cell):
        if cell.phase == "joining":
            return time.monotonic()
        return go_on_from_compiling(cluster)


class BlackHole(Blocked):
    """Small packets pass between two workers, large ones do not: a wrong MTU."""

    name = "large packets lost"
    cells = {
        "connecting/worker": Ends(
            SILENCE,
            r"link (1-2|2-1) lost while connecting job 'train': .*"
            r"(bytes did not come through within 5 s; .* MTU|Connection timed out)",
        ),
        "connecting/master": "plans go the same way as data: node lost, as half-open",
        "": "links are checked while connecting",
    }
    rank_cells = {
        "joining/worker": Ends(
            SILENCE,
            r"link (1-2|2-1) lost while waiting for the program: .*"
            r"(bytes did not come through within 5 s; .* MTU|Connection timed out)",
        ),
        "connecting": "ranks connect right after joining",
    }

    def begin(self, cluster, cell):
        super().begin(cluster, cell)
        cluster.hosts.drop_nothing(1)
        cluster.hosts.drop(1, "ip saddr %s ip length > 1000" % cluster.hosts.addresses[2])


class Slow(Fault):
    """1 Mbit/s, and every other half second the process does not run."""

    name = "slow peer"
    cells = {"": GoesOn()}
    quick = ("stepping/worker", "joining/master")

    def inject(self, cluster, cell):
        victim = ROLES[cell.role]
        if cluster.hosts.has_network:
            cluster.closing.callback(cluster.hosts.limit_nothing, victim)
            cluster.hosts.limit_rate(victim, "1mbit")
        pulses = 4

        def pulse():
            for _ in range(pulses):
                cluster.signal(victim, signal.SIGSTOP)
                time.sleep(0.5)
                cluster.signal(victim, signal.SIGCONT)
                time.sleep(0.5)

        self_pulse = in_thread(pulse)
        cluster.closing.callback(self_pulse.join)
        return time.monotonic()


class NeverCloses(Fault):
    """A user's kernel on node 2 does not go away: what holds the phase is the fault."""

    name = "never closes"
    cells = {
        "closing/worker": Ends(
            CLOSE_LIMIT, r"closing the session: no answer from node 2( \([\d.]+\))? within 15 s"
        ),
        "closing/master": "the same end",
        "": "no answer is no failure, as long as heartbeats come: a stall report names the node",
    }
    victim_survives = True

    def inject(self, cluster, cell):
        return time.monotonic()


class BusyPort(Early):
    name = "busy port"
    cells = {
        "joining/master": Ends(
            6 + 3,
            r"control port: cannot listen on [\d.]+:%d: another process does" % PORT,
            others=r"joining: did not get through to the master within 6\.0 s \(--join_timeout\): "
            r"[\d.]+:%d: .*" % PORT,
        ),
        "worker": "data ports are any free ones",
        "": "the port is taken when joining begins",
    }
    rank_cells = {
        "joining/master": Ends(
            RANKS_JOIN_LIMIT + 3,
            r"control port: cannot listen on [\d.]+:%d: another process does" % PORT,
            others=r"joining: did not get through to the master within 15\.0 s",
        ),
    }
    quick = ("joining/master",)

    def begin(self, cluster, cell):
        cluster.limit_joining(6)
        with cluster.hosts.entered(0):
            busy = socket.create_server((cluster.hosts.addresses[0], PORT))
        cluster.closing.callback(busy.close)

    def inject(self, cluster, cell):
        began = time.monotonic()
        cluster.await_end([0], AT_ONCE + cluster.slack)
        return began

    def after(self, cluster, cell):
        cluster.closing.close()


FULL_DISK_BYTES = 4096  # a page, as small as they are


class FullDisk(Early):
    name = "full disk"
    cells = {
        "compiling/master": Ends(AT_ONCE, r"--explain=.*bytes could be written"),
        "stepping/master": Ends(
            AT_ONCE,
            r"node 0 failed while stepping job 'train': .*--metrics_json=.*: not all lines .*"
            "No space left",
        ),
        "saving/master": Ends(
            AT_ONCE, r"node 0( \([\d.]+\))?: saving to '.*': cannot write .*No space left on device"
        ),
        "worker": "the master has taken the space for all of a checkpoint",
        "": "nothing is written",
    }
    rank_cells = {
        "compiling/master": "programs of ranks do not explain",
        "stepping/master": "programs of ranks write no metrics",
    }
    quick = ("saving/master", "stepping/master")
    needs_network = True  # mounts, in fact
    files = {"compiling": "--explain=%s/explain.txt", "stepping": "--metrics_json=%s/metrics.json"}

    def begin(self, cluster, cell):
        disk = cluster.folder + "/disk"
        os.makedirs(disk)
        size = "12m" if cell.phase == "saving" else str(FULL_DISK_BYTES)
        mount = ["mount", "-t", "tmpfs", "-o", "size=" + size, "tmpfs", disk]
        subprocess.run(mount, check=True)
        cluster.closing.callback(subprocess.run, ["umount", "--lazy", disk], check=True)
        if cell.phase == "saving":
            os.symlink(disk, cluster.folder + "/save")
        else:
            cluster.flags[0].append(self.files[cell.phase] % disk)

    def inject(self, cluster, cell):
        if cell.phase == "saving":
            # One checkpoint fits.
            first = cluster.folder + "/save/latest"
            cluster.await_that("a first checkpoint", lambda: os.path.exists(first))
            return time.monotonic()
        cluster.await_status(cell.phase + " job 'train'")
        began = time.monotonic()
        cluster.release(cell.phase)
        if cell.phase == "stepping":
            # Step by step until no line fits.
            metrics = cluster.folder + "/disk/metrics.json"
            cluster.await_that("a full disk", lambda: os.path.getsize(metrics) == FULL_DISK_BYTES)
            began = time.monotonic()
        return began


class MissingFile(Early):
    """The file of samples is not there; while stepping, it is cut."""

    name = "missing data file"
    cells = {
        "compiling/master": Ends(AT_ONCE, "cannot open 'samples.npy': No such file"),
        "connecting/worker": Ends(AT_ONCE, "node 1: .*cannot open 'samples.npy': No such file"),
        "stepping/worker": Ends(
            AT_ONCE, "node 1 failed while stepping job 'train': .*'samples.npy' was cut"
        ),
        "stepping/master": Ends(
            AT_ONCE, "node 0 failed while stepping job 'train': .*'samples.npy' was cut"
        ),
        "compiling/worker": "a worker opens its files while connecting",
        "connecting/master": "the master opens its files while compiling",
        "": "no data file is read",
    }
    rank_cells = {
        "compiling/worker": Ends(
            AT_ONCE, "node 1: read 'read': cannot open 'samples.npy': No such file"
        ),
        "connecting": "each rank opens its files while compiling",
    }
    quick = ("connecting/worker", "stepping/worker", "compiling/worker")

    def begin(self, cluster, cell):
        if cell.phase == "stepping":
            return
        os.remove(cluster.folder_of(ROLES[cell.role]) + "/samples.npy")
        cluster.release("connecting")
        cluster.hold("compiling")

    def inject(self, cluster, cell):
        if cell.phase == "stepping":
            cluster.await_status("stepping job 'train'")
            began = time.monotonic()
            os.truncate(cluster.folder_of(ROLES[cell.role]) + "/samples.npy", 100)
            return began
        return go_on_from_compiling(cluster)


class OtherFile(Early):
    """The samples of a worker are others than the master's, in a file of the same name and form."""

    name = "other data file"
    cells = {
        "connecting/worker": Ends(
            AT_ONCE, "node 1: .*this node's copy of the data .*samples.npy' is another"
        ),
        "connecting/master": "the master's are the samples",
        "": "no data file is opened",
    }
    rank_cells = {
        "compiling/worker": Ends(
            AT_ONCE, "Compile of job 'train': all ranks record the same, and operator 0 is"
        ),
        "connecting/worker": "the ranks' recordings differ while compiling",
    }
    quick = ("connecting/worker", "compiling/worker")

    def begin(self, cluster, cell):
        path = cluster.folder_of(ROLES[cell.role]) + "/samples.npy"
        with open(path, "rb") as file:
            samples = file.read()
        with open(path, "wb") as file:
            file.write(samples[:-4] + samples[-8:-4])
        cluster.release("connecting")
        cluster.hold("compiling")

    def inject(self, cluster, cell):
        return go_on_from_compiling(cluster)


class Checkpoint(Early):
    """Each node has checkpoints of its own: another one on the worker, or none."""

    cells = {
        "saving/master": "the master's is the checkpoint",
        "": "no checkpoint is loaded",
    }
    quick = ("saving/worker",)

    def begin(self, cluster, cell):
        for k in self.steps_of:
            command = [cluster.bin_dir + "/phase_program", "--devices=cpu:1", "--save=from"]
            command += ["--samples=samples.npy", "--steps=%d" % self.steps_of[k]]
            folder = cluster.folder_of(k)
            subprocess.run(command, cwd=folder, check=True, capture_output=True)
            os.rename("%s/from/step-%d" % (folder, self.steps_of[k]), folder + "/from/step-1")
        cluster.add_flag("--load=from/step-1")
        cluster.hold("compiling")

    def inject(self, cluster, cell):
        return go_on_from_compiling(cluster)


class OtherCheckpoint(Checkpoint):
    name = "other checkpoint"
    cells = {
        "saving/worker": Ends(
            AT_ONCE, "node 1: .*this node's 'from/step-1' is another checkpoint than the master's"
        ),
        **Checkpoint.cells,
    }
    steps_of = {0: 1, 1: 2, 2: 1}


class NoCheckpoint(Checkpoint):
    """The master reads it and sends it, and writes what the others cannot write."""

    name = "no checkpoint"
    cells = {"saving/worker": GoesOn(), **Checkpoint.cells}
    steps_of = {0: 1, 2: 1}

    def begin(self, cluster, cell):
        super().begin(cluster, cell)
        cluster.save_folder = "save"  # each node has one of its own

    def after(self, cluster, cell):
        for what in (
            "the master reads 'from/step-1' and sends it",
            "the master gathers all variables and writes them",
        ):
            if what not in cluster.output(0, "err"):
                raise Failed("the master does not say that " + what)
        # What was loaded is what was saved next.
        contents = []
        for path in ("from/step-1", "save/step-1"):
            (found,) = glob.glob("%s/%s*/model-*.safetensors" % (cluster.folder_of(0), path))
            with open(found, "rb") as file:
                contents.append(file.read())
        if contents[0] != contents[1]:
            raise Failed("the nodes have another checkpoint than the master's")


class WrongSecret(Fault):
    """A node has another secret than the rest; later, a stranger has."""

    name = "wrong secret"
    cells = {
        "joining/worker": Ends(
            6 + 3,
            "joining: .*has another shared secret",
            others=r"joining: node 1 \([\d.]+\) did not join within 6\.0 s \(--join_timeout\)",
        ),
        "joining/master": Ends(
            6 + 3,
            r"joining: node 1 \([\d.]+\).*, node 2 \([\d.]+\).* did not join within 6\.0 s "
            r"\(--join_timeout\).*has another shared secret",
            others="joining: .*has another shared secret",
        ),
        "worker": "workers ask nobody for the secret",
        "": GoesOn(),
    }
    rank_cells = {
        "joining/worker": Ends(
            RANKS_JOIN_LIMIT + 3,
            "joining: .*has another shared secret",
            others=r"joining: rank 1 did not join within 15\.0 s",
        ),
        "joining/master": Ends(
            RANKS_JOIN_LIMIT + 3,
            r"joining: rank 1, rank 2 did not join within 15\.0 s.*has another shared secret",
            others="joining: .*has another shared secret",
        ),
    }
    quick = ("joining/worker", "stepping/master")
    victim_survives = True

    def awaits_phase(self, cell):
        return cell.phase != "joining"

    def begin(self, cluster, cell):
        if cell.phase != "joining":
            return
        cluster.secrets[ROLES[cell.role]] = "another one"
        cluster.limit_joining(6)

    def inject(self, cluster, cell):
        began = time.monotonic()
        if cell.phase != "joining":
            answer = cluster.status(secret="another one")
            if "has another shared secret" not in answer:
                raise Failed("with a wrong secret, `braid status` says %r" % answer)
        return began


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(256),
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"BRDC" + b"\xff" * 64,
    b"BRDG" + b"\xff" * 64,
    b"GBRD" + b"\x01" * 24,
    struct.pack("<IIII", 0x43445242, 1, 0x7FFFFFFF, 0),
    struct.pack("<IBBHHH", 0x44524247, 1, 1, 2, 1, 0) + bytes(16),
    bytes(100_000),
]


class Stranger(Fault):
    """Somebody who finds a port."""

    quick = ("joining/master", "stepping/worker")
    ports_of = None

    def ports(self, cluster, cell):
        ports = self.ports_of(cluster, ROLES[cell.role])
        if not ports:
            raise Failed("%s has no such port" % cluster.name(ROLES[cell.role]))
        return ports

    def inject(self, cluster, cell):
        knocker = Knocker(cluster)
        cluster.closing.callback(knocker.close)
        for port in self.ports(cluster, cell):
            self.knock(knocker, ROLES[cell.role], port)
        return time.monotonic()


CONTROL_CELLS = {"worker": "only the master has a control port", "": GoesOn()}
DATA_CELLS = {
    "joining": "data ports are opened when all have joined",
    "closing": "data ports are closed already",
    "": GoesOn(),
}


class Garbage(Stranger):
    def knock(self, knocker, host, port):
        chance = random.Random(7)
        for garbage in GARBAGE + [chance.randbytes(chance.randrange(2000)) for _ in range(40)]:
            connection = knocker.connect(host, port)
            with connection:
                try:
                    connection.sendall(garbage)
                    if chance.random() < 0.5:
                        connection.settimeout(0.2)
                        connection.recv(1000)
                except OSError:
                    pass


class GarbageControl(Garbage):
    name, cells = "garbage on the control port", CONTROL_CELLS
    quick = ("joining/master", "connecting/master", "stepping/master")
    ports_of = staticmethod(lambda cluster, k: cluster.control_ports(k))


class GarbageData(Garbage):
    name, cells = "garbage on data ports", DATA_CELLS
    quick = ("compiling/worker", "stepping/worker")
    ports_of = staticmethod(lambda cluster, k: cluster.data_ports(k))

    def needs_data_port(self, cell):
        return True


class Leave(Stranger):
    """Connects and closes, with and without a reset; some stay and say nothing."""

    name = "connect and leave"
    cells = {
        "joining/worker": DATA_CELLS["joining"],
        "closing/worker": DATA_CELLS["closing"],
        "": GoesOn(),
    }
    ports_of = staticmethod(lambda cluster, k: cluster.ports(k))

    def needs_data_port(self, cell):
        return cell.role == "worker"

    def knock(self, knocker, host, port):
        for i in range(60):
            connection = knocker.connect(host, port)
            if i % 3 == 0:
                knocker.keep(connection)
                continue
            if i % 3 == 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


class Scan(Stranger):
    name = "port scan"
    cells = {"": GoesOn()}
    ports_of = staticmethod(lambda cluster, k: cluster.ports(k) or [PORT])

    def knock(self, knocker, host, port):
        found = knocker.is_open(host, range(max(1, port - 400), min(65535, port + 400)))
        if port not in found and knocker.cluster.ports(host):
            raise Failed("the scan did not find port %d" % port)


FAULTS = [
    fault()
    for fault in (
        Kill,
        Stop,
        LinkDown,
        HalfOpen,
        BrokenPair,
        Blocked,
        BlackHole,
        Slow,
        NeverCloses,
        BusyPort,
        FullDisk,
        MissingFile,
        OtherFile,
        OtherCheckpoint,
        NoCheckpoint,
        WrongSecret,
        GarbageControl,
        GarbageData,
        Leave,
        Scan,
    )
]


class Cell:
    def __init__(self, fault, phase, role, program):
        self.fault, self.phase, self.role = fault, phase, role
        self.expected = fault.expected(phase, role, program)
        self.key = (fault.name, phase, role)

    def __str__(self):
        return "%s/%s/%s" % self.key

    def is_quick(self):
        return self.phase + "/" + self.role in self.fault.quick


def all_cells(program):
    return [
        Cell(fault, phase, role, program)
        for fault in FAULTS
        for phase in PHASES
        for role in ROLES
    ]

"""How much of the link between two hosts an all_reduce uses: `python tests/multihost/link_bandwidth.py`.

One rank (or `--per-host` of them) on each of two namespaces with a link of 1 Gbit/s (two_hosts.py). In an all_reduce of S bytes
over two hosts each of them must send S bytes and receive S. The share is that of the rate of a plain TCP exchange both ways at
once, which is measured before and after. Says what it measures; asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence

from two_hosts import ADDRESSES, TwoHosts, two_hosts, why_not

MIB = 1 << 20
PORT = 7077
PIECE = MIB
CONNECT_SECONDS = 20
RUN_SECONDS = 300


def exchange(own: int, megabytes: int) -> float:
    """Sends so much to the other host while it sends as much; returns bytes per second in one direction."""
    other = _meet(own)
    with other:
        other.sendall(b"x")
        other.recv(1)
        piece = bytes(PIECE)
        started = time.perf_counter()

        def send() -> None:
            for _ in range(megabytes):
                other.sendall(piece)

        sender = threading.Thread(target=send)
        sender.start()
        left, into = megabytes * PIECE, bytearray(PIECE)
        while left:
            got = other.recv_into(into, min(left, PIECE))
            if not got:
                raise ConnectionError("the other host has closed the connection")
            left -= got
        sender.join()
        return megabytes * PIECE / (time.perf_counter() - started)


def _meet(own: int) -> socket.socket:
    if own == 0:
        with socket.create_server((ADDRESSES[0], PORT)) as server:
            server.settimeout(CONNECT_SECONDS)
            connection = server.accept()[0]
    else:
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                connection = socket.create_connection((ADDRESSES[0], PORT), timeout=CONNECT_SECONDS)
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    connection.settimeout(RUN_SECONDS)
    return connection


def reduce(sizes: Sequence[int], calls: int) -> None:
    """What each rank runs: rank 0 prints the seconds of each call for every size."""
    import numpy as np

    import tarantella as tnt

    if tnt.get_size() < 2:
        raise SystemExit("these ranks do not know of each other: build and install tarantella with its MPI plug-in")
    for size in sizes:
        values = np.ones(size * MIB // 4, np.float32)
        seconds = []
        for call in range(calls + 1):
            tnt.barrier()
            started = time.perf_counter()
            tnt.all_reduce(values)
            if call:  # the first one connects
                seconds.append(time.perf_counter() - started)
        if tnt.is_master_rank():
            print(json.dumps({"mib": size, "seconds": seconds}), flush=True)


def _own(*words: object) -> list[str]:
    return [sys.executable, __file__, *map(str, words)]


def measure_tcp(hosts: TwoHosts, megabytes: int) -> float:
    """The slower of the two directions, in bytes per second."""
    processes = [hosts.start(host, _own("--exchange", host, "--mib", megabytes)) for host in range(2)]
    rates = []
    for process in processes:
        out, err = process.communicate(timeout=RUN_SECONDS)
        if process.returncode:
            raise RuntimeError(f"the TCP exchange failed: {err}")
        rates.append(float(out))
    return min(rates)


def measure_all_reduce(hosts: TwoHosts, per_host: int, sizes: Sequence[int], calls: int) -> list[tuple[int, list[float]]]:
    """For each size in MiB, the seconds of each call."""
    names = ",".join(f"{address}:{per_host}" for address in ADDRESSES)
    words = [word for size in sizes for word in ("--mib", size)]
    command = ["mpirun", "--host", names, "-n", str(2 * per_host), "--bind-to", "none", "-x", "PATH"]
    result = hosts.run([*command, *_own("--reduce", "--calls", calls, *words)], timeout=RUN_SECONDS)
    if result.code:
        raise RuntimeError(f"the job failed: {result.said}")
    found = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return [(one["mib"], one["seconds"]) for one in found]


def main() -> int:
    """Measures and prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, action="append", help="sizes (default: 16 and 64)")
    parser.add_argument("--per-host", type=int, default=1, help="ranks on each host (default: 1)")
    parser.add_argument("--calls", type=int, default=7, help="timed calls of each size")
    parser.add_argument("--exchange", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--reduce", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = given.mib or [16, 64]
    if given.exchange is not None:
        print(exchange(given.exchange, sizes[0]))
        return 0
    if given.reduce:
        reduce(sizes, given.calls)
        return 0
    reason = why_not()
    if reason:
        print(f"link_bandwidth: skipped: {reason}")
        return 0
    with two_hosts() as hosts:
        before = measure_tcp(hosts, 256)
        measured = measure_all_reduce(hosts, given.per_host, sizes, given.calls)
        after = measure_tcp(hosts, 256)
    rate = (before + after) / 2
    print(f"plain TCP, both ways at once: {before / 1e6:.1f} and {after / 1e6:.1f} MB/s in each direction")
    for size, seconds in measured:
        median, best = statistics.median(seconds), min(seconds)
        ours = size * MIB / median
        print(
            f"all_reduce of {size} MiB: median {median * 1e3:.1f} ms, best {best * 1e3:.1f} ms, {ours / 1e6:.1f} MB/s in each "
            f"direction: {ours / rate:.1%} of the link"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

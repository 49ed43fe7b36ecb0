"""all_reduce among many hosts beside Open MPI's algorithms: `python tests/multihost/many_hosts.py --hosts 8`.

Each host is a network namespace with a link of 1 Gbit/s in each direction to a switch that does not block, and one rank or
`--per-host` of them on it. `tnt-bench all_reduce --against mpi` runs once with Open MPI's own choice and once with each of its
algorithms. Says the times; asserts nothing. Needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from two_hosts import BURST, LINK, TwoHosts, add_namespace, connect, environment_of, ip, new_name, remove, remove_stale, why_not

ALGORITHMS = {"its choice": 0, "recursive doubling": 3, "ring": 4, "segmented ring": 5, "Rabenseifner": 6}
RUN_SECONDS = 300


@contextlib.contextmanager
def switched_hosts(n: int, burst: int = BURST) -> Iterator[tuple[TwoHosts, list[str]]]:
    """So many hosts on a switch, and their addresses. burst: as for `connect`."""
    remove_stale()
    job = new_name()
    names = {f"10.77.1.{i + 1}": f"{job}h{i}" for i in range(n)}
    switch = f"{job}s"
    with tempfile.TemporaryDirectory(prefix="tnt-hosts-") as folder:
        try:
            add_namespace(switch)
            ip("-n", switch, "link", "add", "switch", "type", "bridge")
            ip("-n", switch, "link", "set", "switch", "up")
            for i, (address, name) in enumerate(names.items()):
                add_namespace(name)
                port = f"port{i}"
                ip("-n", name, "link", "add", LINK, "type", "veth", "peer", "name", port, "netns", switch)
                ip("-n", switch, "link", "set", port, "master", "switch", "up")
                connect(name, address, burst)
            yield TwoHosts(tuple(names.values()), environment_of(names, Path(folder))), list(names)
        finally:
            for name in [*names.values(), switch]:
                remove(name)


def times(
    hosts: TwoHosts, addresses: list[str], per_host: int, bench: Path, sizes: str, algorithm: int
) -> dict[int, tuple[float, float]]:
    """For each size in bytes, the microseconds of ours and of MPI's."""
    ranks = str(per_host * len(addresses))
    command = ["mpirun", "--host", ",".join(f"{address}:{per_host}" for address in addresses), "-n", ranks]
    command += ["--bind-to", "none", "-x", "PATH"]
    if algorithm:
        command += ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", str(algorithm)]
    backend = "mpi" if per_host == 1 else "hierarchical"
    bench_words = [bench, "all_reduce", "--backend", backend, "--against", "mpi", "--sizes", sizes, "--place", "out"]
    bench_words += ["--cache", "hot", "--limit", "off", "--check", "off", "--format", "jsonl"]
    result = hosts.run([*command, *map(str, bench_words)], timeout=RUN_SECONDS)
    if result.code:
        raise RuntimeError(f"the job failed: {result.said}")
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    return {row["bytes"]: (row["time_us_p50"], row["against_time_us_p50"]) for row in rows if "against_time_us_p50" in row}


def main() -> int:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--per-host", type=int, default=1, help="ranks on each host (default: 1)")
    parser.add_argument("--sizes", default="4K,64K,1M,16M")
    parser.add_argument("--burst", type=int, default=BURST, help="bytes that a link takes at once; 1600 is one packet")
    parser.add_argument("--bench", type=Path, default=Path("build/release/benchmarks/tnt-bench"))
    given = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"many_hosts: skipped: {reason}")
        return 0
    with switched_hosts(given.hosts, given.burst) as (hosts, addresses):
        bench = given.bench.resolve()
        words = (hosts, addresses, given.per_host, bench, given.sizes)
        found = {name: times(*words, number) for name, number in ALGORITHMS.items()}
    for size in found["its choice"]:
        ratios = {name: of[size][1] / of[size][0] for name, of in found.items() if size in of}
        ours = ", ".join(f"{of[size][0]:.0f}" for of in found.values() if size in of)
        theirs = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        print(f"{size} bytes on {given.hosts} hosts of {given.per_host} ranks: ours {ours} us; MPI's time over ours: {theirs}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How long an all_reduce or a message takes, from latencies and bandwidths: the algorithms of src/comm/network as formulas.

Used where the simulated back end is not built. Data that all ranks' buffers hold in 64 KiB is gathered in log2 n rounds. Larger
data goes directly among up to seven ranks, else by recursive halving and doubling, neighbours first, in a pipeline of chunks:
network and memory then work at the same time, and the slower one counts.
"""

import math
from dataclasses import dataclass

from tarantella.scaling.platform import Machine

GATHERED = 64 * 1024
MIN_HALVING = 8
MAX_DIRECT_GATHER = 4
SMALLEST_CHUNK, LARGEST_CHUNK = 128 * 1024, 1024 * 1024


@dataclass(frozen=True)
class Cost:
    """The parts of a time, in seconds. ``seconds`` is less than their sum where they overlap."""

    latency: float
    link: float
    memory: float
    seconds: float

    @property
    def limit(self) -> str:
        """The largest part."""
        return max(("latency", "link", "memory"), key=lambda part: getattr(self, part))


def all_reduce(machine: Machine, ranks: int, size: int) -> Cost:
    """The time of ``size`` bytes, one rank after the other on each node."""
    if ranks == 1:
        return Cost(0.0, 0.0, 0.0, 0.0)
    if ranks * size <= GATHERED:
        return _gather(machine, ranks, size)
    return _halving(machine, ranks, size) if ranks >= MIN_HALVING else _direct(machine, ranks, size)


def message(machine: Machine, sender: int, receiver: int, size: int) -> float:
    """The seconds of one message between two ranks while no others travel. Ranks fill one node after another."""
    shared = machine.ranks_per_node
    is_near = sender // shared == receiver // shared
    rate = machine.node_rate if is_near else machine.link
    return (machine.node_latency if is_near else machine.latency) + 2 * machine.overhead + size / rate


def _gather(machine: Machine, ranks: int, size: int) -> Cost:
    if ranks <= MAX_DIRECT_GATHER:
        latency = _latency(machine, ranks) + ranks * machine.overhead  # while it sends, most messages arrive
        return _sum(latency, (ranks - 1) * size / _rate(machine, ranks), 0.0)
    latency = link = 0.0
    for level in range(math.ceil(math.log2(ranks))):
        distance = 2**level
        latency += _latency(machine, 2 * distance) + 2 * machine.overhead
        link += min(distance, ranks - distance) * size / _rate(machine, min(2 * distance, ranks))
    return _sum(latency, link, _memory(machine, (ranks + 1) * size))


def _direct(machine: Machine, ranks: int, size: int) -> Cost:
    latency = 2 * (_latency(machine, ranks) + ranks * machine.overhead)
    traffic = _Traffic(machine)
    traffic.add(ranks, 2 * (ranks - 1) / ranks * size)
    memory = _memory(machine, 2 * size + (ranks + 1) * size / ranks + 2 * size)
    return _pipelined(latency, traffic, memory, size)


def _halving(machine: Machine, ranks: int, size: int) -> Cost:
    levels = int(math.log2(ranks))
    latency, traffic = 0.0, _Traffic(machine)
    for level in range(levels):
        span = 2 ** (level + 1)
        latency += 2 * (_latency(machine, span) + 2 * machine.overhead)
        traffic.add(span, 2 * size / span)
    if ranks != 2**levels:  # the ranks beyond hand all of their data to a partner, and get the result
        latency += 2 * (_latency(machine, 2) + 2 * machine.overhead)
        traffic.add(2, 2 * size)
    memory = _memory(machine, 2 * size + 3 * size * (1 - 1 / ranks) + 2 * size)
    return _pipelined(latency, traffic, memory, size)


class _Traffic:
    """The time of one rank, in seconds of each resource. Chunks of different levels use different ones at the same time."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.node = self.link = self.uplink = 0.0

    def add(self, span: int, size: float) -> None:
        """So many bytes to ranks this far away, while all ranks do the same."""
        machine, shared = self._machine, self._machine.ranks_per_node
        if span <= shared:
            self.node += size / machine.node_rate
            return
        self.link += size * shared / machine.link
        if span > machine.leaf_nodes * shared:
            self.uplink += size * shared / (machine.link * machine.taper)

    @property
    def parts(self) -> tuple[float, float, float]:
        return self.node, self.link, self.uplink


def _latency(machine: Machine, span: int) -> float:
    """The latency of a message to a rank this far away."""
    return machine.node_latency if span <= machine.ranks_per_node else machine.latency


def _rate(machine: Machine, span: int) -> float:
    """The share of one rank while all exchange with ranks this far away."""
    if span <= machine.ranks_per_node:
        return machine.node_rate
    far = span > machine.leaf_nodes * machine.ranks_per_node
    return machine.link * (machine.taper if far else 1.0) / machine.ranks_per_node


def _memory(machine: Machine, touched: float) -> float:
    return touched * machine.ranks_per_node / machine.memory if machine.memory > 0 else 0.0


def _sum(latency: float, link: float, memory: float) -> Cost:
    return Cost(latency, link, memory, latency + link + memory)


def _pipelined(latency: float, traffic: _Traffic, memory: float, size: int) -> Cost:
    chunk = min(max(size / 4, SMALLEST_CHUNK), LARGEST_CHUNK, size)
    busy = [*traffic.parts, memory]
    filling = (sum(busy) - max(busy)) * chunk / size  # the first chunk has nothing to overlap with
    return Cost(latency, max(traffic.parts), memory, latency + max(busy) + filling)

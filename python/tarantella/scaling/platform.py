"""A machine as the analytic model sees it, from the same platform file that SimGrid reads."""

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

SHIPPED = Path(__file__).parent / "platforms"

_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}


class PlatformError(Exception):
    """The file is no platform that can be used; the text says why."""


@dataclass(frozen=True)
class Machine:
    """Nodes with one link each into a network. Rates in bytes per second, times in seconds."""

    nodes: int
    ranks_per_node: int
    link: float
    """Bytes per second of a node, each way."""
    latency: float
    """Between nodes, over the longest way."""
    overhead: float
    """A rank's time to send or to receive a message."""
    node_rate: float
    """Bytes per second of each message between ranks of a node: in SimGrid they do not disturb one another."""
    node_latency: float
    memory: float
    """Bytes per second that a node reads and writes; 0: not modelled."""
    leaf_nodes: int
    """Behind one switch."""
    taper: float
    """The share of a switch's bandwidth that leaves it."""

    @property
    def max_ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def find_platform(name: str) -> Path:
    """The file, or the shipped one of this name. Raises PlatformError."""
    if Path(name).exists():
        return Path(name)
    if (SHIPPED / f"{name}.xml").is_file():
        return SHIPPED / f"{name}.xml"
    shipped = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.xml")))
    raise PlatformError(f"{name}: no such file, and none of the platforms {shipped}")


def read_machine(file: Path) -> Machine:
    """Raises PlatformError."""
    try:
        root = ElementTree.parse(file).getroot()
    except OSError as error:
        raise PlatformError(f"{file}: {error.strerror}") from None
    except ElementTree.ParseError as error:
        raise PlatformError(f"{file}: no platform file: {error}") from None
    if root.tag != "platform":
        raise PlatformError(f"{file}: no platform file: its first element is <{root.tag}>, not <platform>")
    clusters = list(root.iter("cluster"))
    if len(clusters) != 1:
        raise PlatformError(f"{file}: it has {len(clusters)} clusters; only platforms of one <cluster> can be read here")
    try:
        return _machine(clusters[0], {p.get("id", ""): p.get("value", "") for p in root.iter("prop")})
    except (ValueError, KeyError, IndexError, ZeroDivisionError) as error:
        raise PlatformError(f"{file}: <cluster>: {error}") from None


def _machine(cluster: ElementTree.Element, properties: dict[str, str]) -> Machine:
    nodes = sum(_length(part) for part in cluster.attrib["radical"].split(","))
    hops, leaf, taper = _topology(cluster, nodes)
    factor = float(properties.get("smpi/bw-factor", "0:1").split(":")[1])
    link = _rate(cluster.attrib["bw"]) * factor
    return Machine(
        nodes=nodes,
        ranks_per_node=int(properties.get("ranks", "1")),
        link=link,
        latency=hops * _time(cluster.attrib["lat"]),
        overhead=float(properties.get("smpi/os", "0:0:0").split(":")[1]),
        node_rate=_rate(cluster.get("loopback_bw", cluster.attrib["bw"])) * factor,
        node_latency=_time(cluster.get("loopback_lat", cluster.attrib["lat"])),
        memory=float(properties.get("memory_bandwidth", "0")),
        leaf_nodes=leaf,
        taper=taper,
    )


def _topology(cluster: ElementTree.Element, nodes: int) -> tuple[int, int, float]:
    """Links between far nodes, nodes behind one switch, and the share of their bandwidth that leaves it."""
    parameters = [[int(n) for n in part.split(",")] for part in cluster.get("topo_parameters", "").split(";") if part]
    kind = cluster.get("topology", "FLAT")
    if kind == "FAT_TREE":
        down, up = parameters[1], parameters[2]
        return 2 * len(down), down[0], min(1.0, up[1] / down[0]) if len(down) > 1 else 1.0
    if kind == "DRAGONFLY":
        return 7, parameters[3][0], 1.0
    if kind == "FLAT":
        return 2, nodes, 1.0
    raise ValueError(f"topology {kind} is none of FLAT, FAT_TREE, DRAGONFLY")


def _length(radical: str) -> int:
    first, _, last = radical.partition("-")
    return int(last or first) - int(first) + 1


def _value(text: str, pattern: str) -> tuple[float, str, str]:
    found = re.fullmatch(rf"([0-9.eE+-]+?)\s*({'|'.join(_SCALE)})({pattern})", text.strip())
    if found is None:
        raise ValueError(f"'{text}' is no rate")
    return float(found[1]), found[2], found[3]


def _rate(text: str) -> float:
    number, scale, unit = _value(text, "Bps|bps")
    return number * _SCALE[scale] / (8 if unit == "bps" else 1)


def _time(text: str) -> float:
    found = re.fullmatch(rf"([0-9.eE+-]+?)\s*({'|'.join(_SECONDS)})?", text.strip())
    if found is None:
        raise ValueError(f"'{text}' is no time")
    return float(found[1]) * _SECONDS[found[2] or "s"]

"""``tnt-bench plot A.jsonl ... -o bench.png``: latency and bandwidth over size, a line for each backend and peer.

Out of place is solid, in place dashed, the limit of the machine's memory dotted. matplotlib is imported when a picture is
drawn, not before.
"""

import argparse
import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tarantella.bench.rows import BadFileError, Row, read_rows

USAGE_ERROR = 2
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # told apart by the colour-blind too

Points = list[tuple[int, float]]
Pick = Callable[[Row], float | None]


class UsageError(Exception):
    """The command line or a file cannot be used; the text is the whole message."""


def main(argv: Sequence[str]) -> int:
    """Draws the picture; returns the exit code."""
    try:
        inputs, output = _parse(argv)
        draw(read_rows(inputs), output)
    except (UsageError, BadFileError) as error:
        print(f"tnt-bench plot: {error}", file=sys.stderr)
        return USAGE_ERROR
    except SystemExit as done:  # --help
        return done.code if isinstance(done.code, int) else 0
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see tnt-bench plot --help")


def _parse(argv: Sequence[str]) -> tuple[list[Path], Path]:
    parser = _Parser(prog="tnt-bench plot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="A.jsonl", help="output of tnt-bench --format jsonl")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench.png"), help="PNG, SVG or PDF; default bench.png")
    given = parser.parse_args(argv)
    if not given.output.resolve().parent.is_dir():
        raise UsageError(f"-o {given.output}: there is no directory {given.output.parent}")
    return given.inputs, given.output


def draw(rows: Sequence[Row], output: Path) -> None:
    """Raises UsageError if there is nothing to draw, no matplotlib, or the file cannot be written."""
    sized = [row for row in rows if row.bytes > 0]
    if not sized:
        raise UsageError("no row has a size: there is nothing to draw over it")
    try:
        importlib.import_module("matplotlib").use("Agg")
        pyplot: Any = importlib.import_module("matplotlib.pyplot")
        ticker: Any = importlib.import_module("matplotlib.ticker")
    except ImportError as error:
        raise UsageError("needs matplotlib: pip install matplotlib") from error

    alone = all(row.ranks == 1 for row in sized)  # busbw is 0 by definition then
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.6), constrained_layout=True)
    series = _series(sized)
    colours = dict(zip(dict.fromkeys(who for who, _ in series), COLOURS * len(series), strict=False))
    for (who, in_place), members in series.items():
        style = {"color": colours[who], "linestyle": "--" if in_place else "-", "marker": "o"}
        style["markerfacecolor"] = "white" if in_place else colours[who]
        label = f"{who}, {'in place' if in_place else 'out of place'}"
        _line(left, _points(members, lambda row: row.time_us), label=label, **style)
        bandwidth: Pick = (lambda row: row.algbw_gbps) if alone else (lambda row: row.busbw_gbps)
        _line(right, _points(members, bandwidth), label=label, **style)
    _draw_limits(right, sized, alone)

    _finish(left, ticker, "median of the slowest rank's time (µs)", "Latency")
    name = "algorithm" if alone else "bus"
    _finish(right, ticker, f"{name} bandwidth (GB/s)", f"{name.capitalize()} bandwidth")
    figure.suptitle(_title(sized), fontsize=11)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)), frameon=False, fontsize=10)
    try:
        figure.savefig(output, dpi=150)
    except (OSError, ValueError) as error:
        raise UsageError(f"-o {output}: cannot be written: {error}") from error
    finally:
        pyplot.close(figure)


def _series(rows: Sequence[Row]) -> dict[tuple[str, bool], list[Row]]:
    """The rows of each line of the picture, by who and in_place; peers as rows of their own."""
    differing = _differing(rows)
    series: dict[tuple[str, bool], list[Row]] = defaultdict(list)
    peers = [_peer_row(row) for row in rows if row.against is not None and row.against_time_us is not None]
    for row in [*rows, *peers]:
        what = [f"{row.ranks} ranks" if field == "ranks" else str(getattr(row, field)) for field in differing]
        series[" ".join([row.backend, *what]), row.in_place].append(row)
    return series


def _differing(rows: Sequence[Row]) -> list[str]:
    """The part of a line's name beside the backend."""
    fields = ("collective", "ranks", "dtype", "op", "cache")
    return [field for field in fields if len({getattr(row, field) for row in rows}) > 1]


def _peer_row(row: Row) -> Row:
    assert row.against_time_us is not None
    bandwidth = row.bytes / row.against_time_us * 1e-3 if row.algbw_gbps is not None else None
    return Row(
        **{
            **vars(row),
            "backend": f"plain {str(row.against).upper()}",
            "time_us": row.against_time_us,
            "algbw_gbps": bandwidth,
            "busbw_gbps": None if bandwidth is None else bandwidth * row.bus_factor,
        }
    )


def _points(rows: Sequence[Row], pick: Pick) -> Points:
    """One point per size: of several (the same peer beside several backends, several files) the median."""
    values: dict[int, list[float]] = defaultdict(list)
    for row in rows:
        value = pick(row)
        if value is not None and value > 0:
            values[row.bytes].append(value)
    return [(size, sorted(found)[len(found) // 2]) for size, found in sorted(values.items())]


def _line(axes: Any, points: Points, **style: Any) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), markersize=4.5, linewidth=1.6, **style)


def _draw_limits(axes: Any, rows: Sequence[Row], alone: bool) -> None:
    """The limit does not depend on the size: one level line for each kind of measurement."""
    levels: dict[str, list[float]] = defaultdict(list)
    several = len({row.ranks for row in rows}) > 1
    for row in rows:
        limit = row.limit_algbw_gbps
        if limit is not None:
            name = row.collective + (f", {row.ranks} ranks" if several else "") + (", in place" if row.in_place else "")
            levels[name].append(limit * (1.0 if alone else row.bus_factor))
    drawn: dict[float, str] = {}
    for name, values in levels.items():
        level = sorted(values)[len(values) // 2]
        if level > 0 and all(abs(level - other) > 0.03 * other for other in drawn):
            drawn[level] = name
    for level, name in drawn.items():
        label = "limit of the memory" + (f" ({name})" if len(drawn) > 1 else "")
        axes.axhline(level, color="#666666", linestyle=":", linewidth=1.6, label=label)
        label = f"{level:.3g} GB/s"
        axes.annotate(label, (0.01, level), xycoords=("axes fraction", "data"), va="bottom", fontsize=9, color="#666666")


def _finish(axes: Any, ticker: Any, label: str, title: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(base=4, numticks=20))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_size(value)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("size (bytes)")
    axes.set_ylabel(label)
    axes.set_title(title, fontsize=11)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)


def format_size(value: float) -> str:
    """1024 as "1K"."""
    for suffix in ("", "K", "M", "G"):
        if value < 1024:
            return f"{value:.4g}{suffix}"
        value /= 1024
    return f"{value:.4g}T"


def _title(rows: Sequence[Row]) -> str:
    """The title: the measurement, and below it the facts about the machine that all rows share."""

    def common(field: str) -> str:
        return ", ".join(dict.fromkeys(str(getattr(row, field)) for row in rows))

    ranks = common("ranks")
    what = f"{common('collective')} of {common('dtype')} on {ranks} {'rank' if ranks == '1' else 'ranks'}"
    return "\n".join(filter(None, [what, " · ".join(_facts(rows[0].environment))]))


def _facts(environment: Mapping[str, str]) -> list[str]:
    """The facts about the environment for a reader, without those that were not measured or not available."""
    cores = environment.get("cores", "")
    texts = {
        "cpu": "{}" + (f", {cores} core" + ("" if cores == "1" else "s") if cores else ""),
        "device": "{}",
        "tarantella": "Tarantella {}",
        "mpi": "{}",
        "nccl": "{}",
        "cuda": "CUDA {}",
        "memory limit": "memory {}",
    }
    known = {key: environment.get(key, "") for key in texts}
    return [texts[key].format(value) for key, value in known.items() if value and not value.startswith("not ")]

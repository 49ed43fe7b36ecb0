"""The rows of tnt-bench --format jsonl, as far as a picture needs them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = "tnt-bench/1"


class BadFileError(Exception):
    """A file that is no output of tnt-bench; the text is the whole message."""


@dataclass(frozen=True)
class Row:
    """One measurement."""

    collective: str
    backend: str
    ranks: int
    bytes: int
    dtype: str
    op: str
    in_place: bool
    cache: str
    time_us: float
    algbw_gbps: float | None
    busbw_gbps: float | None
    limit_percent: float | None
    against: str | None
    against_time_us: float | None
    environment: Mapping[str, str]

    @property
    def bus_factor(self) -> float:
        """busbw over algbw."""
        return self.busbw_gbps / self.algbw_gbps if self.busbw_gbps and self.algbw_gbps else 0.0

    @property
    def limit_algbw_gbps(self) -> float | None:
        """The algbw that the machine's memory allows."""
        return 100.0 * self.algbw_gbps / self.limit_percent if self.limit_percent and self.algbw_gbps else None


def read_rows(paths: Iterable[Path]) -> list[Row]:
    """The rows of all files. Raises BadFileError that names file and line."""
    rows = []
    for path in paths:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadFileError(f"{path}: cannot be read: {error}") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                rows.append(_row(json.loads(line)))
            except (KeyError, TypeError, ValueError) as error:
                raise BadFileError(f"{path}:{number}: no row of tnt-bench --format jsonl ({error})") from error
    if not rows:
        raise BadFileError(f"{', '.join(map(str, paths))}: no rows")
    return rows


def _row(fields: Mapping[str, Any]) -> Row:
    if fields["schema"] != SCHEMA:
        raise ValueError(f"schema {fields['schema']!r} is not {SCHEMA!r}")
    return Row(
        collective=str(fields["collective"]),
        backend=str(fields["backend"]),
        ranks=int(fields["ranks"]),
        bytes=int(fields["bytes"]),
        dtype=str(fields["dtype"]),
        op=str(fields["op"]),
        in_place=bool(fields["in_place"]),
        cache=str(fields.get("cache", "rotate")),
        time_us=float(fields["time_us_p50"]),
        algbw_gbps=_number(fields["algbw_gbps"]),
        busbw_gbps=_number(fields["busbw_gbps"]),
        limit_percent=_number(fields["limit_percent"]),
        against=fields["against"],
        against_time_us=_number(fields["against_time_us_p50"]),
        environment={str(key): str(value) for key, value in fields.get("environment", {}).items()},
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)

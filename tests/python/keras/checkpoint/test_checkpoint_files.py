"""The files of checkpoints: whole or not used, whatever happens to them or to who writes them. One process, no ranks."""

from __future__ import annotations

import hashlib
import io
import json
import resource
import signal
import subprocess
import sys
import time
import zipfile
from functools import reduce
from pathlib import Path
from textwrap import dedent
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tarantella.errors import InvalidArgumentError, TarantellaError
from tarantella.keras.checkpoint import format as file_format
from tarantella.keras.checkpoint import layout, randomness
from tarantella.keras.checkpoint.folder import Folder
from tarantella.keras.checkpoint.writer import Writer

TREE: dict[str, Any] = {
    "epoch": 3,
    "rate": 0.1,
    "none": None,
    "text": "Größe",
    "nan": [float("inf"), True, -1],
    "nested": {"weights": [{"path": "a/kernel", "value": np.arange(6, dtype=np.float32).reshape(2, 3)}]},
    "half": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "scalar": np.float64(0.1),
    "nothing": np.zeros((0, 3), np.int64),
    "strided": np.arange(10)[::3],
}


def same(a: Any, b: Any) -> bool:
    if isinstance(b, dict):
        return set(a) >= set(b) and all(same(a[key], b[key]) for key in b)
    if isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and np.shape(a) == np.shape(b) and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


def folder_at(path: Path, warnings: list[str] | None = None, fit: int = 1, keep: int = 2) -> Folder:
    return Folder(path, fit, keep, (warnings if warnings is not None else []).append)


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def small() -> bytes:
    file = io.BytesIO()
    file_format.write(file, {"a": np.arange(3.0)})
    return file.getvalue()


# -------------------------------------------------------------------------------------------------------------- the file


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "file.npz"
    with path.open("x+b") as file:
        file_format.write(file, TREE)
    assert same(file_format.read(path), TREE)


def test_numpy_reads_it(tmp_path):
    path = tmp_path / "file.npz"
    with path.open("x+b") as file:
        file_format.write(file, TREE)
    with np.load(path) as arrays:
        assert arrays["nested.weights.0.value"].tolist() == [[0, 1, 2], [3, 4, 5]]
        text = json.loads(arrays["checkpoint.json"])
    assert text["format"] == "tarantella checkpoint"
    assert text["version"] == 1
    assert text["nested"]["weights"] == [{"path": "a/kernel", "value": {"array": "nested.weights.0.value"}}]
    assert text["half"] == {"array": "half", "dtype": "bfloat16"}


@pytest.mark.parametrize("value", [object(), {1: 2}, np.array([object()]), {"f": print}, b"bytes"])
def test_what_it_cannot_hold_is_named(value):
    with pytest.raises(TypeError, match=r"cannot hold a \w+ at callbacks\.mine"):
        file_format.write(io.BytesIO(), {"callbacks": {"mine": value}})


def test_damage_at_any_byte_is_seen(tmp_path):
    whole, path = small(), tmp_path / "file.npz"
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(file_format.DamagedError):
            file_format.read(path)


def test_a_part_of_it_is_seen(tmp_path):
    whole, path = small(), tmp_path / "file.npz"
    for part in (*(whole[:length] for length in range(len(whole))), whole + b"0", b"\0" * len(whole)):
        path.write_bytes(part)
        with pytest.raises(file_format.DamagedError):
            file_format.read(path)


def test_a_later_version_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    path.write_bytes(small())
    monkeypatch.setattr(file_format, "VERSION", 0)
    with pytest.raises(InvalidArgumentError, match="is of version 1 of the format, and this library reads up to 0"):
        file_format.read(path)


def npy(array: np.ndarray, shape: str | None = None) -> bytes:
    """A member; shape: another one than the array's in its header, of as many characters."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue().replace(str(array.shape).encode(), (shape or str(array.shape)).encode())


def crafted(text: str | None, members: dict[str, bytes] | None = None, how: int = zipfile.ZIP_STORED) -> bytes:
    """A file with a right checksum and this content."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", how) as archive:
        archive.comment = b"sha256:" + b"0" * 64
        for name, content in {**({} if text is None else {"checkpoint.json": text}), **(members or {})}.items():
            archive.writestr(name, content)
    return signed(file.getvalue())


def signed(content: bytes) -> bytes:
    return content[:-64] + hashlib.sha256(content[:-64]).hexdigest().encode()


def tree_text(**more: Any) -> str:
    return json.dumps({"format": "tarantella checkpoint", "version": 1, **more})


def with_header(header: str) -> bytes:
    """A checkpoint of one array, whose member begins like this."""
    return crafted(tree_text(**ONE), {"a.npy": b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()})


ONE = {"a": {"array": "a"}}
DEEP = 100_000
CRAFTED = {
    "no archive": (signed(b"0" * 1000 + b"sha256:" + b"0" * 64), "BadZipFile"),
    "no text": (crafted(None), "KeyError"),
    "no JSON": (crafted("{"), "JSONDecodeError"),
    "no object": (crafted("[]"), r"checkpoint\.json is not of a tarantella checkpoint"),
    "no version": (crafted('{"format": "tarantella checkpoint", "version": "1"}'), "is not of a tarantella checkpoint"),
    "nested": (crafted('{"a":' * DEEP + "1" + "}" * DEEP), "RecursionError"),
    "no member": (crafted(tree_text(**ONE)), "KeyError"),
    "no array": (crafted(tree_text(**ONE), {"a.npy": b"text"}), "ValueError"),
    "no type": (crafted(tree_text(a={"array": "a", "dtype": "none"}), {"a.npy": npy(np.ones(2))}), "TypeError"),
    "objects": (crafted(tree_text(**ONE), {"a.npy": npy(np.array([0])).replace(b"<i8", b"|O8")}), "ValueError"),
    "twice": (crafted(tree_text(a=ONE["a"], b=ONE["a"]), {"a.npy": npy(np.ones(2))}), "the array a is in it twice"),
    "larger": (crafted(tree_text(**ONE), {"a.npy": npy(np.ones(2), "(9,)")}), r"not the size of an array of shape \(9,\)"),
    "expands": (crafted(tree_text(**ONE), {"a.npy": npy(np.zeros(1 << 20))}, zipfile.ZIP_DEFLATED), "is not compressed"),
    "large shape": (with_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': (0, {10**30})}}\n"), "OverflowError"),
    "half a header": (with_header("{'descr': ("), "TokenError"),
    "nested header": (with_header("-" * 9000 + "1"), r"the header of a\.npy is nested too deeply"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_a_right_checksum_makes_no_checkpoint(tmp_path, name):
    """All is told as damage, by which the one before is used; and no memory is taken for what is not in the file."""
    content, sentence = CRAFTED[name]
    good, bad = folder_at(tmp_path), tmp_path / "fit1-step000000002.npz"
    good.write(1, {"n": 1})
    bad.write_bytes(content)
    with pytest.raises(file_format.DamagedError, match=sentence):
        file_format.read(bad)
    warnings: list[str] = []
    found = folder_at(tmp_path, warnings).newest()
    assert found is not None and found[1]["n"] == 1
    assert len(warnings) == 1 and "is damaged and is not used: its checksum is right, but " in warnings[0]


def whole_tree() -> dict[str, Any]:
    """As `fit` writes it."""
    states = randomness.states()
    return {
        "position": {"epoch": 0, "step": 1, "steps_done": 1},
        "stopped": False,
        "fit": {"initial_epoch": 0, "steps": None, "seed": None, "alike": True, "random": states},
        "batches": [1, 2],
        "random": states,
        "history": {"epochs": [], "logs": {}},
        "callbacks": {"Mine 1": {"own": 3}},
        "common_seed": False,
        "variables": {"weights": [{"path": "a", "value": np.ones(2)}], "common seed": []},
    }


def test_what_is_no_checkpoint_of_fit_is_not_used(tmp_path):
    """Each place without its value, and with a value of another kind."""
    folder = folder_at(tmp_path)
    folder.write(1, whole_tree())
    layout.check(file_format.read(folder.place(1)))
    places = [(), ("position",), ("fit",), ("random",), ("random", "tensorflow"), ("history",), ("variables", "weights", 0)]
    for place in places:
        for name in reduce(lambda tree, key: tree[key], place, whole_tree()):
            for change in ({}, {name: "other"}):
                tree = whole_tree()
                inner = reduce(lambda tree, key: tree[key], place, tree)
                del inner[name]
                inner.update(change)
                if (name, change) == ("path", {name: "other"}):
                    continue
                with pytest.raises(file_format.DamagedError):
                    layout.check(tree)
    fit = {**whole_tree()["fit"], "steps": True}
    position = whole_tree()["position"]
    for nonsense in (
        {"batches": [1]},
        {"callbacks": {"Mine 1": 3}},
        {"callbacks": {"CSVLogger 1": {"size": -1}}},
        {"callbacks": {"EarlyStopping 1": {"remembered": [1]}}},
        {"history": {"epochs": [0], "logs": {"loss": 0.5}}},
        {"stopped": 0},
        {"fit": fit},
        {"position": {**position, "epoch": -1}},
        {"position": {**position, "steps_done": 1 << 64}},
        {"position": {**position, "another": 1}},
    ):
        with pytest.raises(file_format.DamagedError):
            layout.check({**whole_tree(), **nonsense})
    folder.write(2, {"n": 2})
    warnings: list[str] = []
    found = folder_at(tmp_path, warnings).newest(layout.check)
    assert found is not None and found[0] == folder.place(1)
    assert warnings[0].endswith("is damaged and is not used: position is missing")


# ------------------------------------------------------------------------------------------------------------ the folder


def test_the_newest_is_found_and_only_so_many_stay(tmp_path):
    (tmp_path / "mine.npz").write_text("a user's")
    folder, other = folder_at(tmp_path), folder_at(tmp_path, fit=2)
    assert folder.newest() is None
    other.write(7, {"n": 70})
    for step in (9, 10, 100):
        folder.write(step, {"n": step})
    path, tree = folder_at(tmp_path).newest()
    assert (path.name, tree["n"]) == ("fit1-step000000100.npz", 100)
    assert names(tmp_path) == [
        "fit1-step000000010.npz",
        "fit1-step000000100.npz",
        "fit2-step000000007.npz",
        "mine.npz",
    ]


def test_a_damaged_one_is_named_and_the_last_good_one_is_used(tmp_path):
    for step in (1, 2, 3):
        folder_at(tmp_path, keep=3).write(step, {"n": step})
    damaged = tmp_path / "fit1-step000000003.npz"
    damaged.write_bytes(damaged.read_bytes()[:-10])
    (tmp_path / "fit1-step000000002.npz").write_bytes(b"")
    warnings: list[str] = []
    folder = folder_at(tmp_path, warnings)
    path, tree = folder.newest()
    assert (path.name, tree["n"]) == ("fit1-step000000001.npz", 1)
    assert [str(damaged) in warnings[0], "its end, with the checksum, is missing" in warnings[0], "0 bytes" in warnings[1]]
    folder.write(2, {"n": 22})  # the damaged ones do not count, and go when there is a later good one
    assert names(tmp_path) == ["fit1-step000000001.npz", "fit1-step000000002.npz"]
    assert folder.newest()[1]["n"] == 22


def test_what_killed_writers_left_goes(tmp_path):
    for name in (".fit1-step000000003.npz.0123abcd.part", ".fit12-step000000003.npz.ffffffff.part", ".mine.part", "x.part"):
        (tmp_path / name).write_text("left")
    folder_at(tmp_path)
    assert names(tmp_path) == [".mine.part", "x.part"]


def test_a_writer_killed_at_any_moment(tmp_path):
    script = """
        import sys
        from pathlib import Path
        import numpy as np
        from tarantella.keras.checkpoint.folder import Folder
        from tarantella.keras.checkpoint.writer import Writer
        folder, writer = Folder(Path(sys.argv[1]), 1, 2, print), Writer(print)
        print("begins", flush=True)
        for step in range(1, 100000):
            tree = {"step": step, "data": np.full(300_000, step)}
            writer.begin(folder.place(step), lambda: folder.write(step, tree))
            assert writer.wait()
            print(step, flush=True)
    """
    for seconds in (0.05, 0.21, 0.333):
        folder = tmp_path / str(seconds)
        process = subprocess.Popen(
            [sys.executable, "-c", dedent(script), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(seconds)
        process.kill()
        said = [int(line) for line in process.stdout.read().split()]
        process.wait()
        warnings: list[str] = []
        found = folder_at(folder, warnings).newest()
        assert warnings == []
        assert not [name for name in names(folder) if name.startswith(".")]
        if said:
            _, tree = found
            assert tree["step"] >= said[-1]
            assert (tree["data"] == tree["step"]).all()


# ------------------------------------------------------------------------------------------------------------ the writer


def test_a_full_disk(tmp_path):
    warnings: list[str] = []
    folder, writer = folder_at(tmp_path), Writer(warnings.append)
    writer.begin(folder.place(1), lambda: folder.write(1, {"data": np.zeros(10)}))
    assert writer.wait()
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        writer.begin(folder.place(2), lambda: folder.write(2, {"data": np.zeros(100_000)}))
        assert writer.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert writer.has_failed
    error = writer.take_error()
    assert isinstance(error, TarantellaError)
    assert not writer.has_failed
    assert warnings == [str(error)]
    assert "fit1-step000000002.npz" in str(error)
    assert "File too large" in str(error)
    assert names(tmp_path) == ["fit1-step000000001.npz"]


def test_training_goes_on_while_it_writes(tmp_path, monkeypatch):
    folder = folder_at(tmp_path)
    write = folder.write

    def slowly(step: int, tree: dict[str, Any]) -> None:
        time.sleep(0.3)
        write(step, tree)

    monkeypatch.setattr(folder, "write", slowly)
    writer = Writer(print)
    writer.begin(folder.place(1), lambda: folder.write(1, {"a": 1}))
    assert not writer.wait(0)
    assert writer.wait()
    assert folder.newest()[1]["a"] == 1

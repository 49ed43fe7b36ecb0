"""Fuzzing of hostfiles and of --hosts: hosts with slots, or one error that names the file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.mutations import changed, corpus, fuzzed
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Host, assign_ranks, describe, host_of, read_hostfile, read_hosts, slots

WORDS = [b":", b"=", b"slots=", b"999999", b"0", b"#", b"\n", b"\r", b" ", b"\t", b",", b"\x00", b"-", "²".encode(), b"\xff"]


def check(hosts: tuple[Host, ...]) -> None:
    assert hosts and all(host.slots > 0 for host in hosts)
    assert len({host.name for host in hosts}) == len(hosts)
    total = slots(hosts)
    assert slots(assign_ranks(hosts, total)) == total
    assert host_of(hosts, 0) == hosts[0].name and host_of(hosts, total - 1) == hosts[-1].name
    assert "\n" not in describe(hosts)
    assert read_hosts(",".join(map(str, hosts))) == hosts or any(host.slots > 999_999 for host in hosts)


@fuzzed
@given(text=changed(corpus("fuzz_hosts"), WORDS), per_node=st.sampled_from([None, 3]))
def test_hostfiles(tmp_path, text: bytes, per_node: int | None) -> None:
    path = tmp_path / "hosts"
    path.write_bytes(text)
    try:
        check(read_hostfile(str(path), per_node))
    except UsageError as error:
        assert str(path) in str(error) and "\n" not in str(error)


@fuzzed
@given(st.text(st.sampled_from("ab.-_:,=1 9\n\x00²é"), max_size=30))
def test_lists(text: str) -> None:
    try:
        check(read_hosts(text))
    except UsageError as error:
        assert "--hosts" in str(error) and "\n" not in str(error)

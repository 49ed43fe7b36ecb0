"""The all_reduce benchmark: `python -m tarantella.bench` is tnt-bench, and `... plot` draws what it has measured.

What lives here: the start of the program and its pictures. What must not: measuring, which is the program's (benchmarks/).
"""

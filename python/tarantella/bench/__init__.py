"""The allreduce benchmark: ``python -m tarantella.bench`` is tnt-bench, ``... plot`` draws what it has measured."""

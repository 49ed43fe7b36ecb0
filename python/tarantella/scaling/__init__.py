"""How a training scales, from the timeline of a short run and the file of a machine: ``tarantella simulate``.

What lives here: the command, reading a timeline (`timeline`) and a machine (`platform`), the formulas (`model`), the prediction
and its picture. What must not: the simulated network, which is the benchmark's (benchmarks/simulated; `simulator` calls it).
"""

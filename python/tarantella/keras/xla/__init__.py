"""`jit_compile=True` on several ranks, and questions about the operations of a traced step.

For others: `segments.CompiledCalls`, which compiles the model's calls in segments that end where a gradient bucket begins, and
`operations`.

Not in here: reducers and steps. The segments get the buckets as a function.
"""

"""Functions of the adapter for legacy Keras (`tf_keras`) alone.

None of its optimizers accumulates gradients over several steps, and a step is not compiled in segments. The functions of
`keras3` about these are missing here: `accumulating` returns None and `layers_to_compile` an empty list.
"""

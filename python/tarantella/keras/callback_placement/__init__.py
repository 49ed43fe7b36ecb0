"""Which rank runs which callback, and agreement among ranks on what callbacks change.

`placement` wraps the callbacks of `fit`, `evaluate` and `predict`, and answers which of them run on this rank; `agreement`
compares the ranks after each hook. Nothing here knows checkpoints: `checkpoint` uses this room, not the other way round. The
callbacks that users see are in `tnt.callbacks`.
"""

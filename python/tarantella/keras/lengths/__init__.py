"""Lengths that belong to a whole batch, of which a rank has a part: layers compute with those of the whole batch.

Some layers pad all samples to the longest one that they are given, or count them. `agreement` says whose samples these are: in
a step of `tnt.Model` those of all ranks, which agree on each length; in a trial on parts of a batch those of the whole.
`decision` answers the layers. `ragged` pads ragged rows, as `TextVectorization` does, `masks` has their masks, and
`time_distributed` counts samples where Keras does so by mistake.

Lengths are changed in one of `agreement`'s contexts only, on the thread that entered it: not in the functions of a dataset.
Inside a loop or a branch of a graph each rank keeps its own: other ranks may not come there, or not as often.
"""

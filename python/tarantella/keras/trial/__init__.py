"""Finds out before the first step whether ranks may compute parts of a batch, and how what they compute makes the whole.

The user's first batch is the oracle. `Trials` runs the model on a few of its samples, once together and once as the two parts
that two ranks would have, and compares what the runs gave:

* `outputs`: an output of the model for a sample must not depend on the other samples of the batch;
* `losses`: a loss is the mean of the parts' losses, or their sum, or it couples samples;
* `own_step`: the same of the gradients and logs of a training step of the user's own;
* `metrics`: the states of the user's metrics can be added up;
* `forward`: the outputs of a model that a loop of the user's own calls.

`by_sums` finds out whether what couples samples is made of sums that ranks can add up. `parts` chooses the samples, `run` makes
a run and `record` notes it, `state` restores what runs change, `comparison` compares numbers, and `verdict` has the messages,
and brings the findings of all ranks together. Trials come before the first step, and again on the first batch of later epochs
as far as that costs little (`again`).

`parts.made_up_batch` makes samples up for the one kind of model that must be tried before there is data: a pipeline, whose
ranks give up the weights of other stages before they read a batch.
"""

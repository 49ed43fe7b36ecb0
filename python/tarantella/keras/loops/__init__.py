"""Custom training loops: `tape` and `optimizers` reduce gradients there, through the `reducers` of this process.

`guard` finds loops that reduce nothing, and `models` tries the models that a loop calls. `tnt.Model` reduces
gradients by its own hooks (`step`); nothing here knows them, but for the hooks of an optimizer.
"""

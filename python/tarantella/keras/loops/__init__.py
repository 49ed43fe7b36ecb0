"""Custom training loops: `tape` and `optimizers` reduce gradients there, through the `reducers` of this process.

`tnt.Model` reduces gradients by its own hooks (`step`); nothing here knows them, but for the hooks of an optimizer.
"""

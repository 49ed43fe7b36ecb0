"""Training loops of the user's own: a tape and an optimizer that reduce gradients."""

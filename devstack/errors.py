"""What can go wrong with the stack, in words for the person who started it."""


class StackError(Exception):
    """The stack cannot be had; the message says why and what to do."""


class StackStopped(Exception):  # noqa: N818 # not an error: somebody asked for it
    """The stack was told to stop while it was still starting."""

"""What a run is refused for, before anything is done. The text is what the operator reads."""


class Refused(ValueError):
    """Nothing was done."""


class BadEvent(Refused):
    """A field is unknown, missing, or has a value that it cannot have."""


class NotConfirmed(Refused):
    """A purge without the token of a list with the same filters, or for more than was listed."""


class RunUnderWay(Refused):
    """Another run has this dead-letter queue."""


class NoSuchRun(Refused):
    """There is no row of this run."""

"""What each part that knows something of endpoints hears of them. `State.learners` lists these."""

from extproc.core.address import Address


class Learner:
    """By default nothing of it matters: each part overrides what concerns it."""

    def forget(self, address: Address) -> None:
        """The endpoint left the fleet."""

    def replaced(self, address: Address, now: float, /) -> None:
        """Another process runs there: what the one before had is gone."""

    def moved(self, lease_id: int, picked: Address, served: Address, now: float, /) -> None:
        """Another endpoint than the picked one serves a request."""

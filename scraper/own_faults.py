"""What keeps this process from scraping: not one of the servers, and so none of their issues."""

import logging

from extproc.core.address import Address

logger = logging.getLogger("coxswain.scraper")


class OwnFaults:
    """The endpoints that cannot be scraped because of us. Logged once when that begins, and once
    when it is over for all of them."""

    def __init__(self) -> None:
        self._reasons: dict[Address, str] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The fault and its extent, as text; empty if there is none."""
        if not self._reasons:
            return ()
        reason = next(reversed(self._reasons.values()))
        text = (
            f"{len(self._reasons)} endpoints cannot be scraped: this process or its machine has "
            f"reached a limit ({reason}). What is known of them stays. Raise the limit of open "
            "files (LimitNOFILE of systemd), or find out what takes them"
        )
        return (text,)

    def began(self, address: Address, reason: str) -> None:
        """The endpoint could not be scraped, for this reason."""
        is_first = not self._reasons
        self._reasons[address] = reason
        if is_first:
            logger.error("%s", self.problems[0])

    def is_over(self, address: Address) -> None:
        """It could be scraped, whatever came of it, or it is none of ours any more."""
        if self._reasons.pop(address, None) is not None and not self._reasons:
            logger.info("all endpoints can be scraped again")

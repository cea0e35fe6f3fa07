"""One discovery stream as a state machine: questions in, events out, at most one open answer.

    a question with an empty nonce (or before any answer)   opens: its names replace all others
    one with the nonce of the latest answer                 acknowledges it, or refuses it when
                                                            it carries an error; again: no event
    one with any other nonce                                is stale and ignored, names and all

An answer is due when somebody subscribed and there is a version newer than the last one sent,
or a name that was not answered yet. While an answer is open none is due, so a slow reader
skips the versions in between, and a refused version is not sent again.
"""

from dataclasses import dataclass

ENDPOINT_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
CLUSTER_TYPE = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
MAX_NAMES = 256
MAX_NAME_CHARS = 1_000
"""Each answer repeats the names, and so does the log."""
ALL = ("*",)


class SubscriptionError(ValueError):
    """A question that this service cannot answer; `str(error)` says what it expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What one DiscoveryRequest says. `error` is Envoy's reason for refusing, or None."""

    names: tuple[str, ...] = ()
    nonce: str = ""
    type_url: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is to be sent: the fleet at `version` under each of `names`."""

    version: int
    nonce: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Envoy took over this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Envoy rejected the version and keeps the previous one."""

    version: int
    error: str


class Subscription:
    """Synchronous and pure; knows nothing of the fleet but its version numbers.

    `is_for_all` takes whatever names a question has for all that there are, as Envoy asks for
    clusters.
    """

    def __init__(self, type_url: str = ENDPOINT_TYPE, *, is_for_all: bool = False) -> None:
        self.names: tuple[str, ...] = ()
        self._type_url = type_url
        self._is_for_all = is_for_all
        self._sent = 0
        self._sent_version = -1
        self._is_open = False
        self._is_unanswered = False

    def ask(self, question: Question) -> Acknowledged | Refused | None:
        """Take in a question; raises `SubscriptionError` for one of another kind."""
        if question.type_url not in ("", self._type_url):
            raise SubscriptionError(
                f"type {question.type_url[:200]!r} is not served here, only {self._type_url}"
            )
        if len(question.names) > MAX_NAMES:
            raise SubscriptionError(f"{len(question.names)} names; at most {MAX_NAMES} are served")
        longest = max(map(len, question.names), default=0)
        if longest > MAX_NAME_CHARS:
            raise SubscriptionError(f"a name of {longest} characters; at most {MAX_NAME_CHARS}")
        if not question.nonce or not self._sent:
            self._is_open = False
            self._rename(question.names)
            self._is_unanswered = True
            return None
        if question.nonce != str(self._sent):
            return None
        self._rename(question.names)
        if not self._is_open:
            return None
        self._is_open = False
        if question.error is not None:
            return Refused(self._sent_version, question.error)
        return Acknowledged(self._sent_version)

    def next_answer(self, version: int) -> Answer | None:
        """The answer to send while the fleet is at `version`, or None when none is due.

        It counts as sent; a later `ask` with its nonce acknowledges it.
        """
        is_due = self._is_unanswered or version > self._sent_version
        if self._is_open or not self.names or not is_due:
            return None
        self._sent += 1
        self._sent_version = version
        self._is_open = True
        self._is_unanswered = False
        return Answer(version, str(self._sent), self.names)

    def _rename(self, names: tuple[str, ...]) -> None:
        unique = ALL if self._is_for_all else tuple(dict.fromkeys(names))
        if not set(unique) <= set(self.names):
            self._is_unanswered = True
        self.names = unique

"""Settings of the count of usage."""

from pydantic import Field

from extproc.settings.section import Section
from extproc.settings.values import File, Whole


class UsageSettings(Section):
    """Counts requests, tokens and slot-seconds by client, objective and model (docs/usage.md). Off
    without `path`."""

    path: File | None = None
    """The SQLite file that keeps the counts over restarts; created if it is missing. With it, the
    printed Envoy configuration sends the responses to Coxswain too, which reads the token counts at
    their ends: the picker and the printed configuration must have the same value."""
    keep_days: Whole = Field(default=400, ge=1, le=36_500)
    """The number of days after which counts are removed from the file."""
    read_counters: bool = False
    """Whether to read the token counters of llama-servers that run with `--metrics`, so that the
    sums are theirs even if clients leave. Each reading resets the averages that such a server shows
    in `/metrics` as `llamacpp:prompt_tokens_seconds` and `llamacpp:predicted_tokens_seconds`."""

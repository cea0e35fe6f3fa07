"""What use of an endpoint costs."""

from typing import Final, NamedTuple


class Price(NamedTuple):
    """In one currency of the operator's: a million tokens of prompts and of answers, and a
    slot-second."""

    prompt: float = 0.0
    generated: float = 0.0
    slot_s: float = 0.0

    def of(self, prompt_tokens: int, generated_tokens: int, slot_s: float) -> float:
        """The price of this use."""
        tokens = prompt_tokens * self.prompt + generated_tokens * self.generated
        return tokens / 1e6 + slot_s * self.slot_s


FREE: Final = Price()

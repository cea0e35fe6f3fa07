"""A server that is started in another way must prove itself, or its model goes back."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import httpx

from extproc.keeper.models_file import ModelEntry

PROOF_S: Final = 120.0


@dataclass(slots=True, eq=False)
class Trial:
    """`before` is what the model goes back to. `result` is None for a proof, else why it failed."""

    before: ModelEntry
    result: asyncio.Future[str | None] = field(default_factory=asyncio.Future)

    def end(self, problem: str | None) -> None:
        """The first end counts."""
        if not self.result.done():
            self.result.set_result(problem)


async def prove(client: httpx.AsyncClient) -> str | None:
    """Have one token completed, or one text embedded. None if that worked, else what happened."""
    answers: list[str] = []
    for path, body in (
        ("/completion", {"prompt": "1", "n_predict": 1}),
        ("/v1/embeddings", {"input": "1"}),
    ):
        try:
            answer = await client.post(path, json=body, timeout=PROOF_S)
        except httpx.HTTPError as error:
            return f"{path}: {str(error) or type(error).__name__}"
        if answer.status_code == httpx.codes.OK:
            return None
        answers.append(f"{path} answers {answer.status_code}")
    return ", ".join(answers)

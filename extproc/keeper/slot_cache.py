"""Saves the prompt caches of a llama-server before it stops, and restores them after its start.

    started  -> which server is it, exactly? -> a trial, once -> restore the newest slots
    to stop  -> save the idle slots that are worth it

llama-server selects a slot by the similarity of prompts, so a restored conversation finds its slot.
Nothing here ever fails a load or an unload: a cache that cannot be moved is lost, as without this.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import httpx

from extproc.keeper.slot_identity import identity_of
from extproc.keeper.slot_store import MIB, Probe, SavedSlot, SlotStore

SAVE_S: Final = 60.0
RESTORE_S: Final = 60.0
PROBE_TOKENS: Final = 512
PROBE_TAIL: Final = 8
LEAST_REUSED: Final = 0.9
MIN_TOKENS: Final = 32
"""A slot with fewer is read again before a file is opened."""

log = logging.getLogger("coxswain.keeper")


class SlotsUnavailableError(RuntimeError):
    """The server's slots cannot be saved; `str(error)` says why."""


UNKNOWN_FORM: Final = (LookupError, TypeError, AttributeError)
"""What reading an answer of another form than llama-server's raises."""
UNUSABLE: Final = (SlotsUnavailableError, httpx.HTTPError, OSError, ValueError, *UNKNOWN_FORM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server: how to ask it, and what it was started with."""

    client: httpx.AsyncClient
    command: Sequence[str]
    environment: Mapping[str, str]


class SlotCache:
    """The saved slots of one model. `say` writes a line for people. Belongs to one event loop."""

    def __init__(self, store: SlotStore, model: str, say: Callable[[str], None]) -> None:
        self._store = store
        self._model = model
        self._say = say
        self._identity: str | None = None
        self._probe: Probe | None = None

    def make_folder(self) -> str:
        """The folder for `--slot-save-path`; empty if there can be none: nothing is saved then."""
        try:
            return f"{self._store.folder_of(self._model)}/"
        except OSError as error:
            self._identity = self._probe = None
            self._say(f"slots are not saved: {_text(error)}")
            return ""

    async def restore(self, server: Server) -> None:
        """Find out which server has started, and restore the newest slots of exactly this one."""
        self._identity = self._probe = None
        try:
            async with asyncio.timeout(RESTORE_S):
                await self._restore(server)
        except TimeoutError:
            self._say(f"slots were not restored within {RESTORE_S:g} s")
        except UNUSABLE as error:
            self._say(f"slots are not saved: {_text(error)}")

    async def save(self, server: Server) -> None:
        """Save the idle slots that are worth it; the server gets no requests any more."""
        if self._identity is None or self._probe is None or not self._probe.helps:
            return
        try:
            async with asyncio.timeout(SAVE_S):
                await self._save(server, self._identity, self._probe)
        except TimeoutError:
            self._say(f"not all slots were saved within {SAVE_S:g} s")
        except UNUSABLE as error:
            self._say(f"slots were not saved: {_text(error)}")

    # After a start

    async def _restore(self, server: Server) -> None:
        props = await _get(server.client, "/props")
        if await _get(server.client, "/lora-adapters"):
            # Adapters are chosen by request and a saved slot does not say which it was made with.
            raise SlotsUnavailableError("it has LoRA adapters")
        models = await _get(server.client, "/v1/models")
        identity = await asyncio.to_thread(
            identity_of, server.command, server.environment, props, models
        )
        if identity is None:
            raise SlotsUnavailableError("its model file cannot be read here, so nothing proves it")
        probe = await asyncio.to_thread(self._store.probe, self._model, identity)
        if probe is None:
            probe = await self._try(server.client, identity, props, models)
            await asyncio.to_thread(self._store.set_probe, self._model, identity, probe)
        self._identity, self._probe = identity, probe
        if not probe.helps:
            self._say("slots are not saved: this model does not reuse a restored one")
            return
        slots = await _get(server.client, "/slots")
        saved = await asyncio.to_thread(self._store.saved, self._model, identity)
        done: list[SavedSlot] = []
        for slot, one in zip(_idle(slots), saved, strict=False):
            if await self._restore_one(server.client, slot, one):
                done.append(one)
        if done:
            self._say(f"restored {_amount(done)}")

    async def _restore_one(self, client: httpx.AsyncClient, slot: int, one: SavedSlot) -> bool:
        store = self._store
        if not await asyncio.to_thread(store.take, self._model, one):
            await asyncio.to_thread(store.drop, self._model, one.stem)
            return False
        try:
            answer = await _act(client, slot, "restore", f"{one.stem}.bin")
            is_whole = answer.get("n_restored") == one.tokens
        except (SlotsUnavailableError, ValueError):
            is_whole = False
        if is_whole:
            await asyncio.to_thread(store.put, self._model, one)
            return True
        await asyncio.to_thread(store.drop, self._model, one.stem)
        await _act(client, slot, "erase")
        return False

    async def _try(
        self,
        client: httpx.AsyncClient,
        identity: str,
        props: Mapping[str, Any],
        models: Mapping[str, Any],
    ) -> Probe:
        """Save and restore a prompt of ours before anybody else's is there."""
        prompt = _prompt(props, models)
        stem = await asyncio.to_thread(self._store.begin, self._model, identity, 0)
        try:
            first = await _complete(client, prompt)
            saved = await _act(client, 0, "save", f"{stem}.bin")
            await _act(client, 0, "erase")
            restored = await _act(client, 0, "restore", f"{stem}.bin")
            again = await _complete(client, [*prompt, *prompt[:PROBE_TAIL]])
            await _act(client, 0, "erase")
        finally:
            await asyncio.to_thread(self._store.drop, self._model, stem)
        size = max(1.0, float(saved["n_written"]))
        move_s = (_ms(saved, "save_ms") + _ms(restored, "restore_ms")) / 1000.0
        return Probe(
            helps=again["cache_n"] >= LEAST_REUSED * len(prompt),
            prefill_s_per_token=first["prompt_ms"] / 1000.0 / max(1, first["prompt_n"]),
            bytes_per_token=size / len(prompt),
            move_s_per_byte=move_s / size,
        )

    # Before a stop

    async def _save(self, server: Server, identity: str, probe: Probe) -> None:
        slots = await _get(server.client, "/slots")
        largest = max((_context(slot) for slot in slots), default=0) * probe.bytes_per_token
        done: list[SavedSlot] = []
        for slot in _idle(slots):
            if not await asyncio.to_thread(self._store.make_room, largest):
                raise SlotsUnavailableError(
                    f"one slot may take {largest / MIB:.0f} MiB, more than save_slots_mb"
                )
            stem = await asyncio.to_thread(self._store.begin, self._model, identity, slot)
            answer = await _act(server.client, slot, "save", f"{stem}.bin")
            tokens, size = int(answer["n_saved"]), float(answer["n_written"])
            if tokens < MIN_TOKENS or not probe.is_worth(tokens, size):
                await asyncio.to_thread(self._store.drop, self._model, stem)
                continue
            one = await asyncio.to_thread(self._store.add, self._model, stem, identity, tokens)
            if one is not None:
                done.append(one)
        stems = {one.stem for one in done}
        await asyncio.to_thread(self._store.keep_only, self._model, identity, stems)
        if done:
            self._say(f"saved {_amount(done)}")


def _prompt(props: Mapping[str, Any], models: Mapping[str, Any]) -> list[int]:
    """Numbers of tokens that any vocabulary has, in no order that repeats soon."""
    settings = props.get("default_generation_settings")
    context = settings.get("n_ctx", 0) if isinstance(settings, Mapping) else 0
    listed = models.get("data") or [{}]
    vocabulary = int((listed[0].get("meta") or {}).get("n_vocab") or 0)
    count = min(PROBE_TOKENS, int(context) // 2)
    if vocabulary < PROBE_TAIL or count < MIN_TOKENS:
        raise SlotsUnavailableError("it reports no vocabulary, or its context is too small")
    usable = min(vocabulary, 4096)
    return [(7 + index * index * 31 + index * 17) % usable for index in range(count)]


def _idle(slots: Any) -> list[int]:
    return [
        int(slot["id"])
        for slot in slots
        if isinstance(slot, Mapping) and not slot.get("is_processing") and "id" in slot
    ]


def _context(slot: Any) -> int:
    return int(slot.get("n_ctx") or 0) if isinstance(slot, Mapping) else 0


def _amount(done: Sequence[SavedSlot]) -> str:
    tokens, size = sum(one.tokens for one in done), sum(one.bytes for one in done)
    count = "1 slot" if len(done) == 1 else f"{len(done)} slots"
    return f"{count} with {tokens} tokens, {size / MIB:.1f} MiB"


def _text(error: Exception) -> str:
    if isinstance(error, UNKNOWN_FORM):
        return f"its answer has an unknown form ({type(error).__name__}: {error})"
    return str(error) or type(error).__name__


def _ms(answer: Mapping[str, Any], key: str) -> float:
    timings = answer.get("timings")
    return float(timings.get(key, 0.0)) if isinstance(timings, Mapping) else 0.0


async def _get(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    if answer.status_code != httpx.codes.OK:
        raise SlotsUnavailableError(f"{path} answers {answer.status_code}")
    return answer.json()


async def _act(
    client: httpx.AsyncClient, slot: int, action: str, file: str | None = None
) -> Mapping[str, Any]:
    body = {} if file is None else {"filename": file}
    answer = await client.post(
        f"/slots/{slot}", params={"action": action}, json=body, timeout=SAVE_S
    )
    content = answer.json()
    if answer.status_code != httpx.codes.OK or not isinstance(content, Mapping):
        raise SlotsUnavailableError(f"{action} of a slot answers {answer.status_code}")
    return content


async def _complete(client: httpx.AsyncClient, prompt: Sequence[int]) -> Mapping[str, Any]:
    """The timings of a completion of one token in slot 0."""
    body = {"prompt": list(prompt), "n_predict": 1, "cache_prompt": True, "id_slot": 0}
    answer = await client.post("/completion", json=body, timeout=RESTORE_S)
    timings = answer.json().get("timings") if answer.status_code == httpx.codes.OK else None
    if not isinstance(timings, Mapping):
        raise SlotsUnavailableError(f"a trial completion answers {answer.status_code}")
    return {key: timings.get(key) or 0 for key in ("cache_n", "prompt_n", "prompt_ms")}

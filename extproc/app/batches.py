"""`coxswain batch run`: sends the lines of batches, and serves the API for them, until it gets a
signal."""

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import httpx

from extproc import header_names
from extproc.app.security.client_keys import ClientKeys
from extproc.app.security.sent_secret import SentSecret, following
from extproc.app.service_manager import ServiceManager
from extproc.batches.api import BatchApi
from extproc.batches.picker_news import PickerNews
from extproc.batches.runner import CONNECT_S, MAX_RUNNING, Runner
from extproc.batches.store import BatchStore, StoreError
from extproc.core.address import is_loopback
from extproc.security.known_keys import KnownKey
from extproc.security.secret_file import SecretFileError
from extproc.settings import Settings
from extproc.settings.security_section import ClientsSettings
from extproc.settings.values import split_host_port

FORGET_INTERVAL_S: Final = 3600.0
IDLE_S: Final = 30.0
"""Envoy closes idle connections later."""
ResultT = TypeVar("ResultT")

log = logging.getLogger("coxswain.batches")


class BatchesError(ValueError):
    """The process cannot run like this; `str(error)` says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesPlan:
    """The options of the command line. `url` is Envoy's; `token` is the picker's, which
    `token_file` may hold; `api_key_file` has the key with which lines are sent, `keys_file` the
    keys of clients; `clients` may use batches, all of them if there are none."""

    picker: str
    store: Path
    listen: str
    url: str
    objective: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    api_key_file: Path | None = None
    keys_file: Path | None = None
    keep_s: float = 30 * 86_400.0
    max_file_bytes: int = 200 * 1024 * 1024
    max_store_bytes: int = 16 * 1024**3
    is_insecure: bool = False
    clients: frozenset[str] = frozenset()


async def run_batches(plan: BatchesPlan, connect: Callable[[], grpc.aio.Channel]) -> None:
    """Run until SIGTERM or SIGINT; lines that run then are sent again after the next start.

    Raises `SettingsError` for a file of keys that cannot be used, `BatchesError` for what else
    keeps it from running.
    """
    host, port = _place(plan)
    key = SentSecret("--api-key-file", plan.api_key_file)
    token = SentSecret("--token-file", plan.token_file, plan.token)
    try:
        key.read()
        token.read()
    except SecretFileError as error:
        raise BatchesError(str(error)) from None
    file = None if plan.keys_file is None else str(plan.keys_file)
    keys = ClientKeys(Settings(clients=ClientsSettings(keys_file=file)))
    keys.open()
    try:
        store = BatchStore(plan.store, plan.max_store_bytes)
    except StoreError as error:
        raise BatchesError(str(error)) from None
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as exits:
        thread = exits.enter_context(ThreadPoolExecutor(1, "batches"))
        exits.push_async_callback(loop.run_in_executor, thread, store.close)

        async def in_store(call: Callable[..., ResultT], *args: Any, **named: Any) -> ResultT:
            return await loop.run_in_executor(thread, partial(call, *args, **named))

        client = await exits.enter_async_context(_client(plan))
        news = PickerNews(plan.picker, connect, lambda: token.authorization, plan.objective)

        def headers() -> dict[str, str]:
            return {header_names.OBJECTIVE[0]: plan.objective, **dict(key.authorization)}

        runner = Runner(store, in_store, news, client, headers, partial(_opens, keys))
        news.on_news = runner.wake

        def who_asks(authorization: str, api_key: str) -> KnownKey | None:
            found = keys.key_of(authorization, api_key)
            if found is None or (plan.clients and found.client not in plan.clients):
                return None
            return found

        api = BatchApi(
            store,
            in_store,
            who_asks,
            on_new=runner.wake,
            on_ended=runner.stop_batch,
            max_file_bytes=plan.max_file_bytes,
        )
        try:
            bound = await api.start(host, port)
        except OSError as error:
            raise BatchesError(f"--listen {plan.listen}: {error.strerror}") from None
        exits.push_async_callback(api.stop)
        for followed in (keys, following((key, token))):
            followed.start()
            exits.push_async_callback(followed.aclose)
        news.start()
        exits.push_async_callback(news.aclose)
        log.info("serving batches on port %d of %s, through %s", bound, host, plan.url)
        await _run(plan, store, in_store, runner)


async def _run(
    plan: BatchesPlan,
    store: BatchStore,
    in_store: Callable[..., Awaitable[Any]],
    runner: Runner,
) -> None:
    async def forget() -> None:
        while True:
            count = await in_store(store.forget, time.time() - plan.keep_s)
            if count:
                log.info("deleted %d batches that ended long ago", count)
            await asyncio.sleep(FORGET_INTERVAL_S)

    manager = ServiceManager(os.environ)
    stopping = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None
    work = [
        asyncio.create_task(runner.run(), name="send lines"),
        asyncio.create_task(forget(), name="forget old batches"),
    ]
    stop = asyncio.create_task(stopping.wait(), name="wait for the end")
    manager.ready(f"sending lines through {plan.url}")
    try:
        with manager.stopping_on_signals(stopping.set, task):
            ended, _ = await asyncio.wait([*work, stop], return_when=asyncio.FIRST_COMPLETED)
            for one in ended:
                one.result()  # a full disk ends the process: it is started again
    except sqlite3.Error as error:
        raise BatchesError(f"{plan.store}: {error}") from None
    finally:
        for one in (*work, stop):
            one.cancel()
        await asyncio.gather(*work, stop, return_exceptions=True)
        manager.close()


def _opens(keys: ClientKeys, id_: str) -> bool:
    """Whether the key with this id opens still, where keys are checked."""
    names = keys.names()
    return names is None or any(digest.startswith(id_) for digest in names)


def _client(plan: BatchesPlan) -> httpx.AsyncClient:
    """The client of Envoy. An answer may take hours."""
    limits = httpx.Limits(max_connections=MAX_RUNNING, keepalive_expiry=IDLE_S)
    try:
        url = httpx.URL(plan.url)
        if url.scheme not in ("http", "https") or not url.host:
            raise httpx.InvalidURL("no host")
    except httpx.InvalidURL:
        raise BatchesError(
            "--url: write http://HOST:PORT, for example http://127.0.0.1:10000"
        ) from None
    return httpx.AsyncClient(
        base_url=url, limits=limits, timeout=httpx.Timeout(None, connect=CONNECT_S), trust_env=False
    )


def _place(plan: BatchesPlan) -> tuple[str, int]:
    """Where to listen; raises `BatchesError`."""
    try:
        host, port = split_host_port(plan.listen)
    except ValueError:
        raise BatchesError("--listen: write HOST:PORT, for example 127.0.0.1:9006") from None
    if not (is_loopback(plan.listen) or plan.keys_file is not None or plan.is_insecure):
        raise BatchesError(
            f"--listen {plan.listen}: without --keys-file everybody who reaches it may read all "
            "batches; give the file, listen on 127.0.0.1, or use --insecure"
        )
    return host, port

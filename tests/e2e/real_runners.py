"""A real vLLM, a real Ollama and a real llama-swap, where the variables VLLM, OLLAMA and LLAMA_SWAP
name their programs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import httpx

from extproc.demo.model import ModelShape, write_model
from extproc.demo.port import free_port
from tests.e2e.stack import until
from tests.fakes.tiny_transformer import write_transformer

VLLM = os.environ.get("VLLM", "")
OLLAMA = os.environ.get("OLLAMA", "")
LLAMA_SWAP = os.environ.get("LLAMA_SWAP", "")
START_S = 400.0
"""vLLM takes a minute on an idle machine, and five on a busy one."""
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class Program:
    """A server with its children, always at the same port."""

    def __init__(self) -> None:
        self._port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def _start(
        self, *command: str | Path, env: Mapping[str, str], log: Path, path: str
    ) -> None:
        """Returns when it answers 200 at this path."""
        with log.open("ab") as file:
            process = self._process = await asyncio.create_subprocess_exec(
                *command, env=env, stdout=file, stderr=file, start_new_session=True
            )

        def printed() -> str:
            return log.read_text()[-3000:]

        async with httpx.AsyncClient() as client:

            async def serves() -> bool:
                assert process.returncode is None, printed()
                with suppress(httpx.TransportError):
                    return (await client.get(f"http://{self.address}{path}")).status_code == 200
                return False

            await until(serves, START_S)

    async def kill(self) -> None:
        """All of its processes, at once."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def terminate(self) -> None:
        """Returns when it has ended its children, and itself."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            await process.wait()


class Vllm(Program):
    """A real vLLM that serves a small model and runs `slots` requests at once."""

    def __init__(self, folder: Path, slots: int) -> None:
        super().__init__()
        self._folder, self._slots = folder, slots

    @asynccontextmanager
    async def serving(self, name: str) -> AsyncIterator[Vllm]:
        await asyncio.to_thread(write_transformer, self._folder / "transformer")
        try:
            await self.start(name)
            yield self
        finally:
            await self.kill()

    async def start(self, name: str) -> None:
        """Serve the model under this name; returns when it is ready."""
        await self._start(
            *(VLLM, "serve", self._folder / "transformer", "--served-model-name", name),
            *("--host", "127.0.0.1", "--port", str(self._port), "--enforce-eager"),
            *("--max-num-seqs", str(self._slots), "--max-model-len", "4096"),
            env={
                **os.environ,
                **dict.fromkeys(("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS"), "1"),
                **dict.fromkeys(("TORCHDYNAMO_DISABLE", "OMP_NUM_THREADS"), "1"),
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            },
            log=self._folder / f"vllm-{name}.log",
            path="/health",
        )


class Ollama(Program):
    """A real Ollama that runs `slots` requests of a model at once."""

    def __init__(
        self, folder: Path, slots: int = 2, environment: Mapping[str, str] = NO_VARIABLES
    ) -> None:
        super().__init__()
        self._folder, self._slots, self._environment = folder, slots, environment

    @asynccontextmanager
    async def serving(self, *names: str) -> AsyncIterator[Ollama]:
        """It has small models of these names."""
        try:
            await self.start()
            for number, name in enumerate(names):
                await self._create(name, number)
            yield self
        finally:
            await self.kill()

    async def start(self) -> None:
        """Returns when it serves, the models that it had before, too."""
        home = self._folder / "home"
        home.mkdir(exist_ok=True)
        await self._start(
            *(OLLAMA, "serve"),
            env={
                "HOME": str(home),
                "OLLAMA_HOST": self.address,
                "OLLAMA_NUM_PARALLEL": str(self._slots),
                **self._environment,
            },
            log=self._folder / "ollama.log",
            path="/",
        )

    async def _create(self, name: str, seed: int) -> None:
        file = self._folder / "tiny.gguf"
        content = await asyncio.to_thread(small_model, file, seed)
        digest = f"sha256:{sha256(content).hexdigest()}"
        async with httpx.AsyncClient(timeout=60, base_url=f"http://{self.address}") as client:
            (await client.post(f"/api/blobs/{digest}", content=content)).raise_for_status()
            body = {"model": name, "files": {file.name: digest}, "stream": False}
            (await client.post("/api/create", json=body)).raise_for_status()


class LlamaSwap(Program):
    """A real llama-swap with its configuration in `file`."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[LlamaSwap]:
        try:
            await self._start(
                *(LLAMA_SWAP, "-config", self._file, "-listen", self.address),
                env={"HOME": str(self._file.parent), "PATH": os.environ["PATH"]},
                log=self._file.with_suffix(".log"),
                path="/health",
            )
            yield self
        finally:
            await self.terminate()  # its servers are in process groups of their own


def small_model(file: Path, seed: int) -> bytes:
    write_model(file, ModelShape(seed=seed))
    return file.read_bytes()

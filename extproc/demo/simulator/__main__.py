"""`python -m extproc.demo.simulator`: run one simulated llama-server until SIGTERM."""

import argparse
import asyncio
import signal
import sys

from extproc.demo.simulator.options import Distribution, SimulatorOptions
from extproc.demo.simulator.server import Simulator


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 0 then, 2 for options that cannot be, 1 for a taken port."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    host, port = given.pop("host"), given.pop("port")
    try:
        options = SimulatorOptions(**given)
    except ValueError as error:
        parser.error(str(error))
    return asyncio.run(_serve(options, host, port))


async def _serve(options: SimulatorOptions, host: str, port: int) -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    simulator = Simulator(options)
    try:
        bound = await simulator.start(host, port)
    except OSError as error:
        print(f"cannot listen on {host}:{port}: {error.strerror}", file=sys.stderr)
        return 1
    print(f"simulated llama-server on {host}:{bound}, {options.slots} slots", flush=True)
    await stopping.wait()
    await simulator.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    otherwise = SimulatorOptions()
    parser = argparse.ArgumentParser(
        prog="python -m extproc.demo.simulator",
        description="A llama-server without a model; every response says that it is simulated.",
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8080, help="the port; 0 selects a free one (default 8080)")
    add("--slots", type=int, default=otherwise.slots)
    add("--context-tokens", type=int, default=otherwise.context_tokens, help="of each slot")
    add("--shared-context", dest="has_shared_context", action="store_true", help="by all slots")
    add("--alias", default=otherwise.alias, help="the model's name")
    add("--service-time", dest="service_time_s", type=float, metavar="SECONDS")
    add(
        "--distribution",
        type=Distribution,
        choices=list(Distribution),
        default=otherwise.distribution,
        help="of service times around their mean",
    )
    add("--tokens-per-second", type=float, default=otherwise.tokens_per_second)
    add("--prompt-tokens-per-second", type=float, default=otherwise.prompt_tokens_per_second)
    add("--early-headers", dest="has_early_headers", action="store_true", help="of streams")
    add("--answer-tokens", type=int, default=otherwise.answer_tokens)
    add("--load", dest="load_s", type=float, default=0.0, metavar="SECONDS")
    add("--api-key")
    add("--no-slots", dest="shows_slots", action="store_false", help="answer /slots with 501")
    add("--metrics", dest="shows_metrics", action="store_true", help="answer /metrics")
    add(
        "--no-embeddings",
        dest="gives_embeddings",
        action="store_false",
        help="answer requests for embeddings and ranks with 501",
    )
    add(
        "--kept-prompts",
        type=int,
        default=otherwise.kept_prompts,
        help="prompts whose caches are kept outside the slots, as with llama-server's --cache-ram",
    )
    add(
        "--log-deferred",
        dest="logs_deferred",
        action="store_true",
        help="print a line for each request that finds no free slot, as llama-server's log does",
    )
    add("--seed", type=int)
    return parser


if __name__ == "__main__":
    sys.exit(main())

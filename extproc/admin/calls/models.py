"""The calls about the models of machines with a keeper, and of routers."""

import logging
from contextlib import aclosing
from dataclasses import asdict

from extproc.admin import arguments
from extproc.admin.call_errors import Context, invalid, maps_errors, not_found, not_now, quoted
from extproc.admin.dependencies import AdminCalls
from extproc.admin.keepers.rollout import Plan, Rollout
from extproc.admin.keepers.service import NoKeeperError
from extproc.admin.placement_json import machines_json, models_json
from extproc.core.placement.machine import KeptMachine, KeptModel
from extproc.core.placement.wanted_models import PlacementError
from extproc.pb.coxswain.v1 import admin_pb2 as pb

MAX_LINES = 2000
MAX_MODEL_CHARS = 600

MAX_WORDS = 1000
MAX_CMD_CHARS = 100_000

log = logging.getLogger("coxswain.admin")


class ModelCalls(AdminCalls):
    """Models by machine, and the logs of their servers."""

    @maps_errors
    async def ListModels(  # noqa: N802  # gRPC names it
        self, _request: pb.ListModelsRequest, _: Context
    ) -> pb.ListModelsResponse:
        dependencies = self._dependencies
        return pb.ListModelsResponse(
            models=models_json(dependencies, dependencies.clock()),
            machines=machines_json(dependencies),
        )

    @maps_errors
    async def LoadModel(  # noqa: N802
        self, request: pb.LoadModelRequest, _: Context
    ) -> pb.LoadModelResponse:
        machine, model = self._find_model(request.model)
        try:
            self._dependencies.placement.load(machine, model.name, is_pinned=request.pin)
        except PlacementError as error:
            raise not_now(str(error)) from None
        log.info("an operator loads %s on %s", model.name, machine.name)
        return pb.LoadModelResponse()

    @maps_errors
    async def UnloadModel(  # noqa: N802
        self, request: pb.UnloadModelRequest, _: Context
    ) -> pb.UnloadModelResponse:
        machine, model = self._find_model(request.model)
        try:
            self._dependencies.placement.unload(machine, model.name)
        except PlacementError as error:
            raise not_now(str(error)) from None
        log.info("an operator unloads %s on %s", model.name, machine.name)
        return pb.UnloadModelResponse()

    @maps_errors
    async def UnpinModel(  # noqa: N802
        self, request: pb.UnpinModelRequest, _: Context
    ) -> pb.UnpinModelResponse:
        machine, model = self._find_model(request.model)
        self._dependencies.placement.unpin(machine, model.name)
        log.info("an operator unpins %s on %s", model.name, machine.name)
        return pb.UnpinModelResponse()

    @maps_errors
    async def ReplaceModel(  # noqa: N802
        self, request: pb.ReplaceModelRequest, context: Context
    ) -> None:
        machines, model = self._find_everywhere(request.model)
        machines = [machine for machine in machines if not machine.is_router]
        if not machines:
            raise not_now(
                f"only routers of llama.cpp have {quoted(model)}: change its preset there; only a "
                "keeper can replace a command"
            )
        if not request.cmd and not request.HasField("memory_mb"):
            raise invalid("cmd or memory_mb: say what should be different")
        if len(request.cmd) > MAX_WORDS or sum(map(len, request.cmd)) > MAX_CMD_CHARS:
            raise invalid(f"cmd: at most {MAX_WORDS} arguments and {MAX_CMD_CHARS} characters")
        plan = Plan(
            model=model,
            machines=[machine.name for machine in machines],
            cmd=request.cmd,
            memory_mb=request.memory_mb if request.HasField("memory_mb") else None,
        )
        placement = self._dependencies.placement
        rollout = Rollout(
            self._dependencies.keepers,
            lambda machine, name: placement.load(machine, name, is_pinned=False),
            plan,
        )
        if request.is_dry_run:
            for step in rollout.preview():
                await context.write(pb.ReplaceModelResponse(**asdict(step)))
            return
        log.info("an operator replaces %s on %s", model, ", ".join(plan.machines))
        async with aclosing(rollout.run()) as steps:
            async for step in steps:
                log.info("replacing %s: %s %s", model, step.machine, step.text)
                await context.write(pb.ReplaceModelResponse(**asdict(step)))

    @maps_errors
    async def WatchLog(  # noqa: N802
        self, request: pb.WatchLogRequest, context: Context
    ) -> None:
        if request.lines > MAX_LINES:
            raise invalid(f"lines: at most {MAX_LINES}")
        machine, model = self._find_model(request.model)
        if machine.is_router:
            raise not_now(f"{machine.name} is a router of llama.cpp, which shows no logs over HTTP")
        log = self._dependencies.keepers.read_log(
            machine.name, model.name, request.lines, is_followed=request.follow
        )
        try:
            async for message in log:
                if message.lines or message.dropped:
                    await context.write(
                        pb.WatchLogResponse(lines=message.lines, dropped=message.dropped)
                    )
        except NoKeeperError as error:
            raise not_now(str(error)) from None
        finally:
            await log.aclose()
        if request.follow:
            raise not_now(f"the keeper of {machine.name} is gone")

    def _find_everywhere(self, text: str) -> tuple[list[KeptMachine], str]:
        """All machines with a model of this name; raises `CallError`."""
        arguments.checked(text, "model", MAX_MODEL_CHARS)
        found = [
            machine for machine in self._dependencies.machines.values() if text in machine.models
        ]
        if found:
            return found, text
        machine, model = self._find_model(text)
        return [machine], model.name

    def _find_model(self, text: str) -> tuple[KeptMachine, KeptModel]:
        """The model of `machine/model`, `machine.model` or `model`; raises `CallError`."""
        arguments.checked(text, "model", MAX_MODEL_CHARS)
        found = [
            (machine, model)
            for machine in self._dependencies.machines.values()
            for name, model in machine.models.items()
            if text in (name, f"{machine.name}/{name}", f"{machine.name}.{name}", *model.aliases)
        ]
        if not found:
            raise not_found(f"no machine has a model {quoted(text)}; `coxswain models` lists them")
        if len(found) > 1:
            machines = ", ".join(machine.name for machine, _ in found[:5])
            raise not_now(f"several machines have {quoted(text)} ({machines}): write machine/model")
        return found[0]

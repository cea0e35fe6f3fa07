"""What operators see and change: the admin port, and the pages."""

import time
from collections.abc import Callable

from extproc.admin import AdminDependencies, AdminService
from extproc.admin.agents import SERVICE as AGENTS_SERVICE
from extproc.admin.keepers import SERVICE as KEEPERS_SERVICE
from extproc.admin.service import SERVICE as ADMIN_SERVICE
from extproc.app.assembly.core import CoreAssembly
from extproc.app.assembly.data_plane import DataPlaneAssembly
from extproc.app.assembly.fleet import FleetAssembly
from extproc.app.assembly.models import ModelsAssembly
from extproc.app.grpc_port import ADMIN_OPTIONS, GrpcPort
from extproc.app.live_settings import LiveSettings
from extproc.app.pages.actions import Actions
from extproc.app.pages.keys import KeysPage
from extproc.app.pages.pages import Pages
from extproc.app.scale_command import ScaleCommand
from extproc.app.version import own_version
from extproc.core.processes import Processes
from extproc.core.views.explain import DryRunRequest, Explanation
from extproc.core.views.scale_advisor import ModelScale
from extproc.settings.values import split_host_port
from extproc.status import Hosts, Readiness
from extproc.status.playground import Playground
from extproc.stream.dry_run import dry_run
from extproc.transport import descriptors
from extproc.transport.health import Health


class OperatorsAssembly:
    """`scale_command` is None where nothing is run to scale."""

    def __init__(
        self,
        core: CoreAssembly,
        fleet: FleetAssembly,
        models: ModelsAssembly,
        data_plane: DataPlaneAssembly,
        live: LiveSettings,
        health: Health,
        problems: Callable[[], tuple[str, ...]],
        processes: Callable[[], Processes] | None,
    ) -> None:
        """`problems` are those of the sources in the settings."""
        self._core = core
        self._models = models
        self._data_plane = data_plane
        self._live = live
        self._source_problems = problems
        self.readiness = Readiness(core.dispatcher)
        settings = live.present
        scale = settings.scale
        self.scale_command: ScaleCommand | None = None
        if scale.command:
            self.scale_command = ScaleCommand(
                scale.command, scale.models, self._scale, time.monotonic, scale.command_timeout_s
            )
        dependencies = AdminDependencies(
            dispatcher=core.dispatcher,
            registry=core.registry,
            clock=time.monotonic,
            settings=live,
            added=fleet.sources.added,
            explain=self._explain,
            envoys=fleet.discovery.envoys,
            address_rejection=fleet.sources.address_rejection,
            obstacles=self.readiness.obstacles,
            problems=self.problems,
            outcomes=data_plane.telemetry.metrics.outcomes,
            bypassed=lambda: core.bypasses.total,
            takes_actions=lambda: self.actions.is_allowed,
            version=own_version(),
            started_at=time.monotonic(),
            keepers=models.keepers,
            placement=models.placement,
            read_usage=None if core.usage is None else core.usage.read,
            processes=processes,
            records=data_plane.records,
            events=data_plane.events,
        )
        admin_service = AdminService(dependencies)
        self.admin_port = GrpcPort(
            {
                ADMIN_SERVICE: admin_service,
                AGENTS_SERVICE: fleet.sources.agents,
                KEEPERS_SERVICE: models.keepers,
            },
            health,
            ADMIN_OPTIONS,
            descriptors.ADMIN,
        )
        self.actions = Actions(admin_service)
        self.pages = Pages(
            dependencies,
            core.pending_streams,
            data_plane.activity,
            self.actions,
            KeysPage(self.actions, core.client_keys, core.limits, core.registry, core.usage),
            Playground(settings.dashboard.gateway_url, split_host_port(settings.envoy.listen)[1]),
            metrics=data_plane.telemetry.prometheus,
            who_asks=core.client_keys.who_asks,
            hosts=Hosts.of(settings.listen),
            links=settings.dashboard.links,
        )

    def problems(self) -> tuple[str, ...]:
        """All that operators should know of."""
        return (
            *self._source_problems(),
            *self._models.keepers.problems(),
            *self._models.sleeping.problems(),
            *self._core.problems(),
            *self._data_plane.records.problems(),
            *(self.scale_command.problems() if self.scale_command is not None else ()),
        )

    def _explain(self, inquiry: DryRunRequest) -> Explanation:
        options = self._data_plane.processor.options
        return dry_run(self._core.dispatcher, options, inquiry, time.monotonic())

    def _scale(self) -> dict[str, ModelScale]:
        """The wanted servers of the models that `scale.command` starts and stops."""
        dispatcher, names = self._core.dispatcher, self._live.present.scale.models
        found = dispatcher.view.scale(time.monotonic(), names=names)
        return {name: found[dispatcher.view.canonical_model(name)] for name in names}

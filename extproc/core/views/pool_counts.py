"""Each pool in numbers, for display."""

from dataclasses import dataclass

from extproc.core.views.view import SlotCounts, View, sum_slots


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """A pool now: its endpoints, those of them that get requests, and their slots; its requests
    that have a slot, and those that are queued. Endpoints of higher tiers do not count."""

    name: str
    is_default: bool
    endpoints: int
    pickable: int
    slots: SlotCounts
    running: int
    queued: int


def pool_counts(view: View) -> list[PoolCounts]:
    """Every pool, none where no pools are configured. O(endpoints + leases)."""
    found: list[PoolCounts] = []
    for name in view.pools:
        members = [one for one in view.fleet if one.spec.pool == name and not one.spec.is_far]
        found.append(
            PoolCounts(
                name=name,
                is_default=name == view.options.resolver.default_pool,
                endpoints=len(members),
                pickable=sum(one.is_pickable for one in members),
                slots=sum_slots([view.slot_counts(one) for one in members]),
                running=sum(
                    len(view.slots_at(one.address).leases)
                    for one in view.fleet
                    if one.spec.pool == name
                ),
                queued=view.queue.count_for(name),
            )
        )
    return found

"""The engine in Valkey or Redis: one script for each call, so that each is one step.

All keys have one hash tag, so they are on one node of a cluster. Times to live are measured by the
server's clock alone. A beat says until when by that clock its member waits for the answer: one that
a server reads later, because it stood still, has no effect.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, cast

import redis.asyncio as client
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from extproc.processes.cluster.engine import Beat, EngineError, Leader, View, member_of

EAGER_S: Final = 0.05
EARLY_S: Final = 0.001
"""By how much a timer of uvloop, which counts whole milliseconds, may end early."""
ENTRIES_AT_ONCE: Final = 500
"""Of what operators asked for, in one step of the engine."""

BEAT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id, record, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local is_candidate, is_leading, has_lease = ARGV[4] == '1', ARGV[5] == '1', ARGV[6] == '1'
local known = tonumber(ARGV[7])
if now >= tonumber(ARGV[8]) then
  return {}
end
redis.call('ZADD', KEYS[3], now + lease, id)
redis.call('HSET', KEYS[4], id, record)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now)) do
  redis.call('ZREM', KEYS[3], gone)
  redis.call('HDEL', KEYS[4], gone)
end
local place = redis.call('HMGET', KEYS[2], 'epoch', 'id', 'record', 'clean', 'resigned')
local epoch = tonumber(place[1] or '0')
local holder = redis.call('GET', KEYS[1])
local is_known = place[2] and place[2] ~= ''
local is_forgotten = known > epoch or (known == epoch and not is_known)
local may_be_next = known == epoch or (known < epoch and not is_leading)
local is_its_own = (is_leading and known == epoch and place[2] == id)
  or (has_lease and is_forgotten)
if is_candidate and holder == id and known <= epoch then
  redis.call('PEXPIRE', KEYS[1], lease)
elseif is_candidate and (is_its_own or (not holder and may_be_next)) then
  local clean = place[5] == '1' and '1' or '0'
  if is_its_own then
    epoch = known
    clean = place[4] or '0'
  else
    epoch = epoch + 1
  end
  redis.call('SET', KEYS[1], id, 'PX', lease)
  redis.call('HSET', KEYS[2], 'epoch', epoch, 'id', id, 'record', record, 'clean', clean,
             'resigned', '0')
elseif holder == id and not is_candidate then
  redis.call('DEL', KEYS[1])
elseif known > epoch then
  redis.call('SET', KEYS[1], '', 'PX', lease)
  redis.call('HSET', KEYS[2], 'epoch', known, 'id', '', 'record', '', 'clean', '0',
             'resigned', '0')
end
place = redis.call('HMGET', KEYS[2], 'epoch', 'record', 'clean')
return {place[1] or '0', place[2] or '', place[3] or '0', redis.call('EXISTS', KEYS[1]),
        redis.call('HVALS', KEYS[4]), now}
"""

RESIGN: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[2], 'resigned', '1')
end
return 0
"""

SET_INTENTS: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
for at = 2, #ARGV, 2 do
  if ARGV[at + 1] == '' then
    redis.call('HDEL', KEYS[5], ARGV[at])
  else
    redis.call('HSET', KEYS[5], ARGV[at], ARGV[at + 1])
  end
end
return 1
"""

LEAVE: Final = """
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
return 0
"""


class ValkeyEngine:
    """See `Engine`. `addresses` are of one server, or of the sentinels that watch `master`. Each
    call ends within `timeout_s`. Belongs to one event loop."""

    def __init__(
        self,
        name: str,
        addresses: Sequence[str],
        lease_s: float,
        *,
        master: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
    ) -> None:
        self.eager_s = EAGER_S
        self._lease_ms = round(lease_s * 1000)
        self._timeout_s = lease_s / 4
        self._ahead_s: float | None = None
        """By how much the server's clock is ahead of ours, at least; None while it is unknown."""
        self._keys = [
            f"{{coxswain:{name}}}:{part}"
            for part in ("lead", "leader", "alive", "members", "intents")
        ]
        self._sentinels: list[client.Redis] = []
        self._client = self._connect(addresses, master, password, ca_file)
        self._beat = self._client.register_script(BEAT)
        self._resign = self._client.register_script(RESIGN)
        self._set_intents = self._client.register_script(SET_INTENTS)
        self._leave = self._client.register_script(LEAVE)

    def _connect(
        self,
        addresses: Sequence[str],
        master: str | None,
        password: str | None,
        ca_file: str | None,
    ) -> client.Redis:
        options: dict[str, Any] = {
            "socket_timeout": self._timeout_s,
            "socket_connect_timeout": self._timeout_s,
            "retry": Retry(NoBackoff(), 0),
            "decode_responses": True,
        }
        if password is not None:
            options["password"] = password
        if ca_file is not None:
            options["ssl_ca_certs"] = ca_file
        if master is None:
            return client.Redis.from_url(addresses[0], **options)
        pairs = [address.rpartition("://")[2].rpartition(":")[::2] for address in addresses]
        if addresses[0].startswith("rediss://"):
            options["ssl"] = True
        watchers = {key: options[key] for key in options if key != "password"}
        sentinel = Sentinel(  # type: ignore[no-untyped-call]  # it declares nothing
            [(host, int(port)) for host, port in pairs], sentinel_kwargs=watchers
        )
        self._sentinels = list(sentinel.sentinels)
        found: client.Redis = sentinel.master_for(master, **options)
        return found

    async def beat(self, beat: Beat) -> View:
        record = json.dumps(asdict(beat.member))
        flags = [int(beat.is_candidate), int(beat.is_leading), int(beat.has_lease)]
        arguments: list[str | int] = [beat.member.id, record, self._lease_ms, *flags, beat.epoch]
        ahead_s, self._ahead_s = self._ahead_s, None
        until = time.monotonic() + self._timeout_s - EARLY_S
        answer = await self._bounded(self._beat_until(until, arguments, ahead_s))
        if not answer:
            raise EngineError("it read a beat too late")
        try:
            epoch, place, clean, is_held, members, now_ms = answer
            self._ahead_s = int(now_ms) / 1000 - time.monotonic()
            leader = None
            if place:
                who = member_of(json.loads(place))
                leader = Leader(
                    id=who.id,
                    name=who.name,
                    address=who.address,
                    epoch=int(epoch),
                    is_clean=clean == "1",
                )
            alive = [member_of(json.loads(each)) for each in members]
            found = tuple(sorted(alive, key=lambda each: each.name))
            return View(leader=leader, is_held=bool(is_held), members=found)
        except (KeyError, TypeError, ValueError):
            raise EngineError("its keys hold something else: choose another cluster.name") from None

    async def _beat_until(
        self, until: float, arguments: list[str | int], ahead_s: float | None
    ) -> Any:
        if ahead_s is None:
            seconds, microseconds = await self._client.time()
            if time.monotonic() >= until:
                raise TimeoutError  # the client library may swallow that it was cancelled
            ahead_s = seconds + microseconds / 1e6 - time.monotonic()
        until_ms = int((until + ahead_s) * 1000)
        return await self._beat(keys=self._keys, args=[*arguments, until_ms])

    async def intents(self) -> Mapping[str, str]:
        read = self._client.hgetall(self._keys[4])
        found = await self._bounded(cast("Awaitable[dict[str, str]]", read))
        return {str(address): str(text) for address, text in found.items()}

    async def set_intents(self, member_id: str, changes: Mapping[str, str | None]) -> None:
        entries = list(changes.items())
        for first in range(0, len(entries), ENTRIES_AT_ONCE):
            words = [member_id]
            for address, text in entries[first : first + ENTRIES_AT_ONCE]:
                words += [address, text or ""]
            await self._bounded(self._set_intents(keys=self._keys, args=words))

    async def resign(self, member_id: str) -> None:
        await self._bounded(self._resign(keys=self._keys, args=[member_id]))

    async def leave(self, member_id: str) -> None:
        await self._bounded(self._leave(keys=self._keys, args=[member_id]))

    async def aclose(self) -> None:
        for each in (self._client, *self._sentinels):
            await each.aclose()

    async def _bounded(self, work: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError:
            raise EngineError(f"no answer within {self._timeout_s:g} s") from None
        except (RedisError, OSError) as error:
            raise EngineError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Its first line: messages of the client name addresses, never passwords."""
    return (str(error).partition("\n")[0] or type(error).__name__)[:200]

"""Store answers by cache key, in memory and on disk, with their stages encoded and decoded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence, Set

from fx_lsp.errors import ProtocolError
from fx_lsp.model import Stage, TraceReply
from fx_lsp.tracing.answers.disk import Cache, CachedTrace, Dependency, UnsavedTexts, is_fresh
from fx_lsp.tracing.answers.lru import Bounded
from fx_lsp.wire import decode_stage

log = logging.getLogger(__name__)

_ANSWERS = 4000
_OTHERS = 100
"""The most answers in memory that are neither shown nor on disk."""
_ENCODED_BYTES = 64 << 20
_NODES = 200_000
_SMALL_STAGE = 64 << 10


class Answers:
    """Hold traced answers: those that are shown, and others that are not on disk. Memory is bounded: 4000 answers, 64
    MiB of encoded stages, 200,000 decoded nodes.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._answers = Bounded[str, CachedTrace](_ANSWERS, lambda _: 1)
        self._encoded = Bounded[tuple[str, str], bytes](_ENCODED_BYTES, len)
        self._stages = Bounded[tuple[str, str], Stage](_NODES, lambda stage: len(stage.nodes))
        self._on_disk: set[str] = set()

    @property
    def trouble(self) -> str:
        """Return the reason why answers are not stored on disk, or ""."""
        return self._cache.trouble

    async def find(self, keys: Iterable[str], texts: UnsavedTexts) -> dict[str, CachedTrace]:
        """Return the answers whose dependencies are unchanged; others are dropped from memory."""
        remembered = {key: self._answers.get(key) for key in keys}
        fresh = await asyncio.to_thread(_look_up, remembered, self._cache, texts)
        for key in remembered:
            if key in fresh:
                if fresh[key] is not remembered[key]:
                    self._on_disk.add(key)
                self._answers.put(key, fresh[key])
            else:
                self._answers.drop(key)
        return fresh

    def keep(self, key: str, answer: CachedTrace, stages: Mapping[str, bytes]) -> None:
        """Store an answer in memory."""
        self._answers.put(key, answer)
        for name, data in stages.items():
            self._stages.drop((key, name))
            self._encoded.put((key, name), data)

    async def store(self, key: str, reply: TraceReply, lines: Sequence[int], files: Sequence[Dependency]) -> None:
        """Write an answer to disk."""
        if await asyncio.to_thread(self._cache.put, key, reply, lines, files):
            self._on_disk.add(key)

    async def stage(self, key: str, name: str) -> Stage | None:
        """Return a decoded stage; None if it is not stored."""
        stage = self.stage_now(key, name)
        if stage is not None:
            return stage
        data = self._encoded.get((key, name)) or await asyncio.to_thread(self._cache.stage, key, name)
        if data is None:
            return None
        return await self._decoded(key, name, data)

    async def decode(self, key: str, names: Iterable[str]) -> None:
        """Decode the stages that were just stored, so that the first hover finds them."""
        for name in names:
            data = self._encoded.get((key, name))
            if data is not None and self._stages.get((key, name)) is None:
                await self._decoded(key, name, data)

    async def _decoded(self, key: str, name: str, data: bytes) -> Stage | None:
        """Return a decoded stage and cache it; None if the stored data is invalid."""
        try:
            stage = await asyncio.to_thread(decode_stage, data)
        except ProtocolError as error:
            log.info("a stored stage is ignored: %s", error)
            return None
        if self._encoded.get((key, name)) in (None, data):  # unless a newer answer was stored meanwhile
            self._encoded.put((key, name), data)
            self._stages.put((key, name), stage)
        return stage

    def stage_now(self, key: str, name: str) -> Stage | None:
        """Return a stage that is decoded, or small enough to decode within about a millisecond; else None."""
        stage = self._stages.get((key, name))
        if stage is None:
            data = self._encoded.get((key, name))
            if data is None or len(data) > _SMALL_STAGE:
                return None
            try:
                stage = decode_stage(data)
            except ProtocolError:
                return None
            self._stages.put((key, name), stage)
        return stage

    def forget(self, key: str) -> None:
        """Drop one answer from memory."""
        self._answers.drop(key)

    def release(self, shown: Set[str]) -> None:
        """Drop what memory has of answers that are not shown: decoded stages, everything that is also on disk, and all
        but the last of those that are not.
        """
        others = [key for key in self._answers if key not in shown and key not in self._on_disk]
        unused = (self._on_disk - shown).union(others[:-_OTHERS])
        self._on_disk -= unused
        for key in unused:
            self._answers.drop(key)
        for stage in (stage for stage in self._encoded if stage[0] in unused):
            self._encoded.drop(stage)
        for stage in (stage for stage in self._stages if stage[0] not in shown):
            self._stages.drop(stage)

    def close(self) -> None:
        """Close the file on disk."""
        self._cache.close()


def _look_up(remembered: Mapping[str, CachedTrace | None], cache: Cache, texts: UnsavedTexts) -> dict[str, CachedTrace]:
    answers: dict[str, CachedTrace] = {}
    verdicts: dict[Dependency, bool] = {}
    for key, answer in remembered.items():
        is_current = answer is not None and is_fresh(answer.dependencies, texts, verdicts)
        fresh = answer if is_current else cache.get(key, texts, verdicts)
        if fresh is not None:
            answers[key] = fresh
    return answers

"""How fast the editor sees graphs: the real server over stdio, next to the same trace in a warm interpreter.

    python benchmarks/latency.py [--runs N] [--targets small,medium,large]
    python benchmarks/latency.py --gaps

With `--gaps`, it prints how long the server's loop is busy at once while views of 60,000 operations are made.
Every figure stands beside a peer from the same run on the same machine. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pygls.protocol
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from fx_lsp.features.wording.uris import View, format_uri

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers.py"
LIMIT_SECONDS = 120.0
"""How long anything is waited for that a server is to send."""
FIRST_RUNS = 5
"""How often a first graph is measured."""
PAUSE = 0.6
"""Seconds between two edits: nobody types faster than that and then waits."""


@dataclass(frozen=True)
class Target:
    """A definition to trace, and the line after which an edit adds a statement to it."""

    path: Path
    name: str
    anchor: str


@dataclass
class Editor:
    """A client of one server process."""

    client: LanguageClient
    pid: int
    quiescent: asyncio.Event
    version: int = 1

    async def open(self, target: Target) -> str:
        text = target.path.read_text()
        item = types.TextDocumentItem(uri=target.path.as_uri(), language_id="python", version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
        return text

    def change(self, target: Target, text: str) -> None:
        self.version += 1
        document = types.VersionedTextDocumentIdentifier(version=self.version, uri=target.path.as_uri())
        change = types.TextDocumentContentChangeWholeDocument(text=text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    async def graph(self, target: Target) -> str:
        """The forward graph of the text as it is now: waits for the trace."""
        command = types.ExecuteCommandParams(
            command="fxLsp.showStage", arguments=[target.path.as_uri(), target.name, "forward"]
        )
        answer = await within("a graph", self.client.workspace_execute_command_async(command))
        uri = answer["uri"] if isinstance(answer, dict) else answer.uri
        content = self.client.workspace_text_document_content_async(types.TextDocumentContentParams(uri=uri))
        shown = await within("the text of a graph", content)
        assert "def forward(" in shown.text, shown.text
        return shown.text

    async def lenses(self, target: Target) -> list[types.CodeLens]:
        document = types.TextDocumentIdentifier(uri=target.path.as_uri())
        answer = self.client.text_document_code_lens_async(types.CodeLensParams(document))
        return list(await within("an answer about lenses", answer) or [])

    async def stored(self) -> None:
        """Wait until nothing is traced any more: what the server knows by then is in its cache."""
        await asyncio.sleep(PAUSE)
        await within("the end of all traces", self.quiescent.wait())

    async def hover(self, target: Target, line: int, character: int) -> object:
        document = types.TextDocumentIdentifier(uri=target.path.as_uri())
        params = types.HoverParams(text_document=document, position=types.Position(line, character))
        return await within("a hover", self.client.text_document_hover_async(params))


async def within(what: str, answer: Awaitable[T]) -> T:
    """Return what a server answers; ends the benchmark with a sentence where that does not come."""
    try:
        return await asyncio.wait_for(answer, LIMIT_SECONDS)
    except asyncio.TimeoutError:
        raise SystemExit(f"{what} did not come within {LIMIT_SECONDS:.0f} s: the server hangs") from None


async def start(cache: Path, *server: str, open_traces: bool = False) -> tuple[Editor, float]:
    """A server and the seconds until it had answered `initialize`."""
    client = LanguageClient("benchmark", "1")

    @client.feature(types.WINDOW_SHOW_DOCUMENT)
    def show(params: types.ShowDocumentParams) -> types.ShowDocumentResult:
        return types.ShowDocumentResult(success=True)

    quiescent = asyncio.Event()

    @client.feature("fxLsp/status")
    def note(params: Any) -> None:
        (quiescent.set if params.quiescent else quiescent.clear)()

    started = time.perf_counter()
    await client.start_io(sys.executable, *(server or ("-m", "fx_lsp", "serve", "--trust")))
    options = {"interpreter": sys.executable, "cache": {"path": str(cache)}, "traceOnOpen": open_traces}
    capabilities = types.ClientCapabilities(
        window=types.WindowClientCapabilities(show_document=types.ShowDocumentClientCapabilities(support=True)),
        workspace=types.WorkspaceClientCapabilities(
            text_document_content=types.TextDocumentContentClientCapabilities(dynamic_registration=False)
        ),
    )
    parameters = types.InitializeParams(capabilities, initialization_options=options)
    await within("the answer to `initialize`", client.initialize_async(parameters))
    ready = time.perf_counter() - started
    client.initialized(types.InitializedParams())
    process = client._server
    assert process is not None
    return Editor(client, process.pid, quiescent), ready


async def stop(editor: Editor) -> None:
    await within("the answer to `shutdown`", editor.client.shutdown_async(None))
    editor.client.exit(None)
    await editor.client.stop()


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def targets() -> dict[str, Target]:
    found = {
        "small": Target(HERE / "targets" / "small.py", "attention", "def attention(q, k, v):\n"),
        "large": Target(HERE / "targets" / "large.py", "Decoder", "    def forward(self, ids):\n"),
    }
    try:
        import transformers
    except ImportError:
        return found
    llama = Path(transformers.__file__).parent / "models" / "llama" / "modeling_llama.py"
    return {**found, "medium": Target(llama, "LlamaAttention", "        input_shape = hidden_states.shape[:-1]\n")}


async def edits(target: Target, runs: int) -> list[float]:
    """Seconds from an edit inside the target to its fresh forward graph, `runs` times, with a warm server."""
    with tempfile.TemporaryDirectory() as directory:
        editor, _ = await start(Path(directory) / "cache.sqlite3")
        text = await editor.open(target)
        await editor.graph(target)
        await asyncio.sleep(10 if runs > 3 else 2)
        found: list[float] = []
        indent = re.match(r"\s*", target.anchor)
        assert indent is not None
        inner = indent[0] + ("    " if target.anchor.rstrip().endswith(":") else "")
        for run in range(runs + 1):
            await asyncio.sleep(PAUSE)
            edited = text.replace(target.anchor, f"{target.anchor}{inner}edit = {run}\n", 1)
            assert edited != text

            async def edit(edited: str = edited) -> None:
                editor.change(target, edited)
                await editor.graph(target)

            found.append(await timed(edit))
        await stop(editor)
    return found[1:]


def peer(how: str, name: str, runs: int) -> float:
    """Seconds: the median of a warm trace, or one fresh process under TORCH_LOGS."""
    environment = {**os.environ, "TORCH_LOGS": "aot_graphs"} if how == "logs" else dict(os.environ)
    command = [sys.executable, str(PEERS), how, name, str(runs)]
    limit = LIMIT_SECONDS * max(runs, 1)
    started = time.perf_counter()
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=limit)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{PEERS.name} {how} {name} did not end within {limit:.0f} s") from None
    return time.perf_counter() - started if how == "logs" else json.loads(done.stdout.splitlines()[-1])["p50"]


async def startup(target: Target) -> list[tuple[str, str, str]]:
    """Ready, cold graph, and a reopened project."""
    alone = statistics.median(_import_pygls() for _ in range(5))
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as directory:
        cache = Path(directory) / "cache.sqlite3"
        ready: list[float] = []
        for _ in range(5):
            editor, seconds = await start(cache)
            ready.append(seconds)
            await stop(editor)
        rows.append(_row("server ready", statistics.median(ready), "import pygls.lsp.server", alone))
        first, logs = await _first_graphs(cache, target)
        rows.append(_row("first graph, torch not yet loaded", first, "TORCH_LOGS run", logs))
        reopened: list[float] = []
        for _ in range(5):
            editor, _ = await start(cache)
            await editor.open(target)

            async def lenses_and_hover(editor: Editor = editor) -> None:
                await within(f"the lenses of {target.path.name}, from the cache,", shown_lenses(editor, target))
                await editor.hover(target, 5, 6)

            reopened.append(await timed(lenses_and_hover))
            await stop(editor)
        rows.append(("reopened: lenses and hover from the disk cache", _ms(statistics.median(reopened)), "–"))
    return rows


async def _first_graphs(cache: Path, target: Target) -> tuple[float, float]:
    """Return the median seconds of a first graph and of a TORCH_LOGS run, alternately; the last graph is in `cache`.

    Modules are compiled to bytecode before the first of both.
    """
    first: list[float] = []
    logs: list[float] = []
    for _ in range(FIRST_RUNS + 1):
        cache.unlink(missing_ok=True)
        editor, _ = await start(cache)
        await editor.open(target)
        first.append(await timed(lambda editor=editor: editor.graph(target)))
        await editor.stored()
        await stop(editor)
        logs.append(await asyncio.to_thread(peer, "logs", "small", 1))
    return statistics.median(first[1:]), statistics.median(logs[1:])


async def shown_lenses(editor: Editor, target: Target) -> None:
    """Ask for the lenses of a file until there are some."""
    while not await editor.lenses(target):
        await asyncio.sleep(0.005)


def _import_pygls() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import pygls.lsp.server"], check=True)
    return time.perf_counter() - started


async def hovers(small: Target, large: Target) -> list[tuple[str, str, str]]:
    """Hovers on a traced function, idle and while the large model is tracing; peak memory of server and zygote."""
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as directory:
        editor, _ = await start(Path(directory) / "cache.sqlite3")
        await editor.open(small)
        await editor.graph(small)
        for label in ("idle", "while the large model is tracing"):
            tracing: asyncio.Task[str] | None = None
            if label != "idle":
                await editor.open(large)
                tracing = asyncio.create_task(editor.graph(large))
                await asyncio.sleep(1)
            found = [await timed(lambda: editor.hover(small, 7, 13)) for _ in range(200)]
            rows.append((f"hover, {label}", f"p50 {_ms(_p(found, 50))}, p95 {_ms(_p(found, 95))}", "–"))
            if tracing is not None:
                await tracing
        views = [await timed(lambda: editor.graph(large)) for _ in range(5)]
        rows.append(("large model's forward graph opens", _ms(statistics.median(views)), "–"))
        server, zygote = _memory(editor.pid)
        rows.append(("peak memory, server", f"{server:.0f} MiB", "–"))
        rows.append(("peak memory, zygote (torch loaded)", f"{zygote:.0f} MiB", "–"))
        await stop(editor)
    return rows


def _memory(server: int) -> tuple[float, float]:
    """Peak resident MiB of the server and of its largest direct child, the zygote (Linux; zeros elsewhere)."""

    def peak(pid: int) -> float:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) / 1024  # type: ignore[index]

    try:
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        return peak(server), max((peak(int(c)) for c in children), default=0)
    except OSError:
        return 0, 0


async def gaps() -> list[tuple[str, float, float]]:
    """Return steps with a large function: the longest turn of the server's loop in seconds of its processor, and how
    late the loop came back at most.
    """
    pygls.protocol._dict_to_object = lambda data: _plain(data)  # a class for each object takes a minute
    rows: list[tuple[str, float, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        log, target = Path(directory) / "heartbeat", Target(Path(directory) / "large.py", "large", "")
        log.touch()
        target.path.write_text(LARGE)
        server = (str(HERE / "heartbeat.py"), str(log))
        editor, _ = await start(Path(directory) / "cache.sqlite3", *server, open_traces=True)
        await editor.open(target)
        await editor.stored()
        rows.append(("trace", *_latest(log)))
        for edit, text in (
            ("", LARGE),
            ("a line above", f"# a comment\n{LARGE}"),
            ("inside", LARGE.replace("return x", "return 2 * x")),
        ):
            if edit:
                editor.change(target, text)
                await editor.stored()
                rows.append((f"edit: {edit}", *_latest(log)))
            for label, method, params in _requests(target):
                await within(label, editor.client.protocol.send_request_async(method, params))
                rows.append((label, *_latest(log)))
        await stop(editor)
    return rows


LARGE = "import torch\n\n\ndef large(x: torch.Tensor):\n    for _ in range(300):\n" + "        x = x + 1\n" * 200
LARGE += "    return x\n"


def _plain(data: Any) -> Any:
    return SimpleNamespace(**data) if isinstance(data, dict) and "quiescent" in data else data


def _requests(target: Target) -> list[tuple[str, str, Any]]:
    """Return the requests on a large function: what an editor asks, and everything that draws its graphs."""
    uri = target.path.as_uri()
    document, place = types.TextDocumentIdentifier(uri), types.Position(7, 14)
    whole = types.Range(types.Position(0, 0), types.Position(400, 0))
    requests: list[tuple[str, str, Any]] = [
        ("lenses", types.TEXT_DOCUMENT_CODE_LENS, types.CodeLensParams(document)),
        ("hints", types.TEXT_DOCUMENT_INLAY_HINT, types.InlayHintParams(document, whole)),
        ("hover on the name", types.TEXT_DOCUMENT_HOVER, types.HoverParams(document, types.Position(3, 6))),
        ("hover on an expression", types.TEXT_DOCUMENT_HOVER, types.HoverParams(document, place)),
    ]
    file, full = str(target.path), format_uri(View(str(target.path), target.name, "joint", True))
    views = [View(file, target.name, name) for name in ("forward", "backward", "joint", "summary")]
    for shown in (*map(format_uri, views), full, format_uri(View(file, target.name, "backward", before="forward"))):
        name = f"view {shown.rpartition('large.')[2]}"
        requests.append((name, types.WORKSPACE_TEXT_DOCUMENT_CONTENT, types.TextDocumentContentParams(shown)))
    shown, line = types.TextDocumentIdentifier(full), types.Position(300, 6)
    related = {"uri": full, "position": {"line": 300, "character": 6}}
    return [
        *requests,
        ("hover in a view", types.TEXT_DOCUMENT_HOVER, types.HoverParams(shown, line)),
        ("highlights in a view", types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT, types.DocumentHighlightParams(shown, line)),
        ("related places", "fxLsp/related", related),
        ("origins", "fxLsp/origins", {"uri": full}),
        ("picture", "fxLsp/graph", {"uri": format_uri(views[2])}),
        ("memory", "fxLsp/memory", {"uri": format_uri(views[0])}),
    ]


def _latest(log: Path) -> tuple[float, float]:
    """Return the longest turn and the largest delay since the last call."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    os.truncate(log, 0)
    return max((e["busy"] for e in events), default=0.0), max((e["late"] for e in events), default=0.0)


def _p(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) * percent // 100, len(values) - 1)]


def _ms(seconds: float) -> str:
    return (
        f"{seconds * 1000:.1f} ms"
        if seconds < 0.1
        else f"{seconds * 1000:.0f} ms"
        if seconds < 10
        else f"{seconds:.1f} s"
    )


def _row(label: str, seconds: float, other: str, peer_seconds: float) -> tuple[str, str, str]:
    return label, _ms(seconds), f"{other} {_ms(peer_seconds)} ({seconds / peer_seconds:.2f}×)"


async def measure(names: list[str], runs: int) -> list[tuple[str, str, str]]:
    known = targets()
    rows = await startup(known["small"])
    for name in names:
        if name not in known:
            print(f"{name} left out: transformers is not installed", file=sys.stderr)
            continue
        count = runs if name != "large" else max(runs // 10, 3)
        warm = peer("warm", name, count)
        seconds = await edits(known[name], count)
        logs = peer("logs", name, 1)
        median = statistics.median(seconds)
        label = f"edit to graph, {name} ({known[name].name}, {count} edits)"
        ours = f"p50 {_ms(median)}, p95 {_ms(_p(seconds, 95))}"
        rows.append((label, ours, f"warm trace {_ms(warm)} ({median / warm:.2f}×) · TORCH_LOGS run {_ms(logs)}"))
    return [*rows, *(await hovers(known["small"], known["large"]) if "large" in names else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--targets", default="small,medium,large")
    parser.add_argument("--gaps", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)  # this client is told more than it knows
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the modules of both have bytecode, as after an installation
    if arguments.gaps:
        turns = asyncio.run(gaps())
        print("| step | longest turn of the loop | longest delay of the loop |\n| --- | --- | --- |")
        for label, busy, late in (*turns, ("largest", max(t[1] for t in turns), max(t[2] for t in turns))):
            print(f"| {label} | {_ms(busy)} | {_ms(late)} |")
        return
    rows = asyncio.run(measure(arguments.targets.split(","), arguments.runs))
    import importlib.metadata

    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {importlib.metadata.version('torch')}\n")
    print("| what | fx-lsp | peer in the same run |\n| --- | --- | --- |")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()

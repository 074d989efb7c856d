"""Shapes beside the code while a debugger has stopped."""

from pathlib import Path

from lsprotocol import types
from sessions import traced

TEXT = "def f(x): return x + 1\n\ndef broken(x): return fail\n"


async def values(e, uri: str, stopped: int) -> list[types.InlineValueEvaluatableExpression] | None:
    line = types.Range(types.Position(stopped, 0), types.Position(stopped, 5))
    whole = types.Range(types.Position(0, 0), types.Position(9, 0))
    context = types.InlineValueContext(frame_id=1, stopped_location=line)
    params = types.InlineValueParams(types.TextDocumentIdentifier(uri), whole, context)
    return await e.client.text_document_inline_value_async(params)


async def test_nothing_for_a_function_that_is_not_traced_and_between_functions(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        assert e.result.capabilities.inline_value_provider
        assert await values(e, uri, 2) is None
        assert await values(e, uri, 1) is None
        assert list(await values(e, uri, 0)) == []

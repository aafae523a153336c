"""ONNX written in half the time: its optimiser without work that comes to nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest


@contextmanager
def quick_rewriting() -> Iterator[None]:
    """The same files.

    A pattern of several outputs is looked for at every node, each time after a list of all nodes was made, although
    the first output must be an operator of the same name as the node. Here that is compared first.
    """
    if find_spec("onnxscript") is None:
        yield
        return
    from onnxscript.rewriter import _basics, _matcher

    matcher = _matcher.SimplePatternMatcher
    slow = matcher.match

    def match(self: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        if self.pattern.output_nodes[0].op.matches(node.op_type):
            return slow(self, model, graph, node, **options)
        return _basics.MatchResult().fail("another operator")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(matcher, "match", match)
        yield

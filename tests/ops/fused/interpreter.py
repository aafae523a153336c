"""Triton's interpreter without the work that takes two thirds of its time and has no effect."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch


@contextmanager
def sparing_work() -> Iterator[None]:
    """Every result stays the same.

    Whenever a kernel calls a function, the interpreter patches triton's language, always alike: here once. Whenever it
    asks for the type of an array, it makes the table anew: here once. And it computes which integers overflow, only
    to assert nothing of it unless it is debugged: here not at all.
    """
    if torch.cuda.is_available():
        yield
        return
    from triton import language
    from triton.runtime import interpreter

    number_type = cache(interpreter._get_np_dtype)

    def array_type(kind: Any) -> np.dtype:
        return np.dtype(np.uint64) if kind.scalar.is_ptr() else number_type(kind.scalar)  # pointers have no hash

    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"tl": language, "core": language.core}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(interpreter, "_patch_lang", lambda _: SimpleNamespace(restore=lambda: None))
        patched.setattr(interpreter, "_get_np_dtype", array_type)
        options = interpreter.InterpreterOptions(sanitize_overflow=False)
        patched.setattr(interpreter.interpreter_builder, "options", options)
        yield
    scope.restore()

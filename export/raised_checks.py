"""Recognizes checks in an author's forward: ``assert test`` and ``if test: raise ...``.

A check of a traced value has no answer while forward is traced. It is passed then; the module
itself, checks included, runs on every batch that its program is compared on.
"""

from __future__ import annotations

import ast
import linecache
from functools import cache
from types import FrameType

__all__ = ["passing_answer"]


def passing_answer(frame: FrameType) -> bool | None:
    """What a traced value says of itself so that the check around it passes.

    Args:
        frame: where Python asks a traced value whether it is true.

    Returns:
        None: that is no check, or one whose test both holds and negates such answers.
    """
    checks = [
        check
        for check in _checks(frame.f_code.co_filename)
        if check.first_line <= frame.f_lineno <= check.last_line
    ]
    return min(checks, key=lambda each: each.last_line - each.first_line).answer if checks else None


class _Check:
    def __init__(self, statement: ast.Assert | ast.If) -> None:
        self.first_line = statement.lineno
        self.last_line = statement.test.end_lineno or statement.test.lineno
        holds = isinstance(statement, ast.Assert)
        negations = sum(map(_negates, ast.walk(statement.test)))
        self.answer: bool | None = holds
        if negations:
            self.answer = not holds if negations == 1 and _negates(statement.test) else None


def _negates(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(isinstance(operator, ast.NotIn) for operator in node.ops)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


@cache
def _checks(file: str) -> tuple[_Check, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # No Python, or of another version.
        return ()
    return tuple(
        _Check(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and _only_raises(node))
    )


def _only_raises(node: ast.If) -> bool:
    return not node.orelse and len(node.body) == 1 and isinstance(node.body[0], ast.Raise)

"""Shortens functions of an exported script: a name that is used once gives way to its value, and a helper that only
returns an expression to that expression. Functions are texts; a changed statement is one line, and keeps its comments.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence

from .lines import literal
from .specialised import LINE_LENGTH, without_comment

_KEY = re.compile(r"\w+\.\w+")
MOST_CALLS = 2  # of a helper that gives way to its expression
Simple = ast.Return | ast.Assign | ast.Expr
_DEFERRED = (ast.Lambda, ast.FunctionDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def shorten(sources: dict[str, str], kept: Sequence[str]) -> None:
    """Change the functions by name until none gets shorter. Those that are `kept` are called by the script itself."""
    before: dict[str, str] = {}
    while sources != before:
        before = dict(sources)
        for name in before:
            sources[name] = _without_a_name(sources[name])
        for name in [name for name in before if name not in kept]:
            _inline(sources, name)


def _without_a_name(source: str) -> str:
    """Return the source without the first name that only the next statement uses, that is its own value or no use."""
    tree = ast.parse(source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    parameters = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node, following in (pair for block in _blocks(tree) for pair in itertools.pairwise(block)):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name, value = node.targets[0].id, node.value
        first, *uses = (each for each in names if each.id == name)
        unused = not uses and isinstance(value, ast.Constant)
        if unused or (isinstance(value, ast.Name) and value.id == name):
            return _replaced(source, node, node, None) or source
        if name in parameters or len(uses) != 1 or not isinstance(following, Simple):
            continue
        length = following.col_offset + sum(len(ast.unparse(each)) for each in (following, value)) - len(first.id)
        if length <= LINE_LENGTH and any(each is uses[0] for each in _at_once(following)):
            return _replaced(source, node, following, _Replacing({id(uses[0]): value}).visit(following)) or source
    return source


def _inline(sources: dict[str, str], name: str) -> None:
    """Replace the last call of a function that only returns an expression; one that is not called is left out."""
    trees = {user: ast.parse(text) for user, text in sources.items() if user != name}
    named = [(user, node) for user, tree in trees.items() for node in ast.walk(tree)
             if isinstance(node, ast.Name) and node.id == name]  # fmt: skip
    if not named:
        del sources[name]
        return
    function, (user, func) = ast.parse(sources[name]).body[0], named[-1]
    value = _only_returned(function)
    if value is None or (len(named) > MOST_CALLS and not _is_simple(value)):
        return
    for statement in (node for block in _blocks(trees[user]) for node in block if isinstance(node, Simple)):
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.func is func):
            given = _given(function, call)
            if given is None or not _is_movable(value, given, trees[user]):
                return
            parts = {id(node): given[node.id] for node in ast.walk(value)
                     if isinstance(node, ast.Name) and node.id in given}  # fmt: skip
            changed = _Replacing({id(call): _Replacing(parts).visit(value)}).visit(statement)
            own = sources[name].split("\n")[value.lineno - 1 :]
            sources[user] = _replaced(sources[user], statement, statement, changed, own) or sources[user]
            return


def _only_returned(function: ast.stmt) -> ast.expr | None:
    match function:
        case ast.FunctionDef(decorator_list=[], body=[*more, ast.Return(value=value)], args=given):
            special = [*given.posonlyargs, *given.kwonlyargs, given.vararg, given.kwarg]
            is_alone = len(more) == (ast.get_docstring(function) is not None)
            return value if is_alone and not any(special) else None
    return None


def _given(function: ast.stmt, call: ast.Call) -> dict[str, ast.expr] | None:
    """Return the arguments of the call by parameter; None if they are not all named or in their places."""
    assert isinstance(function, ast.FunctionDef)
    parameters = [arg.arg for arg in function.args.args]
    given = dict(zip(reversed(parameters), reversed(function.args.defaults), strict=False))
    given |= dict(zip(parameters, call.args, strict=False)) | {word.arg or "": word.value for word in call.keywords}
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    return None if starred or given.keys() != {*parameters} else given


def _is_movable(value: ast.expr, given: Mapping[str, ast.expr], user: ast.AST) -> bool:
    """True if the names in `value` mean the same in the `user`, and no argument is evaluated twice or later."""
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    local = {node.arg for node in ast.walk(user) if isinstance(node, ast.arg)}
    local |= {node.id for node in ast.walk(user) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    is_at_once = not any(isinstance(node, _DEFERRED) for node in ast.walk(value))
    once = all(_is_simple(argument) or names.count(name) == 1 for name, argument in given.items())
    return is_at_once and once and local.isdisjoint({*names} - {*given})


def _is_simple(value: ast.expr) -> bool:
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name | ast.Constant)


def _at_once(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated when `node` is, and once."""
    yield node
    for child in () if isinstance(node, _DEFERRED) else ast.iter_child_nodes(node):
        yield from _at_once(child)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    blocks = (getattr(node, name, None) for node in ast.walk(tree) for name in ("body", "orelse"))
    return (block for block in blocks if isinstance(block, list))


class _Replacing(ast.NodeTransformer):
    """Replaces nodes by their ids; a choice whose condition has become known is its chosen part."""

    def __init__(self, parts: Mapping[int, ast.AST]) -> None:
        self.parts = parts

    def visit(self, node: ast.AST) -> ast.AST:
        if id(node) in self.parts:
            return self.parts[id(node)]
        self.generic_visit(node)
        if isinstance(node, ast.IfExp) and isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node


def _replaced(source: str, first: ast.stmt, last: ast.stmt, by: ast.AST | None, more: Sequence[str] = ()) -> str | None:
    """Return the source with a statement, or none, for those from `first` to `last`; None if its line is too long."""
    lines = source.split("\n")
    end = last.end_lineno or last.lineno
    alone = [line for line in lines[first.lineno - 1 : end] if line.lstrip().startswith("#")]
    comments = [without_comment(line)[1] for line in (*lines[first.lineno - 1 : end], *more) if line not in alone]
    new = []
    if by is not None:
        text = " " * first.col_offset + _in_double_quotes(ast.unparse(by))
        if len(text) > LINE_LENGTH:
            return None
        new = [text + _merged(comments)]
    return "\n".join([*lines[: first.lineno - 1], *alone, *new, *lines[end:]])


def _merged(comments: Sequence[str]) -> str:
    """Return the comment of a line that replaces others: first the options' keys."""
    parts = dict.fromkeys(part for comment in comments for part in re.split(", |: ", comment) if part)
    return f"  # {', '.join(sorted(parts, key=lambda part: not _KEY.fullmatch(part)))}" if parts else ""


def _in_double_quotes(text: str) -> str:
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.STRING and token.string.startswith("'"):
            text = text[: token.start[1]] + literal(ast.literal_eval(token.string)) + text[token.end[1] :]
    return text

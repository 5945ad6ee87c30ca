"""A function of the engine as an exported script needs it: expressions of options are replaced by their values, decided
conditions leave one branch, known parameters are left out, and names and helpers that are used once give way to their
expressions. A node's notes, the keys of the options that it depends on and comments, become the comment of its line.
"""

from __future__ import annotations

import ast
import builtins
import copy
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..options import GROUPS, Options
from ..options.catalogue import Group

LINE_LENGTH = 120
MOST_CALLS = 2  # of a helper that gives way to its expression
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_CALLS = ("tuple", "int", "str", "bool", "max", "min")
_PLAIN = (str, int, float, bool, tuple, list, type(None))
_FIELDS = {"workload.source": "workload.data", "workload.normalization_of_model": "workload.normalization",
           "input.augmentations": "input.augment", "bytes_to_device": "input.cast"}  # fmt: skip
Simple = ast.Return | ast.Assign | ast.Expr
_DEFERRED = (ast.Lambda, ast.FunctionDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Partly(dict[str, Any]):
    """A value of which only some attributes are known: attribute -> value."""


def notes(node: ast.AST) -> list[str]:
    of_node: list[str] = node.__dict__.setdefault("notes", [])
    return of_node


def above(node: ast.AST) -> list[str]:
    """Return the comments in the lines above a statement."""
    comments: list[str] = node.__dict__.setdefault("above", [])
    return comments


class Specialiser(ast.NodeTransformer):
    """Evaluates what the options and `constants` (name -> value) decide. Until the function is complete, a known
    expression is an ast.Constant of any object, which has the expression as its `original`.
    """

    def __init__(self, options: Options | None = None, constants: Mapping[str, Any] | None = None) -> None:
        self._known = dict(constants or {})
        if options is not None:
            self._known["options"] = options
            self._keys = {id(getattr(options, name)): f"{name}." for name in GROUPS} | {id(options): ""}
        partly = [pair for value in self._known.values() if isinstance(value, Partly) for pair in value.items()]
        self._fields = {name for name, value in partly if isinstance(value, _PLAIN)}

    def _is_known(self, name: str | None) -> bool:
        return name in self._known and not isinstance(self._known[name], Partly)

    # ---- expressions --------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_value = isinstance(node.ctx, ast.Load) and self._is_known(node.id)
        return _constant(self._known[node.id], node) if is_value else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        partly = self._known.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if isinstance(partly, Partly) and node.attr in partly:
            return _constant(partly[node.attr], node)
        self.generic_visit(node)
        match node.value:
            case ast.Constant(value=Options() | Group() as owner):
                key = self._keys[id(owner)] + node.attr
                keys = [_FIELDS[key]] if key in _FIELDS else [key] if "." in key else []
                return _constant(getattr(owner, node.attr), node, [*notes(node.value), *keys])
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if isinstance(node.func, ast.Name) and self._is_known(node.func.id):  # the result of the function is known
            return _constant(self._known[node.func.id], node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name and name not in dir(builtins):
            node.args = [arg for arg in node.args if not (isinstance(arg, ast.Name) and self._is_known(arg.id))]
            names = self._fields if name[0].isupper() else {each for each in self._known if self._is_known(each)}
            node.keywords = [word for word in node.keywords if word.arg not in names]
        self.generic_visit(node)
        is_evaluated = name in _CALLS and not node.keywords
        return _evaluated(node, node.args, getattr(builtins, name)) if is_evaluated else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        (operation, *more), operands = map(type, node.ops), [node.left, *node.comparators]
        return node if more else _evaluated(node, operands, _COMPARE[operation])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return _evaluated(node, [node.operand], operator.not_) if isinstance(node.op, ast.Not) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return _evaluated(node, [node.value, node.slice], operator.getitem)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        test = self.visit(node.test)
        if not isinstance(test, ast.Constant):
            node.test, node.body, node.orelse = test, self.visit(node.body), self.visit(node.orelse)
            return node
        chosen: ast.AST = self.visit(node.body if test.value else node.orelse)
        notes(chosen).extend(notes(test))
        return chosen

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """A single part may decide it. Parts that do not are left out, except a last one that may be the value."""
        self.generic_visit(node)
        kept, keys = list[ast.expr](), list[str]()
        for part in node.values:
            if not isinstance(part, ast.Constant):
                kept.append(part)
                continue
            decides = bool(part.value) == isinstance(node.op, ast.Or)
            if (decides and (not kept or isinstance(part.value, bool))) or (part is node.values[-1] and not kept):
                return _constant(part.value, node, [*keys, *notes(part)])
            if decides or (part is node.values[-1] and not isinstance(part.value, bool)):
                kept.append(part)
            else:
                keys += notes(part)
            if decides:
                break
        node.values = kept
        result = kept[0] if len(kept) == 1 else node
        notes(result).extend(keys)
        return result

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        defaults = [*[None] * (len(node.args) - len(node.defaults)), *node.defaults]
        kept = [pair for pair in zip(node.args, defaults, strict=True) if not self._is_known(pair[0].arg)]
        node.args, node.defaults = [arg for arg, _ in kept], [default for _, default in kept if default is not None]
        self.generic_visit(node)
        return node

    # ---- statements ---------------------------------------------------------------------------

    def specialised(self, node: ast.stmt) -> ast.stmt:
        """Return the definition, which is changed in place. Raises ValueError if it cannot be exported."""
        changed: ast.stmt = _Literals().visit(self.visit(node))
        return changed

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """A dataclass, of which a value that is partly known is an object, does not need the known fields."""
        is_known = [isinstance(each, ast.AnnAssign) and ast.unparse(each.target) in self._fields for each in node.body]
        node.body = [each for each, leaves in zip(node.body, is_known, strict=True) if not leaves]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if again := sorted(filter(self._is_known, stored)):
            raise ValueError(f"{node.name} cannot be exported: it gives {', '.join(again)} another value")
        outer, self._known = self._known, dict(self._known)
        self.visit_compound(node)
        self._known = outer
        return node

    def visit_compound(self, node: Any) -> Any:
        body, orelse = node.body, getattr(node, "orelse", [])
        node.body = node.orelse = []
        self.generic_visit(node)
        node.body, node.orelse = self._block(body) or [ast.Pass()], self._block(orelse)
        return node

    visit_For = visit_While = visit_With = visit_compound

    def _block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the statements that are left, up to the first that always returns or raises."""
        made: list[ast.stmt] = []
        keys: list[str] = []  # of decided conditions, named at the statement that follows from them
        for node in body:
            if self._binds_group(node):
                continue
            if isinstance(node, ast.If) and isinstance(test := self.visit(node.test), ast.Constant):
                chosen = node.body if test.value else node.orelse
                keys += notes(test) if chosen else filter(self._is_changed, notes(test))
                new = self._block(chosen)
            else:
                new = [self.visit_compound(node) if isinstance(node, ast.If) else self.visit(node)]
            if new:
                notes(new[0])[:0] = keys
                above(new[0])[:0] = [] if new[0] is node else above(node)
                made += new
                keys = []
            if made and isinstance(made[-1], ast.Return | ast.Raise):
                break
        if made:
            notes(made[-1]).extend(keys)
        return made

    def _binds_group(self, node: ast.stmt) -> bool:
        """Return True for a statement such as `given = options.input`, whose name is then known."""
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            return False
        pair = (node.targets[0], copy.deepcopy(node.value))
        targets, values = (each.elts if isinstance(each, ast.Tuple) else [each] for each in pair)
        groups = [getattr(self.visit(value), "value", None) for value in values]
        if len(targets) != len(groups) or not all(isinstance(value, Group) for value in groups):
            return False
        self._known |= zip(map(ast.unparse, targets), groups, strict=True)
        return True

    def _is_changed(self, key: str) -> bool:
        return bool(self._known["options"].value(key) != Options().value(key))


class _Literals(ast.NodeTransformer):
    """Puts a known expression back whose value has no literal."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        original: ast.AST = node.__dict__.get("original", node)
        return node if isinstance(node.value, _PLAIN) or original is node else self.generic_visit(original)


def _constant(value: Any, node: ast.expr, keys: Sequence[str] = ()) -> ast.Constant:
    constant = ast.Constant(value)
    constant.__dict__ |= {"original": node, "notes": list(keys)}
    return constant


def _evaluated(node: ast.expr, operands: Sequence[ast.expr], operation: Callable[..., Any]) -> ast.expr:
    """Return the result of an operation whose operands are known, or the `node`."""
    values = _values(operands)
    keys = [note for operand in operands for each in ast.walk(operand) for note in notes(each)]
    return node if values is None else _constant(operation(*values), node, keys)


def _values(nodes: Sequence[ast.expr]) -> list[Any] | None:
    """Return the values of known expressions, among which may be tuples of such. None if one is not known."""
    values = list[Any]()
    for node in nodes:
        inner = _values(node.elts) if isinstance(node, ast.Tuple | ast.List) else None
        if not isinstance(node, ast.Constant) and inner is None:
            return None
        values.append(node.value if isinstance(node, ast.Constant) else tuple(inner or ()))
    return values


# ---- names and helpers that are used once --------------------------------------------------------


def shorten(functions: dict[str, ast.stmt], kept: Sequence[str]) -> None:
    """Change the definitions by name until none gets shorter. Those that are `kept` are called by the script itself."""
    changed = [True]
    while any(changed):
        changed = [_leave_out_a_name(function) for function in functions.values()]
        changed += [_inline(functions, name) for name in [*functions] if name not in kept]


def _leave_out_a_name(function: ast.stmt) -> bool:
    """Leave out the first name that only the next statement uses, that is its own value or has no use."""
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    parameters = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    pairs = [(block, *pair) for block in _blocks(function) for pair in itertools.pairwise(block)]
    for block, node, following in pairs:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name, value = node.targets[0].id, node.value
        first, *uses = (each for each in names if each.id == name)
        is_used_at_once = len(uses) == 1 and any(each is uses[0] for each in _at_once(following))
        length = following.col_offset + sum(len(ast.unparse(each)) for each in (following, value)) - len(first.id)
        if (not uses and isinstance(value, ast.Constant)) or (isinstance(value, ast.Name) and value.id == name):
            block.remove(node)
        elif name not in parameters and is_used_at_once and isinstance(following, Simple) and length <= LINE_LENGTH:
            _Replacing({id(uses[0]): value}).visit(following)
            notes(following)[:0] = notes(node)
            above(following)[:0] = above(node)
            block.remove(node)
        else:
            continue
        return True
    return False


def _inline(functions: dict[str, ast.stmt], name: str) -> bool:
    """Replace the last call of a function that only returns an expression; one that is not called is left out."""
    named = [(user, node) for user in functions.values() if user is not functions[name]
             for node in ast.walk(user) if isinstance(node, ast.Name) and node.id == name]  # fmt: skip
    if not named:
        del functions[name]
        return True
    function, (user, func) = functions[name], named[-1]
    value, comments = _only_returned(function)
    if value is None or (len(named) > MOST_CALLS and not _is_simple(value)):
        return False
    for statement in (node for block in _blocks(user) for node in block if isinstance(node, Simple)):
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.func is func):
            given = _given(function, call)
            if given is None or not _is_movable(value, given, user):
                return False
            copied = copy.deepcopy(value)
            parts = {id(node): given[node.id] for node in ast.walk(copied)
                     if isinstance(node, ast.Name) and node.id in given}  # fmt: skip
            inlined = _Replacing(parts).visit(copied)
            added = len(ast.unparse(inlined)) - len(ast.unparse(call))
            if statement.col_offset + len(ast.unparse(statement)) + added > LINE_LENGTH:
                return False
            _Replacing({id(call): inlined}).visit(statement)
            notes(statement).extend(notes(comments))
            return True
    return False


def _only_returned(function: ast.stmt) -> tuple[ast.expr | None, ast.stmt]:
    """Return the expression, and the statement that returns it. None if the function does more."""
    match function:
        case ast.FunctionDef(decorator_list=[], body=[*more, ast.Return(value=value) as last], args=given):
            special = [*given.posonlyargs, *given.kwonlyargs, given.vararg, given.kwarg]
            is_alone = len(more) == (ast.get_docstring(function) is not None)
            return value if is_alone and not any(special) else None, last
    return None, function


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


class _Replacing(Specialiser):
    """Replaces nodes by their ids, and evaluates what is known then."""

    def __init__(self, parts: Mapping[int, ast.AST]) -> None:
        super().__init__()
        self._parts = parts

    def visit(self, node: ast.AST) -> ast.AST:
        if id(node) not in self._parts:
            visited: ast.AST = super().visit(node)
            return visited
        notes(self._parts[id(node)]).extend(notes(node))
        return self._parts[id(node)]

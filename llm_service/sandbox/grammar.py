"""Which programs a model may write: one function of numbers and lists, read as a syntax tree and never run here.

    def potential(observation):
        best = 0.0
        for column in observation:
            for cell in column:
                if cell[0] == 5:
                    best = max(best, 1.0)
        return best

Everything is refused that is not listed here. There are no attributes, imports, definitions, private names or names
that the program does not assign itself, so a program reaches nothing but its argument and a few pure functions of
numbers and lists. Loops run over bounded ranges and lists. What a program can still do is waste time or memory: the
process that runs it must limit both.
"""

from __future__ import annotations

import ast
from typing import Never

FUNCTION, ARGUMENT = "potential", "observation"
FUNCTIONS = frozenset(
    ("len", "min", "max", "abs", "sum", "any", "all", "range", "enumerate", "float", "int", "round", "zip")
)

MAX_CHARACTERS = 4_000
MAX_NODES = 400
MAX_DEPTH = 40  # of the syntax tree; each `elif` is one deeper
MAX_LOOPS = 4  # inside each other
MAX_RANGE = 64
MAX_STRING = 200
MAX_NUMBER = 10**9
MAX_POWER = 4

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_UNARY = (ast.USub, ast.UAdd, ast.Not)
_REPEATABLE = (ast.List, ast.Tuple, ast.ListComp)
_KEYWORDS = {"min": "default", "max": "default", "sum": "start", "enumerate": "start"}


class CodeRefused(ValueError):
    """The program is outside the grammar; the message says where and why."""


def normalise(code: str) -> str:
    """The program in normal form: without comments and docstring, indented by four; equal for equal programs.

    Raises:
        CodeRefused: it is not a program of the grammar.
    """
    if len(code) > MAX_CHARACTERS:
        raise CodeRefused(f"the program is longer than {MAX_CHARACTERS} characters")
    if "\\" in code or "\0" in code:
        raise CodeRefused("the program holds a backslash or a null character")
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        line = getattr(error, "lineno", None) or 1
        raise CodeRefused(f"line {line} is not Python") from None
    _measure(tree)
    function = _only_function(tree)
    if ast.get_docstring(function, clean=False) is not None:
        del function.body[0]
    _Checker(function).statements(function.body, loops=0)
    if not any(isinstance(node, ast.Return) for node in ast.walk(function)):
        _refuse(function, "the function returns nothing")
    normal = ast.unparse(tree)
    if len(normal) > MAX_CHARACTERS:
        raise CodeRefused(f"the program is longer than {MAX_CHARACTERS} characters in normal form")
    return normal


def _refuse(node: ast.AST, reason: str) -> Never:
    raise CodeRefused(f"line {getattr(node, 'lineno', 1)}: {reason}")


def _measure(tree: ast.AST) -> None:
    """Refuse trees that are too large or too deep for what follows, without recursion."""
    nodes, waiting = 0, [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        nodes += not isinstance(node, ast.expr_context | ast.operator | ast.cmpop | ast.unaryop | ast.boolop)
        if nodes > MAX_NODES:
            raise CodeRefused(f"the program has more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            _refuse(node, "it is nested too deeply")
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]


def _only_function(tree: ast.Module) -> ast.FunctionDef:
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise CodeRefused(f"the program is not exactly one function {FUNCTION}({ARGUMENT})")
    function = tree.body[0]
    a = function.args
    arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, [a.vararg, a.kwarg])]
    if function.name != FUNCTION or [x.arg for x in a.args] != [ARGUMENT] or len(arguments) != 1 or a.defaults:
        _refuse(function, f"the function must be {FUNCTION}({ARGUMENT})")
    if function.decorator_list or function.returns or a.args[0].annotation:
        _refuse(function, "decorators and annotations are not allowed")
    return function


class _Checker:
    def __init__(self, function: ast.FunctionDef) -> None:
        stored = (n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        self._known = {ARGUMENT, *stored}

    def statements(self, body: list[ast.stmt], loops: int) -> None:
        for statement in body:
            self._statement(statement, loops)

    def _statement(self, node: ast.stmt, loops: int) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._target(target)
                self._expression(value, loops)
            case ast.AugAssign(target=ast.Name() as target, op=operator, value=value):
                self._target(target)
                self._operation(node, operator, target, value, loops)
            case ast.If(test=test, body=body, orelse=orelse):
                self._expression(test, loops)
                self.statements(body, loops)
                self.statements(orelse, loops)
            case ast.For(target=target, iter=iterable, body=body, orelse=[]):
                self._loop(target, iterable, loops + 1)
                self.statements(body, loops + 1)
            case ast.Return(value=ast.expr() as value):
                self._expression(value, loops)
            case ast.Pass() | ast.Break() | ast.Continue():
                pass
            case _:
                _refuse(node, f"a statement {type(node).__name__} is not allowed")

    def _target(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                if not name.isascii() or name.startswith("_") or "__" in name or len(name) > 40:
                    _refuse(node, "names are at most 40 letters, digits and _, and do not begin with _")
                if name in FUNCTIONS or name == FUNCTION:
                    _refuse(node, f"{name} cannot be assigned")
            case ast.Tuple(elts=elements):
                for element in elements:
                    self._target(element)
            case _:
                _refuse(node, "only plain names can be assigned")

    def _loop(self, target: ast.expr, iterable: ast.expr, loops: int) -> None:
        if loops > MAX_LOOPS:
            _refuse(iterable, f"more than {MAX_LOOPS} loops stand inside each other")
        self._target(target)
        self._iterable(iterable)
        self._expression(iterable, loops)

    def _iterable(self, node: ast.expr) -> None:
        """Lists by name, place or literal, and `range`, `enumerate`, `zip` over such."""
        match node:
            case ast.Name() | ast.Subscript() | ast.List() | ast.Tuple() | ast.ListComp() | ast.GeneratorExp():
                pass
            case ast.Call(func=ast.Name(id="range")):
                pass
            case ast.Call(func=ast.Name(id="enumerate"), args=[first, *_]):
                self._iterable(first)
            case ast.Call(func=ast.Name(id="zip"), args=arguments):
                for argument in arguments:
                    self._iterable(argument)
            case _:
                _refuse(node, "loops run over lists, range, enumerate and zip")

    def _expression(self, node: ast.expr, loops: int) -> None:
        match node:
            case ast.Constant(value=value):
                self._constant(node, value)
            case ast.Name(id=name):
                if name not in self._known:
                    _refuse(node, f"{name[:40]} is not a value that the program assigned")
            case ast.BinOp(left=left, op=operator, right=right):
                self._operation(node, operator, left, right, loops)
            case ast.UnaryOp(op=operator, operand=operand):
                if not isinstance(operator, _UNARY):
                    _refuse(node, f"the operator {type(operator).__name__} is not allowed")
                self._expression(operand, loops)
            case ast.Subscript(value=value, slice=ast.Slice() as index):
                self._all([value, *filter(None, [index.lower, index.upper, index.step])], loops)
            case (
                ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators)
            ):
                for generator in generators:
                    loops += 1
                    if generator.is_async:
                        _refuse(node, "async is not allowed")
                    self._loop(generator.target, generator.iter, loops)
                    self._all(generator.ifs, loops)
                self._expression(element, loops)
            case ast.Dict(keys=keys, values=values):
                if None in keys:
                    _refuse(node, "** is not allowed")
                self._all([*filter(None, keys), *values], loops)
            case ast.Call():
                self._call(node, loops)
            case ast.BoolOp() | ast.Compare() | ast.IfExp() | ast.Subscript() | ast.Tuple() | ast.List():
                self._all([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)], loops)
            case _:
                _refuse(node, f"an expression {type(node).__name__} is not allowed")

    def _all(self, nodes: list[ast.expr], loops: int) -> None:
        for node in nodes:
            self._expression(node, loops)

    def _constant(self, node: ast.expr, value: object) -> None:
        match value:
            case None | bool():
                pass
            case int() | float():
                if not abs(value) <= MAX_NUMBER:  # nor is NaN
                    _refuse(node, f"numbers are at most {MAX_NUMBER}")
            case str():  # no formats: a width in one is as much memory as it says
                if len(value) > MAX_STRING or "%" in value or "{" in value:
                    _refuse(node, f"strings have at most {MAX_STRING} characters and no % or braces")
            case _:
                _refuse(node, f"a constant of type {type(value).__name__} is not allowed")

    def _operation(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr, loops: int) -> None:
        if isinstance(operator, ast.Pow):
            exponent = right.value if isinstance(right, ast.Constant) else None
            if not isinstance(exponent, int | float) or not 0 <= exponent <= MAX_POWER:
                _refuse(node, f"an exponent is a number from 0 to {MAX_POWER}")
        elif not isinstance(operator, _OPERATORS):
            _refuse(node, f"the operator {type(operator).__name__} is not allowed")
        text = any(isinstance(x, ast.Constant) and isinstance(x.value, str) for x in (left, right))
        if text or (isinstance(operator, ast.Mult) and isinstance(left, _REPEATABLE) | isinstance(right, _REPEATABLE)):
            _refuse(node, "arithmetic is for numbers")
        self._all([right] if isinstance(node, ast.AugAssign) else [left, right], loops)

    def _call(self, node: ast.Call, loops: int) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            _refuse(node, f"only these can be called: {', '.join(sorted(FUNCTIONS))}")
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg != _KEYWORDS.get(name):
                _refuse(node, f"{name} takes no such argument by name")
        if name == "range" and not (node.args and all(map(_short, node.args))):
            _refuse(node, f"range takes whole numbers up to {MAX_RANGE}, or len(...)")
        self._all([*node.args, *(keyword.value for keyword in node.keywords)], loops)


def _short(node: ast.expr) -> bool:
    """A bound of a range: a small number, or the length of a list."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _short(operand)
        case ast.Constant(value=value):
            return type(value) is int and value <= MAX_RANGE
        case ast.Call(func=ast.Name(id="len")):
            return True
    return False

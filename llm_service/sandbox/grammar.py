"""Defines which programs a model may write: one function of numbers and lists. It is parsed and never run here.

    def potential(observations, actions):
        best = 0.0
        for column in observations[-1]:
            for cell in column:
                if cell[0] == 5:
                    best = max(best, 1.0)
        return best

`observations` lists the last views, oldest first; the last one is the current view. `actions` lists the numbers of the
actions between them, so it is one shorter.

Everything that is not listed here is refused. There are no attributes, imports, definitions, strings, private names or
names that no earlier line of the program assigns. So a program can use only its arguments and a few pure functions of
numbers and lists. Lists are never joined, repeated or changed, so only loops make longer ones. Tuples and ranges are
lists here, and they equal lists with equal elements.

Some errors show only at run time: a name that only some paths assign, an index outside a list, too many steps. Each is
a fault of the observation that caused it; `llm_service.sandbox.interpreter` counts it and goes on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Never

FUNCTION = "potential"
ARGUMENTS = ("observations", "actions")
FUNCTIONS = {  # the numbers of arguments that each accepts
    "abs": range(1, 2),
    "all": range(1, 2),
    "any": range(1, 2),
    "enumerate": range(1, 3),
    "float": range(1, 2),
    "int": range(1, 2),
    "len": range(1, 2),
    "max": range(1, 33),
    "min": range(1, 33),
    "range": range(1, 4),
    "round": range(1, 3),
    "sum": range(1, 3),
    "zip": range(1, 9),
}

MAX_CHARACTERS = 4_000
MAX_NODES = 600
MAX_DEPTH = 40  # of the syntax tree; each `elif` adds one level
MAX_LOOPS = 4  # nested
MAX_RANGE = 256
MAX_NUMBER = 10**9
EXPONENTS = (0, 1, 2, 3, 4, 0.5)

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_UNARY = (ast.USub, ast.UAdd, ast.Not)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_LISTS = (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.GeneratorExp)
_OVER_GENERATORS = ("sum", "min", "max", "any", "all")
_KEYWORDS = {"min": "default", "max": "default", "sum": "start", "enumerate": "start"}
_ADVICE = {  # what to write instead
    "AnnAssign": "write name = value",
    "Attribute": "write nothing after a dot and use only indices and the functions of the grammar",
    "Delete": "leave the name as it is",
    "Dict": "use if and elif, or a tuple and an index",
    "DictComp": "use if and elif, or a list comprehension",
    "Expr": "assign the value to a name or return it",
    "FunctionDef": "write everything in one function",
    "GeneratorExp": "put it directly into sum, min, max, any or all, or write a list [...]",
    "Import": "use only the functions of the grammar",
    "ImportFrom": "use only the functions of the grammar",
    "JoinedStr": "use numbers only",
    "Lambda": "write the value itself",
    "NamedExpr": "assign the name on a line of its own",
    "Set": "write a tuple, or use the set directly after in",
    "SetComp": "use a list comprehension",
    "Starred": "name each value",
    "Try": "test the value with if first",
    "While": "use for over a range and break",
}


class CodeRefused(ValueError):
    """The program is outside the grammar; the message says where, why, and what to write instead."""


def normalise(code: str) -> str:
    """The program in normal form: no comments or docstring, indented by four. Equal programs have equal normal forms.

    Raises:
        CodeRefused: it is not a program of the grammar.
    """
    normal = ast.unparse(checked(code))
    if len(normal) > MAX_CHARACTERS:
        raise CodeRefused(f"the program is longer than {MAX_CHARACTERS} characters in normal form; write a shorter one")
    return normal


def checked(code: str) -> ast.FunctionDef:
    """The syntax tree of a program; same arguments and errors as `normalise`."""
    if len(code) > MAX_CHARACTERS:
        raise CodeRefused(f"the program is longer than {MAX_CHARACTERS} characters; write a shorter one")
    if "\\" in code or "\0" in code:
        raise CodeRefused("the program holds a backslash or a null character; break lines inside brackets instead")
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two mean nested too deeply
        line = getattr(error, "lineno", None) or 1
        raise CodeRefused(f"line {line} is not Python") from None
    _measure(tree)
    function = _only_function(tree)
    _Checker().statements(function.body, loops=0)
    if not any(isinstance(node, ast.Return) for node in ast.walk(function)):
        _refuse(function, "the function returns nothing; end it with return and a number")
    return function


def _refuse(node: ast.AST, reason: str) -> Never:
    raise CodeRefused(f"line {getattr(node, 'lineno', 1)}: {reason}")


def _not_allowed(node: ast.AST, kind: str) -> Never:
    name = type(node).__name__
    _refuse(node, f"{kind} {name} is not allowed; {_ADVICE.get(name, 'write it with assignment, if, for and return')}")


def _measure(tree: ast.AST) -> None:
    """Refuse trees that are too large or too deep for the later recursive steps; does not recurse itself."""
    nodes, waiting = 0, [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        nodes += not isinstance(node, ast.expr_context | ast.operator | ast.cmpop | ast.unaryop | ast.boolop)
        if nodes > MAX_NODES:
            raise CodeRefused(f"the program has more than {MAX_NODES} parts; write a shorter one")
        if depth > MAX_DEPTH:
            _refuse(node, "it is nested too deeply; give parts of it a name first")
        waiting += [(child, depth + 1) for child in ast.iter_child_nodes(node)]


def _only_function(tree: ast.Module) -> ast.FunctionDef:
    """The function without its docstring. Constants assigned above it become its first statements."""
    form = f"{FUNCTION}({', '.join(ARGUMENTS)})"
    *above, function = tree.body or [ast.Pass()]
    if not isinstance(function, ast.FunctionDef) or not all(isinstance(node, ast.Assign) for node in above):
        raise CodeRefused(f"the program is not exactly one function {form}")
    a = function.args
    others = [*a.posonlyargs, *a.kwonlyargs, *a.defaults, *filter(None, [a.vararg, a.kwarg])]
    if function.name != FUNCTION or tuple(x.arg for x in a.args) != ARGUMENTS or others:
        _refuse(function, f"the function must be {form}")
    if function.decorator_list or function.returns or any(x.annotation or x.type_comment for x in a.args):
        _refuse(function, f"decorators and annotations are not allowed; write def {form}:")
    if ast.get_docstring(function, clean=False) is not None:
        del function.body[0]
    function.body[:0] = above
    return function


class _Checker:
    """Checks statements in program order and tracks which names have been assigned so far."""

    def __init__(self) -> None:
        self._known = set(ARGUMENTS)

    def statements(self, body: list[ast.stmt], loops: int) -> None:
        for statement in body:
            self._statement(statement, loops)

    def _statement(self, node: ast.stmt, loops: int) -> None:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._expression(value, loops)
                for target in targets:
                    self._target(target)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=operator, value=value):
                self._known_name(target, name)
                self._operation(node, operator, target, value, loops)
                self._target(target)
            case ast.If(test=test, body=body, orelse=orelse):
                self._expression(test, loops)
                self.statements(body, loops)
                self.statements(orelse, loops)
            case ast.For(target=target, iter=iterable, body=body, orelse=[]):
                self._loop(target, iterable, loops + 1)
                self.statements(body, loops + 1)
            case ast.For():
                _refuse(node, "else after a loop is not allowed; set a name before the loop and test it afterwards")
            case ast.Return(value=ast.expr() as value):
                self._expression(value, loops)
            case ast.Return():
                _refuse(node, "return needs a number; write return 0.0")
            case ast.Pass() | ast.Break() | ast.Continue():
                if loops == 0 and not isinstance(node, ast.Pass):
                    _refuse(node, "break and continue stand in loops only; use return or if")
            case _:
                _not_allowed(node, "a statement")

    def _target(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                if not name.isascii() or name.startswith("_") or "__" in name or len(name) > 40:
                    _refuse(node, "names are at most 40 letters, digits and _, and do not begin with _")
                if name in FUNCTIONS or name in ARGUMENTS or name == FUNCTION:
                    _refuse(node, f"{name} cannot be assigned; use another name")
                self._known.add(name)
            case ast.Tuple(elts=[_, *_] as elements):
                for element in elements:
                    self._target(element)
            case _:
                _refuse(node, "only plain names can be assigned; lists and arguments cannot be changed")

    def _loop(self, target: ast.expr, iterable: ast.expr, loops: int) -> None:
        if loops > MAX_LOOPS:
            _refuse(iterable, f"more than {MAX_LOOPS} loops stand inside each other; use fewer")
        self._iterable(iterable, loops)
        self._target(target)

    def _iterable(self, node: ast.expr, loops: int) -> None:
        """Check what a loop iterates over: any list, or `enumerate` or `zip` of lists, which are allowed only here."""
        match node:
            case ast.Call(func=ast.Name(id="enumerate" | "zip" as name), args=arguments):
                lists = arguments[:1] if name == "enumerate" else arguments
                for argument in lists:
                    self._iterable(argument, loops)
                self._signature(node, name)
                self._all([*arguments[len(lists) :], *(keyword.value for keyword in node.keywords)], loops)
            case ast.Name() | ast.Subscript() | ast.List() | ast.Tuple() | ast.ListComp() | ast.IfExp():
                self._expression(node, loops)
            case ast.Call(func=ast.Name(id="range")):
                self._expression(node, loops)
            case _:
                _refuse(node, "loops run over lists, range, enumerate and zip; give one of them")

    def _expression(self, node: ast.expr, loops: int) -> None:
        match node:
            case ast.Constant(value=value):
                self._constant(node, value)
            case ast.Name(id=name):
                self._known_name(node, name)
            case ast.BinOp(left=left, op=operator, right=right):
                self._operation(node, operator, left, right, loops)
            case ast.UnaryOp(op=operator, operand=operand):
                if not isinstance(operator, _UNARY):
                    _refuse(node, f"the operator {type(operator).__name__} is not allowed; use - or not")
                self._expression(operand, loops)
            case ast.Subscript(value=value, slice=ast.Slice() as index):
                self._all([value, *filter(None, [index.lower, index.upper, index.step])], loops)
            case ast.Subscript(slice=ast.Tuple()):
                _refuse(node, "an index is one number; write x[i][j] instead of x[i, j]")
            case ast.ListComp(elt=element, generators=generators):
                self._comprehension(element, generators, loops)
            case ast.Compare(left=left, ops=operators, comparators=others):
                self._expression(left, loops)
                for comparison, other in zip(operators, others, strict=True):
                    if not isinstance(comparison, _COMPARISONS):
                        _refuse(node, "is and is not are not allowed; use == and !=")
                    if isinstance(comparison, ast.In | ast.NotIn) and isinstance(other, ast.Set):
                        self._all(other.elts, loops)
                    else:
                        self._expression(other, loops)
            case ast.Call():
                self._call(node, loops)
            case ast.BoolOp() | ast.IfExp() | ast.Subscript() | ast.Tuple() | ast.List():
                self._all([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)], loops)
            case _:
                _not_allowed(node, "an expression")

    def _all(self, nodes: Iterable[ast.expr], loops: int) -> None:
        for node in nodes:
            self._expression(node, loops)

    def _known_name(self, node: ast.expr, name: str) -> None:
        if name not in self._known:
            _refuse(node, f"{name[:40]} is not a value that an earlier line assigned; assign it first")

    def _comprehension(self, element: ast.expr, generators: list[ast.comprehension], loops: int) -> None:
        outside = set(self._known)
        for generator in generators:
            loops += 1
            if generator.is_async:
                _refuse(element, "async is not allowed; leave it out")
            self._loop(generator.target, generator.iter, loops)
            self._all(generator.ifs, loops)
        self._expression(element, loops)
        self._known = outside  # its names are local to it

    def _constant(self, node: ast.expr, value: object) -> None:
        if not isinstance(value, int | float):
            _refuse(node, f"a constant of type {type(value).__name__} is not allowed; use a number, such as -1")
        if not abs(value) <= MAX_NUMBER:  # also refuses NaN
            _refuse(node, f"numbers are at most {MAX_NUMBER}; use a smaller one")

    def _operation(self, node: ast.AST, operator: ast.operator, left: ast.expr, right: ast.expr, loops: int) -> None:
        if isinstance(operator, ast.Pow):
            if not (isinstance(right, ast.Constant) and right.value in EXPONENTS):
                _refuse(node, f"an exponent is one of {', '.join(map(str, EXPONENTS))}; multiply or divide instead")
        elif not isinstance(operator, _OPERATORS):
            _refuse(node, f"the operator {type(operator).__name__} is not allowed; use + - * / // % or **")
        if isinstance(left, _LISTS) or isinstance(right, _LISTS):
            _refuse(node, "arithmetic is for numbers; write lists out or use a comprehension")
        self._all([right] if isinstance(node, ast.AugAssign) else [left, right], loops)

    def _signature(self, node: ast.Call, name: str) -> None:
        if len(node.args) not in FUNCTIONS[name]:
            _refuse(node, f"{name} does not take {len(node.args)} arguments; give it what Python's {name} takes")
        for keyword in node.keywords:
            allowed = len(node.args) == 1 and len(node.keywords) == 1
            if keyword.arg is None or keyword.arg != _KEYWORDS.get(name) or not allowed:
                _refuse(node, f"{name} takes no such argument by name here; leave it out")

    def _call(self, node: ast.Call, loops: int) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS:
            _refuse(node, f"only these can be called: {', '.join(sorted(FUNCTIONS))}")
        if name in ("enumerate", "zip"):
            _refuse(node, f"{name} stands directly after the in of a loop only; use range(len(...)) elsewhere")
        self._signature(node, name)
        keywords = [keyword.value for keyword in node.keywords]
        if name == "range" and not all(map(_short, node.args)):
            _refuse(node, f"range takes numbers up to {MAX_RANGE}, names, or len(...); use a smaller number")
        if name == "sum" and any(isinstance(start, _LISTS) for start in [*node.args[1:], *keywords]):
            _refuse(node, "sum adds numbers; use a comprehension with two loops to join lists")
        match node.args:
            case [ast.GeneratorExp(elt=element, generators=generators)] if name in _OVER_GENERATORS:
                self._comprehension(element, generators, loops)
            case arguments:
                self._all(arguments, loops)
        self._all(keywords, loops)


def _short(node: ast.expr) -> bool:
    """Whether no constant in a range bound is too large. The step limit catches large values at run time."""
    constants = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return all(isinstance(value, int | float) and value <= MAX_RANGE for value in constants)

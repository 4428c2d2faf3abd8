"""How named tuples go from kernel to kernel: by address.

numba passes every array of a named tuple as seven numbers: a call with the spec, the state and the scratch
hands over more than three hundred, and each kernel on the way down hands them on. Here a call hands over the
address of the tuple. It is never changed once made, so a kernel reads from it what it uses, once, and hands
the address on.
"""

from __future__ import annotations

from functools import cache
from typing import Any

HOME = "address_of_the_tuple"  # the note on a value that says where in memory it lies


@cache
def hand_over_by_address() -> None:
    """Teach the compiler, for the named tuples of this package only: others may have code in its cache."""
    from numba.core import cgutils
    from numba.core.datamodel import default_manager
    from numba.core.datamodel.models import TupleModel
    from numba.core.types import containers

    class ByAddress(TupleModel):  # type: ignore[misc]
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind)
            self._ours = kind.instance_class.__module__.startswith("evenhand.")

        def get_argument_type(self) -> Any:
            return self.get_value_type().as_pointer() if self._ours else super().get_argument_type()

        def as_argument(self, builder: Any, value: Any) -> Any:
            if not self._ours:
                return super().as_argument(builder, value)
            home = _home(builder, value)
            if home is None:
                home = cgutils.alloca_once(builder, value.type)
                _write(builder, value, home)
            return home

        def from_argument(self, builder: Any, home: Any) -> Any:
            if not self._ours:
                return super().from_argument(builder, home)
            value = _read(builder, home, self.get_value_type())
            setattr(value, HOME, home)
            return value

    default_manager.register(containers.NamedTuple, ByAddress)


def _home(builder: Any, value: Any) -> Any:
    """Where in memory this very value lies already, as an argument or a part of one; None if nowhere."""
    from llvmlite.ir import instructions
    from numba.core import cgutils

    if hasattr(value, HOME):
        return getattr(value, HOME)
    if isinstance(value, instructions.ExtractValue):
        whole = _home(builder, value.operands[0])
        return None if whole is None else cgutils.gep_inbounds(builder, whole, 0, *value.indices)
    if isinstance(value, instructions.LoadInstr):
        stored = _stored(builder.function, value.operands[0])
        return _home(builder, stored[0]) if len(stored) == 1 else None
    return None


def _stored(function: Any, variable: Any) -> list[Any]:
    """What a variable is ever set to, its clearing at the end left out; numba sets each just once."""
    from llvmlite.ir import Constant, instructions

    return [
        line.operands[0]
        for block in function.blocks
        for line in block.instructions
        if isinstance(line, instructions.StoreInstr)
        and line.operands[1] is variable
        and not isinstance(line.operands[0], Constant)
    ]


def _read(builder: Any, home: Any, kind: Any) -> Any:
    """The value at an address, part by part: the optimiser then drops the parts nobody uses."""
    from llvmlite import ir
    from numba.core import cgutils

    if not isinstance(kind, ir.BaseStructType):
        return builder.load(home)
    value = ir.Constant(kind, ir.Undefined)
    for place, part in enumerate(kind.elements):
        value = builder.insert_value(
            value, _read(builder, cgutils.gep_inbounds(builder, home, 0, place), part), place
        )
    return value


def _write(builder: Any, value: Any, home: Any) -> None:
    """Put a value at an address, part by part."""
    from llvmlite import ir
    from numba.core import cgutils

    if not isinstance(value.type, ir.BaseStructType):
        builder.store(value, home)
        return
    for place in range(len(value.type.elements)):
        _write(builder, builder.extract_value(value, place), cgutils.gep_inbounds(builder, home, 0, place))

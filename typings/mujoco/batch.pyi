# MuJoCo's bindings are compiled and ship no type information: everything in them is Any to the type checker.
from typing import Any

def __getattr__(name: str) -> Any: ...

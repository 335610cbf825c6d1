"""dexloop: from an object on a real table to a robot hand that grasps it there, by way of a measured simulation."""

from dexloop.sim import gl as _gl

__version__ = "0.1.0"

_gl.prepare()  # MuJoCo reads its GL backend from the environment once, when it is first imported

"""dexloop: from an object on a real table to a robot hand that grasps it there, by way of a measured simulation."""

__version__ = "0.1.0"

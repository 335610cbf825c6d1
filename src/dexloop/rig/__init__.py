"""What reality looks like to the engine: the `Rig` protocol, the recorder, adapters to robots and to recorded data."""

from dexloop.rig.protocol import CommandInfo, Features, Frames, Observation, Operator, Rig, Samples

__all__ = ["CommandInfo", "Features", "Frames", "Observation", "Operator", "Rig", "Samples"]

"""What reality looks like to the engine: the `Rig` protocol, the recorder, adapters to robots and to recorded data."""

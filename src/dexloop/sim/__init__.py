"""Worlds: MuJoCo models composed from parts, batched stepping with per-world parameters, cameras."""

"""Robots written from primitives, without any mesh file."""

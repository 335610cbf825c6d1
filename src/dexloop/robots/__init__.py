"""Embodiments: built-in hands and arms, import of MJCF, URDF and Menagerie models, kinematics and planning."""

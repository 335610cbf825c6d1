"""Stage 3, identify: what an object weighs, how it slides, how late the motors are, and how sure that is."""

"""Audit: lays what happened beside what was predicted, and says what to do next."""

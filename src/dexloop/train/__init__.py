"""Stage 6, train: from demonstrations to a policy that knows how hard to squeeze."""

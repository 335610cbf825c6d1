"""Deploy: a policy takes objects up on a rig, behind the safety gate, and everything is recorded."""

"""What everything stands on: artefacts, the run store, rigid motions, cameras, errors, statuses."""

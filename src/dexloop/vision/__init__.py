"""Seeing: video files, markers and calibration, splats, pose tracking, hand landmarks."""

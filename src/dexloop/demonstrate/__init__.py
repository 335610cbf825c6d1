"""From a video of a human hand to motions of a robot hand: landmarks, retargeting, contact refinement, replay."""

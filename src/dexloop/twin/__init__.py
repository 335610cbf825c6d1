"""From a scan to a digital twin."""

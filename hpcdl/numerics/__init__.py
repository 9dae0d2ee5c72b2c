"""Numerical methods of the course, written to be read: `descent` steps downhill."""

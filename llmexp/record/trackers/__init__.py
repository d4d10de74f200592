"""Trackers: copies of run folders that can be made again from them at any time.

content describes a run's folder in the terms that trackers share
points  turns a run's metrics into points
choices says what was chosen for a run
summary counts the runs that were copied
"""

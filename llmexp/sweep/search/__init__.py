"""A search: trials that are runs, whose values Optuna chooses, shared by all drivers of one sweep's folder.

space       what a search varies
study       the trials in the folder's journal: ask, report, tell, and tell of drivers that died (the room of Optuna)
loss_watch  ends a trial whose loss so far is worse than that of others
searching   the whole search
"""

"""The engines of task=serve, a file each in engines/, and the load client, which runs beside the server it started.

Nothing here imports torch, except what writes a model's folder.
"""

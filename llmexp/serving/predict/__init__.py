"""How fast a server would be on any hardware: the work of its iterations, the rates of its devices, and a load.

Nothing here starts a process, needs a GPU or imports torch. docs/serving.md says how far off it is.
"""

from llmexp.serving.predict.prediction import predict, unpredicted

__all__ = ["predict", "unpredicted"]

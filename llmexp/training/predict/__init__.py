"""How fast a training run would be on any hardware: its work by kind, the rates of the device, and an interval.

Nothing here starts a process, needs a GPU or imports torch. docs/prediction.md says how far off it is.
"""

from llmexp.training.predict.prediction import predict, unpredicted

__all__ = ["predict", "unpredicted"]

"""How far off predictions are: constants fitted to the paper's cells, judged on cells that were left out of the fit."""

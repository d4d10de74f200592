"""Where weights, keys and values of a model that does not fit lie: on the device, in the host's memory or on its disk.

The question and the order of the work are FlexGen's (arXiv 2303.06865): a block of batches passes a layer together, so
that a layer's weights are fetched once for all of them. No engine here runs so: what comes out is simulated.
"""

"""A GPU that is only pretended: the code of CUDA ranks runs on it where there is none.

Its tensors are torch's fake tensors, which have a shape, a dtype and a device, and no content. Much of what a rank does
shows: an operator that mixes devices fails; operators, the host's waits for the device, and bytes that live on it are
counted. Results, kernels, the allocator's waste and time do not show: they need a GPU.
"""

"""The review of training and inference systems: what it prints of its case studies, beside runs that are near them."""

"""The paper's tables and figures in its own layout, with runs beside its cells."""

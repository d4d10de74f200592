"""The paper's tables II, III, IV and IX and its figure 4: whole methods, cell by cell, with runs beside them."""

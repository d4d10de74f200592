"""The paper's claims, and its figures as the rows that decide them."""

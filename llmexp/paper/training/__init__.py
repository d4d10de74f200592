"""What stands beside runs that train: tables II to IX and XIII to XVI, and figures 4 and 5."""

"""Reading tickets from the files and tables in which people have them."""

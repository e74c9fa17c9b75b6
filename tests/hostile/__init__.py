"""What nobody means well by: each case with the right result or the clear error that it must get."""

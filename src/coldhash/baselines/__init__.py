"""The methods that MFDCF is compared with, a file each; `coldhash.MODELS` is the table of them."""

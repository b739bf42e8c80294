"""The systems that MFDCF is compared with, a file each."""

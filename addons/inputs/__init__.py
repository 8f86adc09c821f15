"""What filters may ask about the cluster: its sources, a record of who asked what, and a chain of filters with its
inputs.
"""

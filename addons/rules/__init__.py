"""The rules of the ConfigMap: their syntax, the table that they make, the ones in force, and Events about bad
ones.
"""

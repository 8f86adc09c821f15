"""The rules of the ConfigMap: their syntax, the table that they make, the ones in force, and Events about bad ones.

Filters that are not the hub's are loaded here, because they too come into force while the hub runs.
"""

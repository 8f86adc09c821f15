"""The rules of the ConfigMap: their syntax, the bindings that they make, the rules in force, and Events about bad
entries.

Filters of operators and packages are loaded here, because they too can change while the hub runs.
"""

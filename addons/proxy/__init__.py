"""All that reaches into the insides of mitmproxy, and nothing else. Each patch names the test that says when it
can go.
"""

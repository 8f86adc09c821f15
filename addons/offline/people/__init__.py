"""Answers for people while the cloud is away: other forms of its copies, partial lists, discovery."""

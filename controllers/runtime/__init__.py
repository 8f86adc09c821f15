"""The base of every controller: API client, informers, queueing, leader election, admin port."""

"""The base of every controller: API client, informers, work queue, leader election, admin port."""

"""What every controller stands on: API client, informers, queueing, leader election, admin port."""

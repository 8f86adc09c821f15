"""Names of the headers that hubs of a pool send to each other."""

from __future__ import annotations

AGE_HEADER = "x-edgehub-age"
"""In answers of the peer port: seconds since the answering leader lost the cloud; 0 while it has the cloud."""
PEER_HEADER = "x-edgehub-peer"
"""In a follower's probe of a leader: the address of the follower's own peer port."""
SHARES_HEADER = "x-edgehub-shares"
"""In answers of the peer port: the resources that this leader shares in addition to the three that every leader shares,
as `resource.group,…`. Absent from YurtHub and from older hubs, which refuse other resources.
"""
DEPUTIES_HEADER = "x-edgehub-deputies"
"""In answers of the peer port: the deputies of the answering leader, as `node/address,…`."""
LENDS_HEADER = "x-edgehub-lends"
"""In a follower's probe of a leader: present, with any value, if the follower has a link to the cloud to lend."""
LENDERS_HEADER = "x-edgehub-lenders"
"""In answers of the peer port: the followers with a link to lend, as `node/address,…`."""

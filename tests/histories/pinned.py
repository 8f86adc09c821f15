"""Histories that once ended with a finding, by its kind. `tests.histories.steps` explains each step."""

from __future__ import annotations

PINNED = {
    # Issue 22, 1. The store misses objects that were created and deleted between two lists.
    "a ghost of a relayed list inside the gap of a relist": """
        come list; wait 1; stall services; put services ghost 0; come fresh; wait 1; delete services ghost; compact;
        cut; stall; wait 5""",
    "a ghost of one who was away while the source listed anew": """
        come list; wait 1; stall services; put services ghost 0; come fresh; wait 1; go fresh; delete services ghost;
        compact; cut; stall; wait 5; come fresh""",
    "a ghost of the source of another encoding": """
        come list; wait 1; stall services; put services ghost 0; come mixed; wait 1; delete services ghost; compact;
        cut; stall; wait 5""",
    "a ghost of what was not on disk when the hub was killed": """
        come selected; wait 1; put services ghost 2; wait 0.1; kill; delete services ghost; compact; start; wait 3""",
    "a ghost of a follower whose leader listed anew": """
        pool 1; come list; wait 3; leader:stall services; put services ghost 0; come fresh; wait 1;
        delete services ghost; compact; leader:cut; leader:stall; wait 5""",
    "a ghost of what left a selection unseen": """
        rules both; come selected; wait 12; put services c 2; kill; put services c 1; compact""",
    "a ghost of what a filter hides, gone before the view heard of it": """
        rules discard-watches; come list; wait 1; stall services; put services lb 1; come fresh; wait 0.1; go fresh;
        delete services lb; come fresh; wait 1; stall; wait 3""",
    "a ghost of a follower that was away while its leader listed anew": """
        pool 1; come list; wait 3; leader:stall services; put services ghost 0; come fresh; wait 1; link DOWN; wait 3;
        split 1; delete services ghost; compact; leader:cut; leader:stall; wait 3; split 0; wait 12; link UP; wait 3""",
    # Issue 22, 2. One maximum over all resources guards relayed watches.
    "a relayed watch after an edit, where events have versions of their own": """
        come events; wait 3; stop; start; come plain; wait 3; rules discard; wait 3""",
    "a relayed watch after a restore and an edit": """
        rules discard; come list; put services a 0; put services b 0; put services c 0; wait 3; restore 0; rules none;
        come plain; wait 3; rules discard; wait 3""",
    "a relayed watch after a restore that takes an edit back": """
        rules discard-plain; come plain; wait 1; restore 0""",
    "a relayed watch of a quiet cluster after an edit that ends a filter": """
        come plain; rules discard-plain; cut; rules topology""",
    "a relayed watch that a view corrects, which is behind": """
        rules discard; come fresh; come plain; come list; put services b 1; kill; stall services; start;
        put services b 1; elsewhere; wait 12""",
    "a relayed watch of a quiet cluster after a kill and an edit": """
        come slices-fresh; elsewhere; bookmarks; wait 0.3; kill; rules discard-watches""",
    # An earlier process issued versions of data that it had not written to disk.
    "a relayed watch before an edit, and a restart after it": """
        rules uncached; come watchlist; put services b 1; rules discard; stop""",
    "a component that was filtered and not cached, and an edit while the hub was off": """
        rules uncached-discard; put services b 1; come list; wait 1; stop; rules none""",
    "a component that was filtered and not cached, and an edit after a restart": """
        rules uncached-discard; put services b 1; come list; wait 1; go list; stop; start; wait 3; rules none; wait 1;
        come list""",
    "a filter of an earlier process, and an edit when the cloud has said how far it is": """
        rules discard-plain; put services b 1; come plain; wait 1; go plain; stop; start; come list; wait 3; rules none;
        wait 1; come plain""",
    # Issue 22, 3. The cloud was restored, and then written past the version of the node's copy.
    "a restored cloud that went on while the node was off": """
        rules discard; put services ghost 0; come list; wait 3; stop; restore 0; rules discard; put services a 0;
        put services b 0; put services c 0; start; wait 3; come fresh""",
    "a restored cloud that went on, and a component that was not running": """
        rules discard; put services ghost 0; come list; wait 3; go list; stop; start; wait 3; restore 0; wait 3;
        rules discard; put services a 0; put services b 0; put services c 0; rules both; wait 1; come other""",
    "a restored cloud that went on during an outage": """
        rules discard; put services ghost 0; come list; wait 3; link DOWN; wait 3; restore 0; rules discard;
        put services a 0; put services b 0; put services c 0; link UP""",
    "a restored cloud whose aggregated API has versions of its own": """
        come widgets; put widgets ghost 2; wait 1; restore 0""",
    "a client that comes when the hub knows of the restore already": """
        come node; label a; bookmarks; stop; restore 0""",
    "a restored cloud that went on, and a pool": """
        pool 1; come watchlist; put services b 2; restore 0; elsewhere""",
    # The cloud confirmed a later state of a view than that of its clients.
    "a ghost below a version that the cloud confirmed": """
        come selected; rules both; put services a 2; kill; put services a 1; link BUSY; start; compact""",
    "a bookmark of a version that the cloud confirmed to another": """
        come list; wait 1; stall services; put services ghost 0; come fresh; wait 1; delete services ghost;
        come watchlist; wait 1; remind; wait 0.1; go fresh; come fresh; wait 1; compact; cut; stall; wait 5""",
    # Issue 22, 4 to 7 and 13. Kubelet's reports while the cloud is away.
    "a status whose answer was lost": "come nodes; wait 1; status 2; link HALF; status 3; status 2",
    "a status made of an old copy": """
        come node; come nodes; wait 1; go node; sweep; status 2; wait 1; stop; link DOWN; start; read""",
    "reports that overtake each other after a 429": """
        event e1 1; link DOWN; wait 3; event e1 2; event e1 3; event e1 4; link BUSY; wait 3.95; link UP; wait 60""",
    "a cloud that asks for patience": "come list; link DOWN; wait 3; event e1 1; event e1 2; link BUSY; wait 30",
    "a disk that is full at replay": """
        come node; wait 1; link DOWN; wait 3; status 2; disk 1; link UP; wait 5; status 3; kill""",
    "a status of a copy that others have written since": """
        come nodes; wait 1; link HALF; status 1; label a; status 2; label b""",
    "a status that the cloud has already": "come nodes; link HALF; status 1; label; status 1",
    # Issue 22, 8. The rules start to filter objects of a client that is ahead of the view.
    "rules that hide what only a relayed list had": """
        come list; wait 1; stall services; put services lb 1; come fresh; wait 1; rules discard; wait 1; stall""",
    # Issue 22, 9. A WatchList without a resourceVersion is a consistent read.
    "a WatchList of a copy that is behind": """
        come list; wait 1; stall services; put services a 0; come watchlist; wait 1; stall; wait 1""",
    # Issue 22, 10. The second client after a restart.
    "inputs that changed while the hub was down": """
        rules topology; annotate 1; label a; put endpointslices a 2; come slices; wait 1; elsewhere;
        come slices-fresh; wait 1; stop; go slices-fresh; label b; start; wait 3; come slices-fresh""",
    # Issue 22, 17. A watch from the version of a relayed list, where the hub had no source before.
    "a list and a watch on a busy cluster": "flood services; come fresh; wait 5",
    "a list in protobuf and a watch in JSON": "flood services; come mixed; wait 5",
    "a list of an exact version and a watch, after a kill": """
        come exact; wait 1; kill; go exact; put services b 1; start""",
    "a watch of a relayed list while the source is about to list anew": """
        come selected; wait 1; flood services; wait 0.3; stop; start; compact; wait 12""",
    "a relayed watch that began before the restore was found": """
        small few; come widgets; restore 1; wait 12; go widgets; put widgets c 1; wait 12; sweep; restore 0""",
    # A restored cloud accepts an earlier version as its own, whichever source a client uses.
    "a watch from before a restore is not relayed": """
        come other; put services b 1; stop; restore 0; annotate 1; put services a 2""",
    "a restored cloud is at the version of an empty copy": """
        status 2; put endpointslices c 1; come other; stop; restore 0; elsewhere; put services b 2""",
    "a client of a former history comes to the source of another encoding": """
        rules topology; pool 1; come mixed; leader:link DOWN; wait 3; put services b 1; wait 1; restore 0; stop;
        label b""",
    "a follower comes from the cloud to a leader that knows of a restore": """
        rules topology; come protobuf; label; put services b 0; restore 0; label; label b; go protobuf; elsewhere;
        pool 1""",
    "the cloud goes on after a leader that knows of a restore": """
        rules topology; pool 1; come exact; come selected; come node; wait 1; wait 3; leader:link DOWN; wait 3;
        leader:cut; event e2 5; leader:link HALF; delete widgets a; stall events; wait 3; delete services b; wait 0.1;
        put services b 1; restore 0; leader:start; put services b 0; put endpointslices c 1; put services c 2""",
    "a quiet resource of a restored cloud that others have written past it": """
        rules discard-plain; pool 1; come slices; restore 0; go slices; wait 3; put nodes b 0; come slices; wait 12""",
    "a source let go of while the disk had an older state": """
        rules discard-watches; come fresh; come exact; go exact; restore 0; annotate 0; disk 1; wait 3; link DOWN;
        restore 0; put services a 0; sweep; wait 3; put services a 2; wait 1""",
    "a client of a former history comes to the next process": """
        rules discard-watches; come watchlist; status 3; put services c 2; restore 0; elsewhere; slow watchlist; wait 1;
        put services c 2; wait 0.3; stop; elsewhere""",
    "a client of a former history has what was deleted there while it was away": """
        rules discard-watches; come protobuf; put services a 2; wait 1; go protobuf; delete services a; restore 0;
        put services c 1; status 2; wait 1""",
    "a client of a former history comes to a source that nobody used for long": """
        come list; annotate 0; restore 0; go list; wait 3; elsewhere; wait 400""",
    "a restore between a 410 and the list that follows": """
        come list; come selected; wait 1; put services ghost 0; wait 0.1; go list; sweep; elsewhere; compact; cut;
        wait 1.5; restore 0; elsewhere; wait 5; come list""",
    "a consistent list of a cloud that is behind the copy": """
        rules discard; backup; come list; wait 1; put services c 0; wait 0.1; restore 0; come fresh""",
    "a leader that cannot ask a restored cloud goes on with its former history": """
        rules both; pool 1; come list; come plain; come plain-fresh; label b; put services c 2; put services c 2;
        put services c 0; leader:stall services configmaps; annotate 1; kill; leader:link BUSY; restore 0; wait 12""",
    "a watch is back before the cloud counts as up, and brings the cloud's form of what the node wrote": """
        come other; come nodes; link DOWN; come mixed; label a; wait 3; link UP; status 3; read""",
    "returns to leaders cut short the wait for what a quiet restored cloud does not have": """
        rules discard-plain; small pages slices changes gaps confirmed logs few; come plain; come slices-fresh;
        come nodes; come paged-any; put services c 0; split 1; pool 2; label; restore 0""",
    "a leader that was killed goes on with a restored cloud, and has forgotten what it gave": """
        rules discard-plain; pool 2; come paged; wait 3; put services a 1; restore 0; put endpointslices b 1;
        put services b 2; leader:kill""",
    "a follower that may read names of a leader whose watch it may not have": """
        seed 8; rules discard-plain; pool 2; come plain; come paged; come slices; come exact; wait 3;
        leader:link CLOSED; put services a 1; restore 0; wait 1; elsewhere""",
    "a leader that is behind what clients were given takes their watch, and a forgetful one goes on with it": """
        seed 7; rules uncached-discard; pool 2; small changes logs slices gaps few pages confirmed; come own-slices;
        come fresh; come exact; wait 400; put endpointslices a 2; restore 0; wait 12; status 3; put services a 2;
        put endpointslices c 1""",
    "a leader is asked for a list before it knows of a restore that the next one knows of": """
        rules topology; pool 2; put services b 2; come mixed; wait 1; flood services; leader:link BUSY;
        leader:latency 0.002; put services b 1; restore 0; status 1; status 1""",
    "a leader whose history was too short lists, and another one has the watch": """
        pool 1; come other; come plain-fresh; come exact; come own-events; event e2 4; second:start; put services c 0;
        wait 0.3; status 1; leader:link BUSY; restore 0; wait 3; label a; bookmarks""",
    "a second restore soon after another one, and a relayed watch that began before it was found": """
        rules uncached; pool 2; come selected; restore 1; leader:flood services; wait 3; restore 0;
        put services b 2""",
    "a second restore soon after another one, and a watch that is ahead of the source of another encoding": """
        come metadata; restore 1; come mixed; wait 1; restore 0; put services b 0""",
    "a relay of a cloud that has yet to prove its history, and a second restore": """
        pool 2; elsewhere; come fresh; elsewhere; rules uncached; come selected; rules none; restore 0;
        flood services; wait 1; restore 1""",
    "a component of a former history that the rules let be relayed since": """
        come paged-any; put services c 2; backup; put services c 2; restore 0; annotate 0; go paged-any;
        rules uncached; wait 60""",
    "a component of a former history that the rules let be relayed since, and a resource that no filter knows": """
        come widgets; put widgets c 2; backup; put widgets c 2; restore 0; put widgets a 0; go widgets;
        rules uncached; wait 60""",
    "a client of a former history comes to the source of another encoding, which was behind": """
        put services ghost 0; come list; wait 1; elsewhere; elsewhere; elsewhere; come mixed; wait 0.1; go mixed;
        restore 0; wait 5; elsewhere; elsewhere; elsewhere; elsewhere; bookmarks; wait 1; come mixed; wait 3""",
    "a source let go of while nobody may read, and a restore that no source has found": """
        rules topology; come watchlist; restore 0; wait 0.3; link CLOSED; backup; wait 1; put services b 2;
        link CLOSED; sweep""",
    "a source that begins at a version of before, just before another one finds the restore": """
        rules uncached; come nodes; come node; rules discard-watches; restore 0; put nodes b 0""",
    # The rules were edited, and the cloud advances from a version that a client got afterwards.
    "a relayed list of a quiet resource after an edit on a busy cluster": """
        rules topology; small gaps logs changes pages few; come exact; come paged-any; restore 0; settle;
        put services b 1; compact; go paged-any; end; put services b 1; bookmarks; stop; stall services; go paged-any;
        start; wait 0.1; rules topology; delete endpointslices b; wait 1; split 1; come paged-any;
        put endpointslices a 2; split 1; wait 0.1; sweep; wait 0.1; wait 1; elsewhere""",
    # The hub requested a further page with both token and version, which kube-apiserver refuses.
    "a watch that resumes at a version of which the names take two pages": """
        seed 50515; rules uncached; small pages gaps; come protobuf; put services b 0; annotate 0; end;
        put services c 2; rules discard""",
    # A source that yields to clients' requests waited on a clock that histories do not advance.
    "a follower that yields to a client whose lists are relayed, and a second restore": """
        seed 30308; rules discard; pool 2; come events; come own; wait 0.3; restore 1; wait 3; wait 0.3; restore 0""",
}

"""The official Python client: it lists, watches from the list's version, and lists again after a 410."""

import json
import sys
import time

import urllib3
from kubernetes import client, config, watch


def say(kind: str, name: str = "", version: str = "") -> None:
    print(json.dumps({"type": kind, "name": name, "version": version}), flush=True)


def main() -> None:
    config.load_kube_config(sys.argv[1])
    api, namespace = client.CoreV1Api(), sys.argv[2]
    while True:
        try:
            listed = api.list_namespaced_service(namespace)
            say("LIST")
            for item in listed.items:
                say("ADDED", item.metadata.name, item.metadata.resource_version)
            say("SYNCED")
            follow(api, namespace, listed.metadata.resource_version)
        except (client.ApiException, urllib3.exceptions.HTTPError) as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            time.sleep(0.5)


def follow(api: client.CoreV1Api, namespace: str, version: str) -> None:
    while True:
        stream = watch.Watch().stream(
            api.list_namespaced_service, namespace, resource_version=version, allow_watch_bookmarks=True
        )
        for event in stream:
            # Bookmarks are returned undecoded.
            meta = event["raw_object"]["metadata"]
            version = meta["resourceVersion"]
            if event["type"] != "BOOKMARK":
                say(event["type"], meta["name"], version)


main()

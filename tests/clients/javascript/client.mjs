// The official JavaScript client: its informer, started anew by who is told of an error, as its examples do.
import * as k8s from "@kubernetes/client-node";

const [file, namespace] = process.argv.slice(2);
const config = new k8s.KubeConfig();
config.loadFromFile(file);
const api = config.makeApiClient(k8s.CoreV1Api);
const say = (type, object) =>
  console.log(JSON.stringify({ type, name: object?.metadata.name ?? "", version: object?.metadata.resourceVersion ?? "" }));
let synced = false;
const list = async () => {
  const listed = await api.listNamespacedService({ namespace });
  setImmediate(() => synced || ((synced = true), say("SYNCED")));
  return listed;
};
const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/services`, list);
informer.on("add", (object) => say("ADDED", object));
informer.on("update", (object) => say("MODIFIED", object));
informer.on("delete", (object) => say("DELETED", object));
const start = () =>
  informer.start().catch((error) => {
    console.error(String(error));
    setTimeout(start, 500);
  });
informer.on("error", (error) => {
  console.error(String(error));
  setTimeout(start, 500);
});
start();
setInterval(() => {}, 1 << 30);

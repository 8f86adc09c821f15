//! kube-rs: its watcher, which begins anew by itself. It sends no User-Agent.
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{watcher, watcher::Event, WatchStreamExt};
use kube::{Api, Client, Config, ResourceExt};
use std::pin::pin;

fn say(kind: &str, object: Option<&Service>) {
    let (name, version) = object.map_or((String::new(), String::new()), |object| {
        (object.name_any(), object.resource_version().unwrap_or_default())
    });
    println!("{{\"type\":\"{kind}\",\"name\":\"{name}\",\"version\":\"{version}\"}}");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let file = Kubeconfig::read_from(&arguments[1])?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let services: Api<Service> = Api::namespaced(Client::try_from(config)?, &arguments[2]);
    let mut events = pin!(watcher(services, watcher::Config::default()).default_backoff());
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => say("LIST", None),
            Ok(Some(Event::InitApply(object))) => say("ADDED", Some(&object)),
            Ok(Some(Event::InitDone)) => say("SYNCED", None),
            Ok(Some(Event::Apply(object))) => say("MODIFIED", Some(&object)),
            Ok(Some(Event::Delete(object))) => say("DELETED", Some(&object)),
            Ok(None) => return Ok(()),
            Err(error) => eprintln!("{error}"),
        }
    }
}

import io.fabric8.kubernetes.api.model.Service;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.io.File;

/** fabric8's client: its informer, which watches by WebSocket first. */
public class Client {
    static synchronized void say(String type, Service object) {
        String name = object == null ? "" : object.getMetadata().getName();
        String version = object == null ? "" : object.getMetadata().getResourceVersion();
        // In one write: the library logs to the same pipe.
        System.out.println("{\"type\":\"%s\",\"name\":\"%s\",\"version\":\"%s\"}".formatted(type, name, version));
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Config config = Config.fromKubeconfig(new File(arguments[0]));
        KubernetesClient client = new KubernetesClientBuilder().withConfig(config).build();
        var informer = client.services().inNamespace(arguments[1]).runnableInformer(0);
        informer.addEventHandler(new ResourceEventHandler<Service>() {
            public void onAdd(Service object) { say("ADDED", object); }
            public void onUpdate(Service former, Service object) { say("MODIFIED", object); }
            public void onDelete(Service object, boolean isUnknown) { say("DELETED", object); }
        });
        informer.exceptionHandler((started, error) -> {
            System.err.println(error);
            return true;
        });
        informer.start();
        while (!informer.hasSynced()) {
            Thread.sleep(20);
        }
        Thread.sleep(200);
        say("SYNCED", null);
        Thread.currentThread().join();
    }
}

import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedIndexInformer;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1Service;
import io.kubernetes.client.openapi.models.V1ServiceList;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.Config;
import java.time.Duration;

/** The official Java client: its shared informer. */
public class Client {
    static synchronized void say(String type, V1Service object) {
        String name = object == null ? "" : object.getMetadata().getName();
        String version = object == null ? "" : object.getMetadata().getResourceVersion();
        // In one write: the library logs to the same pipe.
        System.out.println("{\"type\":\"%s\",\"name\":\"%s\",\"version\":\"%s\"}".formatted(type, name, version));
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        ApiClient client = Config.fromConfig(arguments[0]);
        client.setReadTimeout(0);
        CoreV1Api api = new CoreV1Api(client);
        SharedInformerFactory factory = new SharedInformerFactory(client);
        SharedIndexInformer<V1Service> informer = factory.sharedIndexInformerFor(
            (CallGeneratorParams asked) -> api.listNamespacedService(arguments[1])
                .resourceVersion(asked.resourceVersion)
                .timeoutSeconds(asked.timeoutSeconds)
                .watch(asked.watch)
                .buildCall(null),
            V1Service.class,
            V1ServiceList.class,
            Duration.ofHours(1).toMillis());
        informer.addEventHandler(new ResourceEventHandler<V1Service>() {
            public void onAdd(V1Service object) { say("ADDED", object); }
            public void onUpdate(V1Service former, V1Service object) { say("MODIFIED", object); }
            public void onDelete(V1Service object, boolean isUnknown) { say("DELETED", object); }
        });
        factory.startAllRegisteredInformers();
        while (!informer.hasSynced()) {
            Thread.sleep(20);
        }
        Thread.sleep(200);
        say("SYNCED", null);
        Thread.currentThread().join();
    }
}

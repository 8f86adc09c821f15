// client-go: its shared informer.
package main

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var lock sync.Mutex

func say(kind string, object any) {
	lock.Lock()
	defer lock.Unlock()
	line := map[string]string{"type": kind, "name": "", "version": ""}
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if service, ok := object.(*corev1.Service); ok {
		line["name"], line["version"] = service.Name, service.ResourceVersion
	}
	_ = json.NewEncoder(os.Stdout).Encode(line)
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		panic(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(
		kubernetes.NewForConfigOrDie(config), 0, informers.WithNamespace(os.Args[2]))
	registered, _ := factory.Core().V1().Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { say("ADDED", object) },
		UpdateFunc: func(_, object any) { say("MODIFIED", object) },
		DeleteFunc: func(object any) { say("DELETED", object) },
	})
	factory.Start(nil)
	for !registered.HasSynced() {
		time.Sleep(20 * time.Millisecond)
	}
	say("SYNCED", nil)
	select {}
}

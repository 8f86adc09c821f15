// The kubelet of kubemark over a container runtime that a test can break: real kubelet code, and its server with TLS,
// authentication and authorization as on a real node. What the runtime's containers do is made up here.
//
// Beside kubelet it serves one port of its own, whose address is the first line that it prints, for the streams of
// exec, attach and port-forward, as a container runtime does, and for the test: POST /restart/NAMESPACE/POD ends the
// sandbox of a pod, which kubelet then makes anew with another address.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/server"
	"k8s.io/kubernetes/pkg/kubemark"
)

// runtime is kubemark's fake one, with addresses, logs and streams.
type runtime struct {
	*apitest.FakeRuntimeService
	streaming.Server
	addresses string
	given     atomic.Uint32
}

// RunPodSandbox gives each sandbox an address that no other one had.
func (r *runtime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	id, err := r.FakeRuntimeService.RunPodSandbox(ctx, config, handler)
	if err != nil {
		return "", err
	}
	r.Lock()
	defer r.Unlock()
	sandbox := r.Sandboxes[id]
	sandbox.Network.Ip = fmt.Sprintf("%s.%d", r.addresses, r.given.Add(1))
	return id, nil
}

// CreateContainer names the file of the container's log, and writes a line into it.
func (r *runtime) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, of *runtimeapi.PodSandboxConfig) (string, error) {
	id, err := r.FakeRuntimeService.CreateContainer(ctx, sandbox, config, of)
	if err != nil {
		return "", err
	}
	path := filepath.Join(of.LogDirectory, config.LogPath)
	r.Lock()
	r.Containers[id].LogPath = path
	r.Unlock()
	return id, say(path, "hello of "+config.Metadata.Name)
}

func say(path, words string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = fmt.Fprintf(log, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), words)
	return err
}

func (r *runtime) Exec(_ context.Context, asked *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return r.GetExec(asked)
}

func (r *runtime) Attach(_ context.Context, asked *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return r.GetAttach(asked)
}

func (r *runtime) PortForward(_ context.Context, asked *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return r.GetPortForward(asked)
}

// restart ends the sandbox of a pod and what runs in it, and has the log speak of it.
func (r *runtime) restart(answer http.ResponseWriter, asked *http.Request) {
	r.Lock()
	defer r.Unlock()
	for id, sandbox := range r.Sandboxes {
		name := sandbox.Metadata
		if name.Namespace != asked.PathValue("namespace") || name.Name != asked.PathValue("pod") {
			continue
		}
		if sandbox.State != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		sandbox.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		for _, container := range r.Containers {
			if container.SandboxID == id {
				container.State = runtimeapi.ContainerState_CONTAINER_EXITED
				container.FinishedAt = time.Now().UnixNano()
			}
		}
		fmt.Fprintln(answer, sandbox.Network.Ip)
		return
	}
	http.Error(answer, "no such sandbox runs", http.StatusNotFound)
}

// echo is what runs in a container: it says what it was asked, and gives back what it reads.
type echo struct{}

func (echo) Exec(_ context.Context, container string, command []string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if out == nil {
		return nil
	}
	fmt.Fprintf(out, "ran %s\n", strings.Join(command, " "))
	if in == nil {
		return nil
	}
	_, err := io.Copy(out, in)
	return err
}

func (e echo) Attach(ctx context.Context, container string, in io.Reader, out, err io.WriteCloser, tty bool, size <-chan remotecommand.TerminalSize) error {
	return e.Exec(ctx, container, []string{"attached"}, in, out, err, tty, size)
}

func (echo) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	fmt.Fprintf(stream, "port %d\n", port)
	_, err := io.Copy(stream, stream)
	return err
}

func newRuntime(addresses string) (*runtime, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	streams, err := streaming.NewServer(config, echo{})
	if err != nil {
		return nil, err
	}
	made := &runtime{FakeRuntimeService: apitest.NewFakeRuntimeService(), Server: streams, addresses: addresses}
	made.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /restart/{namespace}/{pod}", made.restart)
	routes.Handle("/", streams)
	go func() { klog.Fatal(http.Serve(listener, routes)) }()
	fmt.Printf("runtime at http://%s\n", listener.Addr())
	return made, nil
}

func run(ctx context.Context) error {
	klog.InitFlags(nil)
	name := flag.String("name", "", "the node")
	kubeconfig := flag.String("kubeconfig", "", "where the API server is")
	addresses := flag.String("addresses", "", "the first three bytes of the pods' addresses, as 10.1.1")
	port := flag.Int("port", 0, "the port of kubelet's server, on all addresses; 0: the kernel's choice")
	clientCA := flag.String("client-ca", "", "the CA of those who may call it; without one it asks nobody who calls")
	certificate := flag.String("cert", "", "its serving certificate")
	key := flag.String("key", "", "the key of that")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.UserAgent = "kubelet/test"
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	heartbeats := *config
	heartbeats.Timeout = 10 * time.Second
	heartbeats.QPS = -1
	heartbeatClient, err := clientset.NewForConfig(&heartbeats)
	if err != nil {
		return err
	}
	containers, err := newRuntime(*addresses)
	if err != nil {
		return err
	}
	options := &kubemark.HollowKubeletOptions{NodeName: *name, KubeletPort: *port, MaxPods: 110}
	flags, settings := kubemark.GetHollowKubeletConfig(options)
	kubelet := kubemark.NewHollowKubelet(flags, settings, client, heartbeatClient, &cadvisortest.Fake{NodeName: *name},
		apitest.NewFakeImageService(), containers, cm.NewStubContainerManager())
	// Logs are real files.
	kubelet.KubeletDeps.OSInterface = kubecontainer.RealOS{}
	if *clientCA != "" {
		// As kubeadm configures a kubelet; the flags' own defaults are older ones that allow everything.
		settings.Authentication.X509.ClientCAFile = *clientCA
		settings.Authentication.Anonymous.Enabled = false
		settings.Authentication.Webhook.Enabled = true
		settings.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
		auth, reload, err := kubeletapp.BuildAuth(types.NodeName(*name), client, *settings)
		if err != nil {
			return err
		}
		reload(ctx.Done())
		kubelet.KubeletDeps.Auth = auth
		kubelet.KubeletDeps.TLSOptions = &server.TLSOptions{CertFile: *certificate, KeyFile: *key, ClientCAFile: *clientCA}
	}
	kubelet.KubeletDeps.TracerProvider = noop.NewTracerProvider()
	kubelet.Run(ctx)
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		klog.Fatal(err)
	}
}

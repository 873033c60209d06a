//go:build linux

package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Addresses inside of the cluster. Those of the node are on the loopback interface of its own network.
const (
	services  = "10.96.0.0/24"
	serviceIP = "10.96.0.1" // of the API server, the first of services
	nodeIP    = "10.95.0.1"
	pods      = "10.88.0.0/16"
	nodeName  = "localhost" // that the API server reaches the kubelet by, which takes no loopback address
)

// controllers are those that our objects, and what may surround them, have to do with.
var controllers = strings.Join([]string{
	"job-controller", "ttl-after-finished-controller", "garbage-collector-controller", "pod-garbage-collector-controller",
	"namespace-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller", "resourcequota-controller",
	"node-lifecycle-controller", "taint-eviction-controller", "deployment-controller", "replicaset-controller",
	"cronjob-controller", "endpoints-controller", "endpointslice-controller", "disruption-controller",
}, ",")

// A control is a control plane: etcd, API server, controller manager, and a scheduler where there is a node.
type control struct {
	dir   string
	kube  string
	port  int // of the API server
	pki   *pki
	token string
	units group
	http  *http.Client
}

func newControl(dir, kube string) (*control, error) {
	p, err := newPKI(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, err
	}
	c := &control{dir: dir, kube: kube, pki: p, token: rand.Text()}
	if _, err := p.newKey("service-accounts"); err != nil {
		return nil, err
	}
	if err := p.server("kube-apiserver", "127.0.0.1", "localhost", serviceIP, "kubernetes", "kubernetes.default", "kubernetes.default.svc"); err != nil {
		return nil, err
	}
	if err := p.server("kubelet-server", nodeName, "127.0.0.1"); err != nil {
		return nil, err
	}
	for _, client := range [][3]string{
		{"kube-apiserver-client", "kube-apiserver", "system:masters"},
		{"kube-controller-manager", "system:kube-controller-manager", ""},
		{"kube-scheduler", "system:kube-scheduler", ""},
		{"kubelet", "system:node:" + nodeName, "system:nodes"},
	} {
		if err := p.client(client[0], client[1], client[2]); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(p.path("tokens.csv"), []byte(c.token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return nil, err
	}
	ca := x509.NewCertPool()
	ca.AddCert(p.ca)
	c.http = &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca}, DisableKeepAlives: true},
	}
	return c, nil
}

func (c *control) url() string { return fmt.Sprintf("https://127.0.0.1:%d", c.port) }

// start starts the control plane on ports of its own, and returns when it is ready.
func (c *control) start(ctx context.Context, withScheduler bool) error {
	etcd, err := holdPort()
	if err != nil {
		return err
	}
	if c.port, err = holdPort(); err != nil {
		return err
	}
	for _, client := range []string{"kube-controller-manager", "kube-scheduler", "kubelet"} {
		if err := c.kubeconfig(client); err != nil {
			return err
		}
	}
	etcdURL := fmt.Sprintf("http://127.0.0.1:%d", etcd)
	data, err := os.MkdirTemp(c.dir, "etcd")
	if err != nil {
		return err
	}
	c.units = group{
		c.unit("etcd",
			"--data-dir="+data, "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
			"--listen-peer-urls=http://127.0.0.1:0", // it has no peers
			"--socket-reuse-port",                   // see holdPort
		),
		c.unit("kube-apiserver",
			"--etcd-servers="+etcdURL, "--endpoint-reconciler-type=none",
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port), "--permit-port-sharing", // see holdPort
			"--advertise-address=192.0.2.1", // loopback is refused, and none used
			"--tls-cert-file="+c.pki.path("kube-apiserver.crt"), "--tls-private-key-file="+c.pki.path("kube-apiserver.key"),
			"--client-ca-file="+c.pki.path("ca.crt"), "--token-auth-file="+c.pki.path("tokens.csv"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
			"--service-cluster-ip-range="+services, "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file="+c.pki.path("service-accounts.key"), "--service-account-signing-key-file="+c.pki.path("service-accounts.key"),
			"--kubelet-client-certificate="+c.pki.path("kube-apiserver-client.crt"), "--kubelet-client-key="+c.pki.path("kube-apiserver-client.key"),
			"--kubelet-certificate-authority="+c.pki.path("ca.crt"), "--kubelet-preferred-address-types=Hostname",
		),
		c.unit("kube-controller-manager",
			"--kubeconfig="+c.pki.path("kube-controller-manager.conf"), "--leader-elect=false", "--secure-port=0",
			"--controllers="+controllers, "--root-ca-file="+c.pki.path("ca.crt"),
			"--service-account-private-key-file="+c.pki.path("service-accounts.key"), "--use-service-account-credentials",
			"--kube-api-qps=100", "--kube-api-burst=200", // 20 and 30 otherwise, for which hundreds of pods queue
		),
		c.unit("kube-scheduler",
			"--kubeconfig="+c.pki.path("kube-scheduler.conf"), "--leader-elect=false", "--secure-port=0",
		),
	}
	if !withScheduler {
		c.units = c.units[:3]
	}
	for _, u := range c.units {
		if err := u.start(); err != nil {
			return err
		}
		if u.name != "kube-apiserver" {
			continue
		}
		// The others end if they wait for long.
		if err := c.until(ctx, "the API server is ready", func() error { return c.get("/readyz", nil) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *control) unit(name string, args ...string) *unit {
	return &unit{name: name, args: append([]string{c.kube, name}, args...), log: filepath.Join(c.dir, "logs", name+".log")}
}

// until asks done until it has no fault to find, ctx ends or a unit does.
func (c *control) until(ctx context.Context, what string, done func() error) error {
	for {
		fault := done()
		if fault == nil {
			return nil
		}
		for _, u := range c.units {
			if err := u.failure(); u.cmd != nil && err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("until %s: %w; last: %w", what, context.Cause(ctx), fault)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// get asks the API server as admin. An answer other than 200 is an error.
func (c *control) get(path string, into any) error {
	req, err := http.NewRequest(http.MethodGet, c.url()+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("GET %s: %s: %.200s", path, res.Status, body)
	case into == nil:
		return nil
	}
	return json.Unmarshal(body, into)
}

// kubeconfig writes NAME.conf for a component whose certificate is NAME.crt.
func (c *control) kubeconfig(name string) error {
	type object = map[string]any
	text, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []object{{"name": "test", "cluster": object{"server": c.url(), "certificate-authority": c.pki.path("ca.crt")}}},
		"users":    []object{{"name": name, "user": object{"client-certificate": c.pki.path(name + ".crt"), "client-key": c.pki.path(name + ".key")}}},
		"contexts": []object{{"name": "test", "context": object{"cluster": "test", "user": name}}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(c.pki.path(name+".conf"), text, 0o600)
}

// soReusePort is SO_REUSEPORT, which package syscall does not have for every processor.
const soReusePort = 0xf

// holdPort takes a port of the loopback interface that nobody has, for as long as this process lives. The socket that it is
// bound to does not listen. Who wants to listen there has to share the port (SO_REUSEPORT), as the components are told to:
// one that was killed finds it free again, whatever other programs have taken meanwhile.
func holdPort() (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, soReusePort, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(fd)
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("hold a port: %w", err), syscall.Close(fd))
	}
	return bound.(*syscall.SockaddrInet4).Port, nil
}

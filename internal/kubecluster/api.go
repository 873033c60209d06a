package kubecluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// URL returns the API server's base URL, without a slash at its end.
func (c *Cluster) URL() string { return c.hello.URL }

// CA returns the certificate, in PEM, of the authority that the API server's certificate is from.
func (c *Cluster) CA() []byte { return []byte(c.hello.CA) }

// AdminToken returns the token of a user who may do everything.
func (c *Cluster) AdminToken() string { return c.hello.Token }

// Dir returns the folder of the cluster. It is removed with the cluster. The components' logs lie in its folder logs.
func (c *Cluster) Dir() string { return c.hello.Dir }

// Kubeconfig returns what "kubectl config view --raw --minify -o json" prints for a user of a token.
func (c *Cluster) Kubeconfig(token, namespace string) []byte {
	type object = map[string]any
	text, err := json.MarshalIndent(object{
		"kind": "Config", "apiVersion": "v1", "preferences": object{}, "current-context": "test",
		"clusters": []object{{"name": "test", "cluster": object{"server": c.URL(), "certificate-authority-data": c.CA()}}},
		"users":    []object{{"name": "tester", "user": object{"token": token}}},
		"contexts": []object{{"name": "test", "context": object{"cluster": "test", "user": "tester", "namespace": namespace}}},
	}, "", "    ")
	if err != nil {
		panic(err) // it is made of strings
	}
	return text
}

// A StatusError is an answer of the API server other than 2xx.
type StatusError struct {
	Code            int
	Reason, Message string // of the Status object, where there is one
}

func (e *StatusError) Error() string { return fmt.Sprintf("%d %s: %s", e.Code, e.Reason, e.Message) }

// Do has the API server do something as admin, beside the code under test: path is one with its query, body and the
// answer are JSON, or nil for none. A PATCH is a merge patch. An answer other than 2xx is a [*StatusError].
func (c *Cluster) Do(ctx context.Context, method, path string, body, into any) error {
	if err := c.do(ctx, c.client(), method, path, body, into); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// client returns a client that keeps no connection, and so has no goroutine when it is not in use.
func (c *Cluster) client() *http.Client {
	ca := x509.NewCertPool()
	ca.AppendCertsFromPEM(c.CA())
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca},
	}}
}

func (c *Cluster) do(ctx context.Context, client *http.Client, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.URL()+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.hello.Token)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		failure := &StatusError{Code: res.StatusCode}
		if json.Unmarshal(answer, failure) != nil {
			failure.Message = string(answer[:min(len(answer), 200)])
		}
		failure.Code = res.StatusCode
		return failure
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// poll asks done every 50 ms until it says yes or fails, or ctx ends.
func (c *Cluster) poll(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("until %s: %w", what, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// object is what is written to the API server.
type object = map[string]any

// working is how long what the controllers do for a namespace or a user may take: on a machine that does much else, and when
// a test has just had them stopped.
const working = 4 * time.Minute

// Namespace makes a namespace for a test, ready for pods, and has it removed at the test's end, with all that is in it.
func (c *Cluster) Namespace(t TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), working)
	defer cancel()
	name := "test-" + strings.ToLower(rand.Text())[:12]
	if err := c.Do(ctx, "POST", "/api/v1/namespaces", object{"metadata": object{"name": name}}, nil); err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Do(ctx, "DELETE", "/api/v1/namespaces/"+name, nil, nil); err != nil {
			t.Logf("remove a namespace: %v", err) // the cluster is removed, too
		}
	})
	err := c.poll(ctx, "the namespace has its service account", func() (bool, error) {
		for _, path := range []string{"/serviceaccounts/default", "/configmaps/kube-root-ca.crt"} {
			if c.Do(ctx, "GET", "/api/v1/namespaces/"+name+path, nil, nil) != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("make a namespace: %v", err)
	}
	return name
}

// A Rule says what a user may do, as in a Role: verbs with resources of an API group.
type Rule struct {
	Groups    []string `json:"apiGroups"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
}

// May makes a rule of words: May("batch", "jobs", "get", "list").
func May(group, resource string, verbs ...string) Rule {
	return Rule{Groups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// User makes a service account that may do what the rules say, in the namespace only, and returns a token of it that is
// good for an hour. Without rules it may do nothing.
func (c *Cluster) User(t TB, namespace string, rules ...Rule) (token string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), working)
	defer cancel()
	name := "user-" + strings.ToLower(rand.Text())[:8]
	meta := object{"name": name}
	core, rbac := "/api/v1/namespaces/"+namespace, "/apis/rbac.authorization.k8s.io/v1/namespaces/"+namespace
	var answer struct{ Status struct{ Token string } }
	for _, step := range []struct {
		path string
		body object
		into any
	}{
		{core + "/serviceaccounts", object{"metadata": meta}, nil},
		{rbac + "/roles", object{"metadata": meta, "rules": slices.Concat([]Rule{}, rules)}, nil},
		{rbac + "/rolebindings", object{
			"metadata": meta,
			"subjects": []object{{"kind": "ServiceAccount", "name": name, "namespace": namespace}},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
		}, nil},
		{core + "/serviceaccounts/" + name + "/token", object{"spec": object{"expirationSeconds": 3600}}, &answer},
	} {
		if err := c.Do(ctx, "POST", step.path, step.body, step.into); err != nil {
			t.Fatalf("make a user: %v", err)
		}
	}
	// The API server's authorizer learns of a role a moment later.
	if len(rules) > 0 {
		c.waitAllowed(ctx, t, namespace, "system:serviceaccount:"+namespace+":"+name, rules[len(rules)-1])
	}
	return answer.Status.Token
}

// waitAllowed returns when the API server lets the user do the first thing of the rule.
func (c *Cluster) waitAllowed(ctx context.Context, t TB, namespace, user string, rule Rule) {
	t.Helper()
	resource, sub, _ := strings.Cut(rule.Resources[0], "/")
	review := object{"spec": object{"user": user, "resourceAttributes": object{
		"namespace": namespace, "group": rule.Groups[0], "resource": resource, "subresource": sub, "verb": rule.Verbs[0],
	}}}
	err := c.poll(ctx, "a user's role counts", func() (bool, error) {
		var answer struct{ Status struct{ Allowed bool } }
		err := c.Do(ctx, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, &answer)
		return answer.Status.Allowed, err
	})
	if err != nil {
		t.Fatalf("make a user: %v", err)
	}
}

// DialContext connects to an address inside of the node's network: a pod's, say. It fails without a node.
func (c *Cluster) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	if c.hello.Dial == "" {
		return nil, fmt.Errorf("dial %s: the cluster has no node", address)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.hello.Dial)
	if err != nil {
		return nil, err
	}
	if err := ask(ctx, conn, address); err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return conn, nil
}

// ask has the other end of conn connect to address. What comes after the answer's line is the connection's.
func ask(ctx context.Context, conn net.Conn, address string) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := fmt.Fprintln(conn, address); err != nil {
		return err
	}
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		if b[0] == '\n' {
			break
		}
	}
	if string(line) != "ok" {
		return fmt.Errorf("%s", line)
	}
	return nil
}

package kubecluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const puppet = "puppet"

// RunPuppet plays a node where there is none: it has pods run without a process, and end when they are deleted. It
// blocks until ctx ends. For tests of what only the control plane has to do with, in numbers that a real node is too
// small for. It knows no deadlines of pods, no exec, no image and no exit, and a pod's end takes no time.
func (c *Cluster) RunPuppet(ctx context.Context) error {
	client := c.client()
	client.Timeout = 0 // a watch is long
	client.Transport.(*http.Transport).DisableKeepAlives = false
	defer client.CloseIdleConnections()
	p := &puppeteer{c: c, client: client, busy: make(chan struct{}, 16), known: map[string]string{}}
	defer p.all.Wait()
	err := p.do(ctx, "POST", "/api/v1/nodes", object{"metadata": object{"name": puppet}}, nil)
	if failure := (*StatusError)(nil); err != nil && (!errors.As(err, &failure) || failure.Code != http.StatusConflict) {
		return fmt.Errorf("register the node: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.all.Go(func() { p.beat(ctx) })
	for ctx.Err() == nil {
		if err := p.follow(ctx); err != nil && ctx.Err() == nil {
			select { // the API server may be down: a test's doing
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return context.Cause(ctx)
}

type puppeteer struct {
	c      *Cluster
	client *http.Client
	all    sync.WaitGroup
	busy   chan struct{} // holds a token for each pod that is being written to

	mu    sync.Mutex
	known map[string]string // what was done last with the pod of a uid
}

func (p *puppeteer) do(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return p.c.do(ctx, p.client, method, path, body, into)
}

// beat says that the node is well, as often as a kubelet does.
func (p *puppeteer) beat(ctx context.Context) {
	for {
		now := time.Now().UTC().Format(time.RFC3339)
		_ = p.do(ctx, "PATCH", "/api/v1/nodes/"+puppet+"/status", object{"status": object{
			"conditions": []object{{"type": "Ready", "status": "True", "reason": "Puppet", "lastHeartbeatTime": now, "lastTransitionTime": now}},
		}}, nil) // the next one is soon
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}

type puppetPod struct {
	Metadata struct{ Namespace, Name, UID, DeletionTimestamp, ResourceVersion string }
	Spec     struct {
		NodeName   string
		Containers []struct{ Name, Image string }
	}
	Status struct{ Phase string }
}

// follow lists the pods and then watches them, until that ends.
func (p *puppeteer) follow(ctx context.Context) error {
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []puppetPod
	}
	if err := p.do(ctx, "GET", "/api/v1/pods", nil, &list); err != nil {
		return err
	}
	for _, pod := range list.Items {
		p.see(ctx, pod)
	}
	req, err := http.NewRequestWithContext(ctx, "GET", p.c.URL()+"/api/v1/pods?watch=true&resourceVersion="+list.Metadata.ResourceVersion, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.c.AdminToken())
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for dec := json.NewDecoder(res.Body); ; {
		var event struct {
			Type   string
			Object puppetPod
		}
		if err := dec.Decode(&event); err != nil {
			return err
		}
		switch event.Type {
		case "ADDED", "MODIFIED":
			p.see(ctx, event.Object)
		case "ERROR":
			return errors.New("the watch has failed")
		}
	}
}

// see does what a pod needs, once.
func (p *puppeteer) see(ctx context.Context, pod puppetPod) {
	var deed func(context.Context, puppetPod) error
	var name string
	switch {
	case pod.Metadata.DeletionTimestamp != "" && (pod.Spec.NodeName == puppet || pod.Spec.NodeName == ""):
		deed, name = p.end, "end"
	case pod.Metadata.DeletionTimestamp == "" && pod.Spec.NodeName == "":
		deed, name = p.begin, "begin"
	default:
		return
	}
	p.mu.Lock()
	done := p.known[pod.Metadata.UID] == name
	p.known[pod.Metadata.UID] = name
	p.mu.Unlock()
	if done {
		return
	}
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return
	}
	p.all.Go(func() {
		defer func() { <-p.busy }()
		for p.fails(deed(ctx, pod)) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
}

// fails says whether a deed is to be tried again: not if the pod is gone or changed, of which there is another event.
func (p *puppeteer) fails(err error) bool {
	var failure *StatusError
	return err != nil && (!errors.As(err, &failure) || failure.Code/100 != 4 || failure.Code == http.StatusTooManyRequests)
}

func (p *puppeteer) path(pod puppetPod) string {
	return "/api/v1/namespaces/" + pod.Metadata.Namespace + "/pods/" + pod.Metadata.Name
}

// begin binds a pod to the node and says that it runs.
func (p *puppeteer) begin(ctx context.Context, pod puppetPod) error {
	err := p.do(ctx, "POST", p.path(pod)+"/binding", object{
		"metadata": object{"name": pod.Metadata.Name, "uid": pod.Metadata.UID},
		"target":   object{"kind": "Node", "name": puppet},
	}, nil)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	var containers []object
	for _, container := range pod.Spec.Containers {
		containers = append(containers, object{
			"name": container.Name, "image": container.Image, "imageID": "", "ready": true, "started": true, "restartCount": 0,
			"state": object{"running": object{"startedAt": now}},
		})
	}
	return p.do(ctx, "PATCH", p.path(pod)+"/status", object{
		"metadata": object{"uid": pod.Metadata.UID},
		"status": object{
			"phase": "Running", "startTime": now, "hostIP": "192.0.2.1", "podIP": "192.0.2.2", "podIPs": []object{{"ip": "192.0.2.2"}},
			"conditions":        []object{{"type": "Ready", "status": "True", "lastTransitionTime": now}},
			"containerStatuses": containers,
		},
	}, nil)
}

// end says that a pod's containers have ended, and takes its record away, as a kubelet does last.
func (p *puppeteer) end(ctx context.Context, pod puppetPod) error {
	if pod.Status.Phase != "Failed" && pod.Status.Phase != "Succeeded" {
		err := p.do(ctx, "PATCH", p.path(pod)+"/status", object{
			"metadata": object{"uid": pod.Metadata.UID}, "status": object{"phase": "Failed", "reason": "Killed"},
		}, nil)
		if err != nil {
			return err
		}
	}
	return p.do(ctx, "DELETE", p.path(pod), object{
		"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": object{"uid": pod.Metadata.UID},
	}, nil)
}

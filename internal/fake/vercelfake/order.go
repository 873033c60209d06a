package vercelfake

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// order is the body of a create, a fork or an update, as far as it says anything.
type order struct {
	ProjectID          *string           `json:"projectId"`
	Name               *string           `json:"name"`
	Timeout            *int64            `json:"timeout"`
	Persistent         *bool             `json:"persistent"`
	Tags               map[string]string `json:"tags"`
	Env                map[string]string `json:"env"`
	Resources          *resources        `json:"resources"`
	Ports              []int             `json:"ports"`
	Image              *string           `json:"image"`
	Runtime            *string           `json:"runtime"`
	Source             *source           `json:"source"`
	Region             *string           `json:"region"`
	FailoverRegions    []string          `json:"failoverRegions"`
	NetworkPolicy      json.RawMessage   `json:"networkPolicy"`
	NetworkID          *string           `json:"networkId"`
	SnapshotExpiration *int64            `json:"snapshotExpiration"`
	KeepLastSnapshots  json.RawMessage   `json:"keepLastSnapshots"`
	Mounts             map[string]any    `json:"mounts"`
	Architecture       *string           `json:"architecture"`
	CurrentSnapshotID  *string           `json:"currentSnapshotId"` // of an update only
}

type resources struct {
	VCPUs  *int `json:"vcpus"`
	Memory *int `json:"memory"`
}

type source struct {
	Type       string  `json:"type"`
	URL        string  `json:"url"`
	Depth      *int    `json:"depth"`
	Revision   *string `json:"revision"`
	Username   *string `json:"username"`
	Password   *string `json:"password"`
	SnapshotID string  `json:"snapshotId"`
}

// Keep is how many automatic snapshots of a sandbox are kept.
type Keep struct {
	Count         int    `json:"count"`
	Expiration    *int64 `json:"expiration,omitempty"`
	DeleteEvicted *bool  `json:"deleteEvicted,omitempty"`
}

// config is what holds for a sandbox: its order, and later changes.
type config struct {
	timeout    time.Duration
	persistent bool
	env        map[string]string
	vcpus      int
	ports      []int
	image      string
	runtime    string
	region     string
	failover   []string
	policy     string // mode
	networkID  string
	expiration *int64 // of snapshots, in ms; nil: the default
	keep       *Keep
	source     string // id of the snapshot that its next session starts from; empty: none
}

// What holds for those who say nothing.
const (
	defaultTimeout    = 5 * time.Minute
	minTimeout        = time.Second
	defaultCPUs       = 2
	memoryPerCPU      = 2048 // MB
	defaultImage      = "vercel/sandbox/universal:latest"
	defaultRuntime    = "node24"
	defaultExpiration = 30 * 24 * time.Hour
)

var (
	namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)
	imageRef    = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?$`)
	runtimes    = []string{"node22", "node24", "node26", "python3.13"}
	ownImages   = []string{"universal", "node:22", "node:24", "node:26", "python:3.14", "ubuntu", "arch"}
	regions     = strings.Fields("arn1 bom1 cdg1 cle1 cpt1 dub1 dxb1 fra1 gru1 hkg1 hnd1 iad1 icn1 kix1 lhr1 pdx1 sfo1 sin1 syd1")
)

const ownPrefix = "vercel/sandbox/"

// defaults returns the config of an empty create.
func defaults(version int) config {
	c := config{timeout: defaultTimeout, persistent: true, vcpus: defaultCPUs, region: "iad1", policy: "allow-all"}
	if version == 2 {
		c.runtime = defaultRuntime
	} else {
		c.image = defaultImage
	}
	return c
}

// apply changes c as o says, or tells why it cannot be.
func (o *order) apply(c *config, maxCPUs int) error {
	for _, check := range []func(*config) error{o.life, o.machine, o.place, o.kept} {
		if err := check(c); err != nil {
			return err
		}
	}
	if c.vcpus > maxCPUs {
		return invalid("resources.vcpus must be at most %d on this plan", maxCPUs)
	}
	return nil
}

func (o *order) life(c *config) error {
	switch {
	case o.Name != nil && !namePattern.MatchString(*o.Name):
		return invalid("name must match ^[a-zA-Z0-9_-]+$ and be at most 128 characters long")
	case o.Timeout != nil && *o.Timeout < minTimeout.Milliseconds():
		return invalid("timeout must be at least %d", minTimeout.Milliseconds())
	case len(o.Tags) > 5:
		return invalid("tags must have at most 5 entries")
	}
	for k, v := range o.Tags {
		if k == "" || len([]rune(v)) > 256 {
			return invalid("tags: the value of %q must be at most 256 characters long, and a key not empty", k)
		}
	}
	if o.Timeout != nil {
		c.timeout = time.Duration(min(*o.Timeout, int64(1<<62)/int64(time.Millisecond))) * time.Millisecond
	}
	if o.Persistent != nil {
		c.persistent = *o.Persistent
	}
	return nil
}

func (o *order) machine(c *config) error {
	if r := o.Resources; r != nil {
		vcpus := c.vcpus
		switch {
		case r.VCPUs != nil:
			vcpus = *r.VCPUs
		case r.Memory != nil:
			vcpus = *r.Memory / memoryPerCPU
		}
		if vcpus < 1 || vcpus > 1 && vcpus%2 != 0 {
			return invalid("resources.vcpus must be 1 or an even number")
		}
		if r.Memory != nil && *r.Memory != vcpus*memoryPerCPU {
			return invalid("resources.memory must be %d MB per vCPU", memoryPerCPU)
		}
		c.vcpus = vcpus
	}
	if len(o.Ports) > 15 {
		return invalid("ports must have at most 15 entries")
	}
	for i, p := range o.Ports {
		if p < 1024 || p > 65535 || p == 23456 || slices.Contains(o.Ports[:i], p) {
			return invalid("ports: %d is taken, reserved, or not within 1024 and 65535", p)
		}
	}
	if o.Ports != nil {
		c.ports = slices.Clone(o.Ports)
	}
	if o.Env != nil {
		c.env = maps.Clone(o.Env)
	}
	return o.base(c)
}

// base settles what the machine is made of.
func (o *order) base(c *config) error {
	switch {
	case o.Image != nil && o.Runtime != nil:
		return invalid("image and runtime cannot be used together")
	case o.Runtime != nil && !slices.Contains(runtimes, *o.Runtime):
		return invalid("runtime must be one of %s", strings.Join(runtimes, ", "))
	case o.Source != nil && (o.Image != nil || o.Runtime != nil) && o.Source.Type == "snapshot":
		return invalid("image and runtime cannot be used with a snapshot")
	case o.Architecture != nil && *o.Architecture != "amd64" && *o.Architecture != "arm64":
		return invalid("architecture must be amd64 or arm64")
	case len(o.Mounts) > 0:
		return notFound("the drive was not found") // there are none
	}
	if o.Runtime != nil {
		c.runtime, c.image = *o.Runtime, ""
	}
	if o.Image != nil {
		name := *o.Image
		own, ours := strings.CutPrefix(name, ownPrefix)
		own, _, _ = strings.Cut(own, "@")
		known := slices.ContainsFunc(ownImages, func(i string) bool {
			base, _, _ := strings.Cut(i, ":")
			return own == i || own == base || own == base+":latest"
		})
		if len(name) > 255 || !imageRef.MatchString(name) || ours && !known {
			return invalid("image %q was not found", name)
		}
		c.image, c.runtime = name, ""
	}
	if src := o.Source; src != nil {
		switch src.Type {
		case "snapshot":
			c.source = src.SnapshotID
		case "git", "tarball":
			return invalid("source %q could not be fetched", src.URL)
		default:
			return invalid("source.type must be one of git, tarball, snapshot")
		}
	}
	return nil
}

// place settles where the machine runs and whom it reaches.
func (o *order) place(c *config) error {
	if o.Region != nil {
		if !slices.Contains(regions, *o.Region) {
			return invalid("region must be one of %s", strings.Join(regions, ", "))
		}
		c.region = *o.Region
	}
	for i, r := range o.FailoverRegions {
		if !slices.Contains(regions, r) || r == c.region || slices.Contains(o.FailoverRegions[:i], r) {
			return invalid("failoverRegions: %q is unknown, twice, or the region itself", r)
		}
	}
	if o.FailoverRegions != nil {
		c.failover = slices.Clone(o.FailoverRegions)
	}
	if o.NetworkID != nil {
		c.networkID = *o.NetworkID
	}
	if said(o.NetworkPolicy) {
		mode, err := policyMode(o.NetworkPolicy)
		if err != nil {
			return err
		}
		c.policy = mode
	}
	return nil
}

// policyMode reads a network policy in either form.
func policyMode(text json.RawMessage) (string, error) {
	var p struct {
		Mode    string          `json:"mode"`
		Allow   json.RawMessage `json:"allow"`
		Subnets *struct {
			Allow []string `json:"allow"`
			Deny  []string `json:"deny"`
		} `json:"subnets"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return "", invalid("networkPolicy: %v", err)
	}
	switch {
	case p.Mode == "allow-all" || p.Mode == "deny-all":
		return p.Mode, nil
	case p.Mode == "" && (said(p.Allow) || p.Subnets != nil):
		var domains []string
		var rules map[string][]map[string]any
		if said(p.Allow) && json.Unmarshal(p.Allow, &domains) != nil && json.Unmarshal(p.Allow, &rules) != nil {
			return "", invalid("networkPolicy.allow must be a list of domains, or rules by domain")
		}
		return "custom", nil
	}
	return "", invalid("networkPolicy must have a mode, or allow or subnets")
}

// kept settles what stays of the files.
func (o *order) kept(c *config) error {
	if o.SnapshotExpiration != nil {
		if err := expiration(*o.SnapshotExpiration); err != nil {
			return err
		}
		c.expiration = o.SnapshotExpiration
	}
	switch text := bytes.TrimSpace(o.KeepLastSnapshots); {
	case len(text) == 0:
	case string(text) == "null":
		c.keep = nil
	default:
		var k Keep
		if err := json.Unmarshal(text, &k); err != nil || k.Count < 1 || k.Count > 10 {
			return invalid("keepLastSnapshots.count must be between 1 and 10")
		}
		if k.Expiration != nil {
			if err := expiration(*k.Expiration); err != nil {
				return err
			}
		}
		c.keep = &k
	}
	return nil
}

// expiration checks how long a snapshot is kept, in ms. 0 is for ever.
func expiration(ms int64) error {
	const day = 24 * int64(time.Hour/time.Millisecond)
	if ms != 0 && (ms < day || ms > 3650*day) {
		return invalid("the expiration of a snapshot must be 0, or between 1 day and 10 years")
	}
	return nil
}

func said(text json.RawMessage) bool {
	text = bytes.TrimSpace(text)
	return len(text) > 0 && string(text) != "null"
}

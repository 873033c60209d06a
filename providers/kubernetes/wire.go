package kubernetes

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// What is sent and read of the cluster's objects, as far as it is used here. Fields that may be missing in an order have
// omitempty; those of the lease are pointers, so that "missing" can be told from zero.
type (
	meta struct {
		Name            string            `json:"name,omitempty"`
		Namespace       string            `json:"namespace,omitempty"`
		UID             string            `json:"uid,omitempty"`
		ResourceVersion string            `json:"resourceVersion,omitempty"`
		Created         *time.Time        `json:"creationTimestamp,omitempty"`
		Deleted         *time.Time        `json:"deletionTimestamp,omitempty"`
		Labels          map[string]string `json:"labels,omitempty"`
		Annotations     map[string]string `json:"annotations,omitempty"`
		Owners          []reference       `json:"ownerReferences,omitempty"`
	}

	reference struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
	}

	job struct {
		APIVersion string     `json:"apiVersion,omitempty"`
		Kind       string     `json:"kind,omitempty"`
		Meta       meta       `json:"metadata"`
		Spec       jobSpec    `json:"spec"`
		Status     *jobStatus `json:"status,omitempty"`
	}

	jobSpec struct {
		Deadline     *int64   `json:"activeDeadlineSeconds,omitempty"`
		Backoff      *int32   `json:"backoffLimit,omitempty"`
		TTL          *int32   `json:"ttlSecondsAfterFinished,omitempty"`
		Parallelism  *int32   `json:"parallelism,omitempty"`
		Completions  *int32   `json:"completions,omitempty"`
		Suspend      *bool    `json:"suspend,omitempty"`
		ManagedBy    *string  `json:"managedBy,omitempty"`
		FailedPolicy any      `json:"podFailurePolicy,omitempty"`
		Template     template `json:"template"`
	}

	jobStatus struct {
		Started    *time.Time  `json:"startTime"`
		Conditions []condition `json:"conditions"`
	}

	condition struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}

	template struct {
		Meta meta    `json:"metadata"`
		Spec podSpec `json:"spec"`
	}

	podSpec struct {
		Restart         string            `json:"restartPolicy,omitempty"`
		Deadline        *int64            `json:"activeDeadlineSeconds,omitempty"`
		Grace           *int64            `json:"terminationGracePeriodSeconds,omitempty"`
		ServiceAccount  string            `json:"serviceAccountName,omitempty"`
		MountToken      *bool             `json:"automountServiceAccountToken,omitempty"`
		ServiceLinks    *bool             `json:"enableServiceLinks,omitempty"`
		HostNetwork     bool              `json:"hostNetwork,omitempty"`
		HostPID         bool              `json:"hostPID,omitempty"`
		HostIPC         bool              `json:"hostIPC,omitempty"`
		RuntimeClass    string            `json:"runtimeClassName,omitempty"`
		PriorityClass   string            `json:"priorityClassName,omitempty"`
		NodeSelector    map[string]string `json:"nodeSelector,omitempty"`
		Node            string            `json:"nodeName,omitempty"`
		Tolerations     []Toleration      `json:"tolerations,omitempty"`
		PullSecrets     []named           `json:"imagePullSecrets,omitempty"`
		SecurityContext *podSecurity      `json:"securityContext,omitempty"`
		Containers      []container       `json:"containers"`
	}

	named struct {
		Name string `json:"name"`
	}

	podSecurity struct {
		User       *int64   `json:"runAsUser,omitempty"`
		Group      *int64   `json:"runAsGroup,omitempty"`
		FSGroup    *int64   `json:"fsGroup,omitempty"`
		NonRoot    *bool    `json:"runAsNonRoot,omitempty"`
		SeccompTyp *seccomp `json:"seccompProfile,omitempty"`
	}

	seccomp struct {
		Type string `json:"type"`
	}

	container struct {
		Name       string             `json:"name"`
		Image      string             `json:"image"`
		PullPolicy string             `json:"imagePullPolicy,omitempty"`
		Command    []string           `json:"command,omitempty"`
		Args       []string           `json:"args,omitempty"`
		Env        []variable         `json:"env,omitempty"`
		EnvFrom    []envFrom          `json:"envFrom,omitempty"`
		Ports      []port             `json:"ports,omitempty"`
		Resources  *resources         `json:"resources,omitempty"`
		Security   *containerSecurity `json:"securityContext,omitempty"`
	}

	variable struct {
		Name  string `json:"name"`
		Value string `json:"value,omitempty"`
	}

	envFrom struct {
		Secret named `json:"secretRef"`
	}

	port struct {
		Number int `json:"containerPort"`
	}

	resources struct {
		Limits   map[string]string `json:"limits,omitempty"`
		Requests map[string]string `json:"requests,omitempty"`
	}

	containerSecurity struct {
		Privileged   *bool         `json:"privileged,omitempty"`
		Escalation   *bool         `json:"allowPrivilegeEscalation,omitempty"`
		Capabilities *capabilities `json:"capabilities,omitempty"`
	}

	capabilities struct {
		Drop []string `json:"drop,omitempty"`
	}

	pod struct {
		Meta   meta      `json:"metadata"`
		Spec   podSpec   `json:"spec"`
		Status podStatus `json:"status"`
	}

	podStatus struct {
		Phase      string            `json:"phase"`
		Reason     string            `json:"reason"`
		IP         string            `json:"podIP"`
		Started    *time.Time        `json:"startTime"`
		Conditions []condition       `json:"conditions"`
		Containers []containerStatus `json:"containerStatuses"`
	}

	containerStatus struct {
		Name     string `json:"name"`
		Restarts int    `json:"restartCount"`
		Last     struct {
			Terminated *struct {
				Finished time.Time `json:"finishedAt"`
			} `json:"terminated"`
		} `json:"lastState"`
		State struct {
			Waiting *struct {
				Reason  string `json:"reason"`
				Message string `json:"message"`
			} `json:"waiting"`
			Running *struct {
				Started time.Time `json:"startedAt"`
			} `json:"running"`
		} `json:"state"`
	}
)

// Toleration lets a pod run on nodes with a matching taint. It means what it means in a pod's spec.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

var (
	// names are those of jobs, and of whatever else stands in a path.
	names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	uids  = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
)

// Validate reports what is missing.
func (j *job) Validate() error {
	switch {
	case j.Kind != "Job" && j.Kind != "": // items of a list do not say
		return fmt.Errorf("a %.40q, not a Job", j.Kind)
	case !names.MatchString(j.Meta.Name) || !uids.MatchString(j.Meta.UID):
		return errors.New("a Job without a name or uid that can be one")
	case j.Meta.Created == nil:
		return errors.New("a Job that does not tell when it was made")
	}
	return nil
}

// Validate reports what is missing.
func (p *pod) Validate() error {
	if !names.MatchString(p.Meta.Name) || !uids.MatchString(p.Meta.UID) {
		return errors.New("a pod without a name or uid that can be one")
	}
	return nil
}

// has reports whether a condition is there and true, and returns it.
func has(all []condition, kinds ...string) (condition, bool) {
	i := slices.IndexFunc(all, func(c condition) bool { return c.Status == "True" && slices.Contains(kinds, c.Type) })
	if i < 0 {
		return condition{}, false
	}
	return all[i], true
}

// page is one page of a list.
type page[T any] struct {
	Kind string `json:"kind"`
	Meta struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// Validate reports what is missing: what is no list is not an empty one.
func (p *page[T]) Validate() error {
	if p.Kind != "JobList" && p.Kind != "PodList" {
		return fmt.Errorf("a %.40q, not a list", p.Kind)
	}
	for i := range p.Items {
		if v, ok := any(&p.Items[i]).(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// deletion is the body of a delete. Without a policy, a Job's delete would leave its pod running for ever, without
// anything that ends it; without the uid it might meet another object of the same name.
type deletion struct {
	APIVersion    string        `json:"apiVersion"`
	Kind          string        `json:"kind"`
	Policy        string        `json:"propagationPolicy,omitempty"`
	Preconditions preconditions `json:"preconditions"`
}

type preconditions struct {
	UID string `json:"uid"`
}

// A deadlinePatch moves a Job's deadline, of no other Job than that with the uid. The version, where it is not empty,
// makes sure that nobody has changed it meanwhile.
type deadlinePatch struct {
	Meta struct {
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Deadline int64 `json:"activeDeadlineSeconds"` // never missing, never null: that is immortality
	} `json:"spec"`
}

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// followsAnnotation is on each node: what it follows, as JSON.
const followsAnnotation = "airlift.dev/follows"

// Follows is what a node has recorded of the changes of its cluster. The cluster counts each kind of change for itself, so a node may
// be behind in one of them, or never had one: 0 and "" are none.
type Follows struct {
	// Reconfiguration is the number of the reconfiguration.
	Reconfiguration int `json:"reconfiguration,omitempty"`
	// Endpoint is the number of the change of the endpoint. OnlyServes is set on a control plane that serves the new endpoint and does
	// not use it yet.
	Endpoint   int  `json:"endpoint,omitempty"`
	OnlyServes bool `json:"onlyServes,omitempty"`
	// UsesRegistry is set if containerd asks the embedded registry. Registry is the generation of that.
	UsesRegistry bool `json:"usesRegistry,omitempty"`
	Registry     int  `json:"registry,omitempty"`
	// Rotation is the stage of the rotation of the CAs: "STAGE HASH-OF-THE-NEXT-CA".
	Rotation string `json:"caRotation,omitempty"`
}

// formerFollows are the annotations that a former build writes, and how each is read. Follow removes them: one that is there was
// written later than the present annotation, and counts.
var formerFollows = map[string]func(f *Follows, text string){
	"airlift.dev/reconfiguration": func(f *Follows, text string) { f.Reconfiguration, _ = strconv.Atoi(text) },
	"airlift.dev/endpoint-change": func(f *Follows, text string) {
		text, f.OnlyServes = strings.CutSuffix(text, " serving")
		f.Endpoint, _ = strconv.Atoi(text)
	},
	"airlift.dev/registry": func(f *Follows, text string) {
		generation, err := strconv.Atoi(text)
		f.UsesRegistry, f.Registry = err == nil && generation >= 0, max(generation, 0)
	},
	"airlift.dev/ca-rotation": func(f *Follows, text string) { f.Rotation = text },
}

// FollowsOf returns what a node follows. What is damaged is none.
func FollowsOf(node *corev1.Node) (f Follows) {
	if json.Unmarshal([]byte(node.Annotations[followsAnnotation]), &f) != nil { // or there is none
		f = Follows{}
	}
	for name, read := range formerFollows {
		if text, has := node.Annotations[name]; has {
			read(&f, text)
		}
	}
	return f
}

// Follow changes what a node has recorded, and moves what former annotations say. The kubelet's permissions suffice for its own node.
func (c NodeObjects) Follow(ctx context.Context, node string, edit func(*Follows)) (changed bool, err error) {
	changed, err = c.PatchNode(ctx, node, func(n *corev1.Node) {
		f := FollowsOf(n)
		before := f
		if edit(&f); f == before {
			return // also with former annotations: nothing changes
		}
		for name := range formerFollows {
			delete(n.Annotations, name)
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		data, _ := json.Marshal(f) // numbers and text
		n.Annotations[followsAnnotation] = string(data)
		if f == (Follows{}) {
			delete(n.Annotations, followsAnnotation)
		}
	})
	if err != nil {
		return changed, fmt.Errorf("recording what node %q follows: %w", node, err)
	}
	return changed, nil
}

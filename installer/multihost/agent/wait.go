package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"airlift/installer/cluster/workloads"
	"airlift/internal/fault"
)

// waitInterval is the time between two looks at the nodes.
const waitInterval = 2 * time.Second

// A Wait waits for nodes.
type Wait struct {
	Healthy workloads.Healthy
	// Timeout limits the time in which they are not healthy, For is how long they must be healthy in a row.
	Timeout, For time.Duration
	// Report gets what is missing, whenever that changes, and an empty list when nothing is.
	Report func(missing []workloads.Lack)
}

// Until waits until all nodes are healthy for long enough.
func (w Wait) Until(ctx context.Context, api kubernetes.Interface) error {
	var unhealthy time.Duration // in total
	var since time.Time         // when the nodes became healthy; zero while they are not
	var last []workloads.Lack
	for first := true; ; first = false {
		began := time.Now()
		missing, err := w.look(ctx, api)
		if err != nil {
			missing = []workloads.Lack{{Node: anyNode, Why: err.Error()}}
		}
		if first || !slices.Equal(missing, last) {
			w.Report(missing)
		}
		last = missing
		switch {
		case len(missing) > 0:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) >= w.For {
			return nil
		}
		if since.IsZero() && unhealthy >= w.Timeout {
			return fault.New(fault.Failure, "waiting for nodes: gave up after %s; last seen: %s", w.Timeout, strings.Join(Texts(last), "; ")).
				Hint("see on the node: ./install status")
		}
		select {
		case <-time.After(waitInterval):
		case <-ctx.Done():
			return fmt.Errorf("waiting for nodes: %w", context.Cause(ctx))
		}
		if since.IsZero() {
			unhealthy += time.Since(began)
		}
	}
}

// anyNode takes the place of a node while the API server does not answer, and no node is known.
const anyNode = "the API server"

// Texts returns what is missing, for people.
func Texts(missing []workloads.Lack) []string {
	texts := []string{}
	for _, l := range missing {
		texts = append(texts, l.String())
	}
	return texts
}

// NodesOf returns the nodes that are not healthy, each once; none if no node is known.
func NodesOf(missing []workloads.Lack) []string {
	nodes := []string{}
	for _, l := range missing {
		if l.Node != anyNode && !slices.Contains(nodes, l.Node) {
			nodes = append(nodes, l.Node)
		}
	}
	return nodes
}

// look limits one attempt, because the timeout of the API's client is longer than a wait may be.
func (w Wait) look(ctx context.Context, api kubernetes.Interface) ([]workloads.Lack, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return w.Healthy.Unready(ctx, api)
}

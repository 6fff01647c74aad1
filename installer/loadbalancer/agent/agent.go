// Package agent answers for the addresses of Services on a node, and on one node it decides which node does. It runs in a pod of
// the add-on load-balancer, in the host's network. It changes nothing on the host.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"airlift/installer/daemon"
	"airlift/installer/endpoint/neighbours"
	"airlift/installer/loadbalancer"
)

const (
	// Namespace has the pods, their Leases and the ConfigMap with the pools.
	Namespace = "load-balancer"
	// PoolsName is the name of that ConfigMap.
	PoolsName = "pools"

	tableName   = "assignments" // the Lease of the node that writes the table, which is an annotation of it
	nodePrefix  = "node."       // precedes the name of the node in the name of its Lease
	tableKey    = "airlift.dev/assignments"
	nodeKey     = "airlift.dev/speaker"
	nodeLabel   = "airlift.dev/load-balancer-node"
	requestTime = 900 * time.Millisecond
)

// Options describe the agent of a node.
type Options struct {
	Node string
	API  kubernetes.Interface
	Log  *slog.Logger
	// Interfaces lists the interfaces of the node that are up and have subnets; nil means the interfaces of this host.
	Interfaces func() ([]Interface, error)
	// Open opens the network of an interface for an address; nil means neighbours.Open.
	Open func(*net.Interface, netip.Addr, func(prober net.HardwareAddr) bool) (neighbours.Segment, error)
}

// A record is what the Lease of a node has as an annotation.
type record struct {
	Read      int64                 `json:"read"`
	Gone      bool                  `json:"gone,omitempty"`
	Subnets   []netip.Prefix        `json:"subnets,omitempty"`
	Looking   []netip.Addr          `json:"looking,omitempty"`
	Conflicts map[netip.Addr]string `json:"conflicts,omitempty"`
}

type agent struct {
	Options
	lines *lines
	lease *coordinationv1.Lease // of this node, as the API server has it; nil if that is not known
	// subnets are the last that could be listed: a node without them loses its addresses.
	subnets []netip.Prefix

	mu    sync.Mutex
	table *coordinationv1.Lease // as it was read last
	wake  chan struct{}         // the table has changed
}

// Run answers for the addresses that the table gives to this node, until ctx ends. Then the other nodes get them at once, unless
// this process is replaced.
func Run(ctx context.Context, o Options) error {
	if o.Interfaces == nil {
		o.Interfaces = interfaces
	}
	if o.Open == nil {
		o.Open = neighbours.Open
	}
	a := &agent{Options: o, wake: make(chan struct{}, 1)}
	a.lines = &lines{Options: o, doubt: func() { notify(a.wake) }, speaker: loadbalancer.NewSpeaker(o.Node), open: map[netip.Addr]*line{}}
	var wg sync.WaitGroup
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() { a.announce(inner) })
	wg.Go(func() { a.follow(inner, tableName, a.wake) })
	wg.Go(func() { newWriter(a).run(ctx) })
	a.cycles(ctx)
	a.lines.close()
	if !errors.Is(context.Cause(ctx), ErrRestart) {
		a.leave()
	}
	cancel()
	wg.Wait()
	return nil
}

// announce sends what is due, until ctx ends.
func (a *agent) announce(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if n%4 == 0 {
			a.lines.refresh(daemon.Now())
		}
		a.lines.act(daemon.Now())
	}
}

// cycles renews the Lease of this node and reads the table, until ctx ends.
func (a *agent) cycles(ctx context.Context) {
	var failed failure
	for ctx.Err() == nil {
		before := a.lines.version()
		if err := a.cycle(ctx); failed.isNew(err) {
			a.Log.Warn("the API does not answer: this node keeps its addresses until another one announces them", "error", err)
		}
		pause := loadbalancer.Cycle
		if a.lines.version() != before {
			pause = 0 // the writer waits for the version
		}
		select {
		case <-ctx.Done():
		case <-a.wake:
		case <-time.After(pause):
		}
	}
}

// cycle first renews the Lease, and then reads the table: a node whose Lease was not renewed has not read a later table.
func (a *agent) cycle(ctx context.Context) error {
	began := daemon.Now()
	if list, err := a.Interfaces(); err == nil {
		a.subnets = nil
		for _, i := range list {
			a.subnets = append(a.subnets, i.Subnets...)
		}
	}
	if err := a.renew(ctx, record{Read: a.lines.version(), Subnets: a.subnets, Looking: a.lines.looking(), Conflicts: a.lines.conflicts(began)}); err != nil {
		return fmt.Errorf("renewing the Lease of this node: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	lease, err := a.API.CoordinationV1().Leases(Namespace).Get(limited, tableName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = &coordinationv1.Lease{}, nil
	}
	if err != nil {
		return fmt.Errorf("reading the table: %w", err)
	}
	t, err := tableOf(lease)
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.table = lease
	a.mu.Unlock()
	a.lines.read(t, began)
	return nil
}

func tableOf(lease *coordinationv1.Lease) (t loadbalancer.Table, err error) {
	if text := lease.Annotations[tableKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return loadbalancer.Table{}, fmt.Errorf("reading the annotation %s of Lease %s: %w", tableKey, tableName, err)
		}
	}
	return t, nil
}

// renew writes the Lease of this node. It is deleted with the Node.
func (a *agent) renew(ctx context.Context, r record) error {
	limited, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	leases := a.API.CoordinationV1().Leases(Namespace)
	if a.lease == nil {
		if a.lease, err = leases.Get(limited, nodePrefix+a.Node, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			a.lease, err = a.newLease(limited)
		}
		if err != nil {
			a.lease = nil
			return err
		}
	}
	next := a.lease.DeepCopy()
	next.Annotations = map[string]string{nodeKey: string(text)}
	next.Spec = coordinationv1.LeaseSpec{HolderIdentity: &a.Node, LeaseDurationSeconds: ptr.To(int32(loadbalancer.Valid / time.Second)),
		RenewTime: ptr.To(metav1.NowMicro())}
	if next.ResourceVersion == "" {
		next, err = leases.Create(limited, next, metav1.CreateOptions{})
	} else {
		next, err = leases.Update(limited, next, metav1.UpdateOptions{})
	}
	if a.lease = next; err != nil {
		a.lease = nil
	}
	return err
}

func (a *agent) newLease(ctx context.Context) (*coordinationv1.Lease, error) {
	node, err := a.API.CoreV1().Nodes().Get(ctx, a.Node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: nodePrefix + a.Node, Namespace: Namespace, Labels: map[string]string{nodeLabel: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}, nil
}

// leave reports that this node announces nothing any more.
func (a *agent) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*requestTime)
	defer cancel()
	err := a.renew(ctx, record{Read: a.lines.version(), Gone: true})
	if err != nil { // the request that ctx interrupted may have been carried out
		a.lease = nil
		err = a.renew(ctx, record{Read: a.lines.version(), Gone: true})
	}
	if err != nil {
		a.Log.Warn("the addresses of this node were not given up", "error", err)
	}
}

// follow sends to wake when a Lease changes, all of them if name is empty, until ctx ends. A missed change costs only time.
func (a *agent) follow(ctx context.Context, name string, wake chan<- struct{}) {
	options := metav1.ListOptions{}
	if name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	seen := map[string]string{} // what a Lease has, without its renewals
	for ctx.Err() == nil {
		w, err := a.API.CoordinationV1().Leases(Namespace).Watch(ctx, options)
		if err == nil {
			for e := range w.ResultChan() {
				lease, ok := e.Object.(*coordinationv1.Lease)
				if e.Type == watch.Bookmark || !ok {
					continue
				}
				if text := lease.Annotations[tableKey] + lease.Annotations[nodeKey]; text != seen[lease.Name] {
					seen[lease.Name] = text
				} else {
					continue
				}
				notify(wake)
			}
			w.Stop()
		}
		select {
		case <-ctx.Done():
		case <-time.After(loadbalancer.Cycle):
		}
	}
}

// notify wakes who waits for a channel with room for one.
func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// reference names an object in an Event.
func reference(kind, namespace, name, uid string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: types.UID(uid)}
}
